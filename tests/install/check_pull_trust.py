#!/usr/bin/env python3
"""Whom a pull trusts, and with what: who gets the token, which certificates count, and what entries of a listing may name.

usage: check_pull_trust.py PROGRAM [--only WORD] [--times]
The last line says "N passed, N failed, N skipped".
"""
import atexit
import json
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import certificates  # noqa: E402
import fake_hub  # noqa: E402
import harness  # noqa: E402
from fake_hub import Hub  # noqa: E402
from harness import TOKEN, Room, Skip, check, converted, holders, listing, making, must, packed, raw, same  # noqa: E402


# ---- tokens ---------------------------------------------------------------------------------------------------------------------

def find_token(r, state=True):
    for text in r.said:
        must(TOKEN.encode() not in text, "the token is in the output")
        must(b"secret=signature" not in text, "a signature is in the output")
    for at, _, names in os.walk(r.dir):
        for name in names:
            with open(os.path.join(at, name), "rb") as f:
                data = f.read()
            must(TOKEN.encode() not in data and b"secret=signature" not in data, "a secret is in", name)


@check
def the_token_goes_to_the_endpoint_alone():
    for switches in (dict(), dict(redirect="host"), dict(redirect="relative"), dict(redirect="other"), dict(redirect="loop"),
                     dict(expire=1), dict(redirect="file"), dict(cut=100000), dict(status={"blob": [403] * 1000})):
        for arguments in (["-v"], ["--json"]):
            with Hub(packed(), gated=TOKEN, **json.loads(json.dumps(switches))) as hub, Room() as r:
                r.run(hub, *arguments, expect=None)
                same("who saw the token with %s" % switches, holders(hub), {"hub"})
                agents = {h.get("User-Agent", "").split("/")[0] for _, _, _, h in hub.requests}
                same("user agent", agents, {"swiftlet"})
                known = {"Host", "Range", "Accept-Encoding", "User-Agent", "Authorization", "Accept"}
                same("headers", {k for _, _, _, h in hub.requests for k in h} - known, set())
                find_token(r)


@check
def a_mirror_given_by_url_gets_no_token():
    with Hub(packed()) as hub, Room() as r:
        r.run(hub, source=hub.cdn_url.replace("cdn", "") + "/x/", expect=None)
        r.run(hub, source=hub.mirror)
        same("who saw the token", holders(hub), set())


@check
def without_access_the_page_is_named():
    with Hub(packed(), gated="another token") as hub, Room() as r:
        err = r.run(hub, expect=5)[2]
        must("403" in err and hub.url + "/org/name" in err and "a token was sent" in err, err)
        err = r.run(hub, HF_TOKEN="", expect=5)[2]
        must("401" in err and "no token" in err, err)
        same("requests", len(hub.requests), 2)


@check
def a_token_comes_from_a_file_too():
    with Hub(packed(), gated=TOKEN) as hub, Room() as r:
        with open(os.path.join(r.dir, "token"), "w") as f:
            f.write(TOKEN + "\n")
        r.run(hub, "--dry-run", "--token-file", f.name, HF_TOKEN="")
        r.run(hub, "--dry-run", HF_TOKEN="", HF_TOKEN_PATH=f.name)
        os.makedirs(os.path.join(r.dir, "hf"))
        shutil.copy(f.name, os.path.join(r.dir, "hf", "token"))
        r.run(hub, "--dry-run", HF_TOKEN="")
        r.run(hub, "--dry-run", "--token-file", "/nowhere", expect=3)


# ---- TLS ------------------------------------------------------------------------------------------------------------------------

_authority = {}


def authority():
    with making:
        if "made" not in _authority:
            d = tempfile.mkdtemp(prefix="swiftlet-tls-")
            atexit.register(shutil.rmtree, d, ignore_errors=True)
            _authority["made"] = certificates.make(d)
    if not _authority["made"]:
        raise Skip("certificates need the openssl command")
    return _authority["made"]


@check
def a_hub_over_tls_is_trusted_by_the_authority_that_is_named():
    ca, contexts = authority()
    both = {"hub": contexts["good"], "cdn": contexts["good"]}
    for name in "SSL_CERT_FILE", "CURL_CA_BUNDLE":
        for files, want in ((packed(), packed()), (raw("q35moe-a-mlx4"), converted(raw("q35moe-a-mlx4")))):
            with Hub(files, tls=both, gated=TOKEN) as hub, Room() as r:
                r.run(hub, **{name: ca})
                r.complete(want)
                same("who saw the token", holders(hub), {"hub"})


@check
def a_certificate_that_does_not_hold_ends_it_before_a_word_is_said():
    ca, contexts = authority()
    for name, trust, words in (("good", None, "certificate"), ("good", __file__, "certificate"),
                               ("of another host", ca, "match"), ("expired", ca, "expired")):
        with Hub(packed(), tls={"hub": contexts[name]}, gated=TOKEN) as hub, Room() as r:
            begin = time.time()
            err = r.run(hub, expect=5, SSL_CERT_FILE=trust, CURL_CA_BUNDLE=None)[2]
            must(words in err and "trying again" not in err, name, trust, err)
            must(time.time() - begin < 20, "it was tried again")
            same("requests", hub.requests, [])
            r.nothing()


@check
def a_certificate_of_the_place_that_is_redirected_to_counts_as_well():
    ca, contexts = authority()
    for name in "of another host", "expired":
        with Hub(packed(), tls={"hub": contexts["good"], "cdn": contexts[name]}, gated=TOKEN) as hub, Room() as r:
            r.run(hub, expect=5, SSL_CERT_FILE=ca)
            same("who saw the token", holders(hub), {"hub"})
            same("asked of the CDN", [x for x in hub.requests if x[0] == "cdn"], [])
            r.nothing()


@check
def a_redirect_from_https_to_http_is_not_followed():
    ca, contexts = authority()
    with Hub(packed(), tls={"hub": contexts["good"]}, gated=TOKEN) as hub, Room() as r:
        err = r.run(hub, expect=5, SSL_CERT_FILE=ca)[2]
        must("from https to http" in err, err)
        same("asked of the CDN", [x for x in hub.requests if x[0] == "cdn"], [])
        r.nothing()


@check
def the_token_does_not_go_over_plain_http_beyond_this_machine():
    """By way of a proxy, which sees what would be sent to the host."""
    with Hub(packed()) as hub, Room() as r:
        for name in "http_proxy", "all_proxy":
            err = r.run(hub, expect=3, HF_ENDPOINT="http://hub.test", **{name: hub.url})[2]
            must("plain http" in err, err)
        must(hub.requests and all(path.startswith("http://hub.test/") for _, _, path, _ in hub.requests), hub.requests)
        same("who saw the token", holders(hub), set())


# ---- evil entries ---------------------------------------------------------------------------------------------------------------

PATHS = ["../x", "/etc/x", "a\\b", "C:x", "NUL", "nul.txt", "a/../../x", "a//b", "a/./b", "x.", "x ", "COM1", "a\u0001b",
         "/".join("abcdefghi"), "x" * 256, "a/" + "../" * 5 + "x"]


def evil_tree(path, size=5):
    return json.dumps([{"type": "file", "path": path, "size": size, "oid": "0" * 40}]
                      + [{"type": "file", "path": p, "size": len(d), "oid": fake_hub.git_sha1(d)} for p, d in packed().items()]
                      ).encode()


def refused(files, code=3, source=None, **switches):
    with Hub(files, **switches) as hub, Room() as r:
        before = listing(os.path.dirname(r.dir)) if False else listing(r.dir)
        got = r.run(hub, expect=None, source=source and getattr(hub, source) or "org/name")
        must(got[0] in ((code,) if isinstance(code, int) else code), "exit", got)
        same("files", [x for x in listing(r.dir) if not x.startswith("out.qpack.partial")], before)
        must(not os.path.exists(os.path.join(os.path.dirname(r.dir), "x")), "a file outside")


@check
def evil_paths_of_a_tree_are_refused():
    for path in PATHS:
        refused(packed(), tree=evil_tree(path))
    refused(packed(), tree=evil_tree("CONFIG.json"))
    refused(packed(), tree=evil_tree("x", 2 ** 63))
    refused(packed(), tree=evil_tree("x", 2 ** 63 - 1))
    refused(packed(), tree=evil_tree("x", -1))
    refused(packed(), tree=b"[" * 100000)
    refused(packed(), tree=b'{"a":' * 100000)
    refused(packed(), tree=b"[1, 2]")
    refused(packed(), code=(3, 5), tree=json.dumps([{"type": "file", "path": "f%d" % i, "size": 1} for i in range(200000)]).encode())


@check
def evil_paths_of_manifest_and_hashes_are_refused():
    for path in PATHS:
        files = packed()
        manifest = json.loads(files["manifest.json"])
        manifest["files"][path] = 5
        files["manifest.json"] = json.dumps(manifest).encode()
        refused(files, source="mirror")
        refused(files)
        files = packed()
        hashes = json.loads(files["hashes.json"])
        hashes["files"][path] = "0" * 64
        files["hashes.json"] = json.dumps(hashes).encode()
        refused(files, source="mirror")
    for size in (2 ** 63, -1, 1.5, "5", 2 ** 60):
        files = packed()
        manifest = json.loads(files["manifest.json"])
        manifest["files"]["x.bin"] = size
        files["manifest.json"] = json.dumps(manifest).encode()
        refused(files, source="mirror")


@check
def links_in_the_partial_directory_are_not_followed():
    for link in ("config.json", "packed_experts"):
        with Hub(packed()) as hub, Room() as r, Room() as elsewhere:
            os.makedirs(r.out + ".partial")
            open(r.out + ".partial/.swiftlet-install.json", "w").write("{}")
            target = os.path.join(elsewhere.dir, "victim")
            if link == "config.json":
                open(target, "w").write("precious")
            else:
                os.mkdir(target)
            os.symlink(target, os.path.join(r.out + ".partial", link))
            r.run(hub, expect=None)
            if link == "config.json":
                same("victim", open(target).read(), "precious")
            else:
                same("victim", os.listdir(target), [])


if __name__ == "__main__":
    sys.exit(harness.main())
