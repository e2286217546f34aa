#!/usr/bin/env python3
"""What is done with containers that are there: verified, repaired, compared with their source, published, listed, removed.

usage: check_installed.py PROGRAM [--only WORD] [--times]
The last line says "N passed, N failed, N skipped".
"""
import fcntl
import hashlib
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fake_hub  # noqa: E402
import harness  # noqa: E402
from fake_hub import Hub, read_dir  # noqa: E402
from harness import (CASES, QUICK, Room, check, holders, make_dir, must, packed, raw, same, spoil, swiftlet, tree,  # noqa: E402
                     wait_for)


# ---- verify and repair ----------------------------------------------------------------------------------------------------------

@check
def verify_names_every_bad_file_and_repair_fetches_just_those():
    with Hub(packed()) as hub, Room() as r:
        r.run(hub)
        swiftlet(r, None, "verify", r.out)
        stride = json.loads(packed()["packed_experts/layout.json"])["expertStride"]
        spoil(r, "packed_experts/layer_02.bin", 5 * stride + 9)
        spoil(r, "model.safetensors", 200000)
        os.truncate(os.path.join(r.out, "config.json"), 10)
        os.remove(os.path.join(r.out, "tokenizer_config.json"))
        before = tree(r.out)
        result = json.loads(swiftlet(r, None, "verify", r.out, "--json", expect=3)[0])
        bad = {row["path"] for row in result["rows"] if not row["ok"]}
        must({"packed_experts/layer_02.bin", "model.safetensors", "config.json", "tokenizer_config.json"} <= bad, bad)
        same("not ok", result["ok"], False)
        swiftlet(r, hub, "verify", r.out, "--repair", expect=3)  # without a terminal it asks nobody
        same("changed by verify", tree(r.out) == before, True)
        n = len(hub.requests)
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        r.complete(packed())
        fetched = {os.path.basename(p.split("?")[0]) for _, _, p, _ in hub.requests[n:] if "blob" in p}
        must(fetched <= {"layer_02.bin", "model.safetensors", "config.json"} and len(fetched) == 3, fetched)
        swiftlet(r, None, "verify", r.out)


@check
def one_process_at_a_time_repairs_a_container():
    for files, by in (packed(), "."), (raw("q35moe-a-mlx4"), "../out.qpack"):
        with Hub(files) as hub, Room() as r:
            r.run(hub)
            want = tree(r.out)
            spoil(r, "packed_experts/layer_01.bin")
            bad = read_dir(r.out)
            hub.slow = 10000
            n = len(hub.requests)
            first = subprocess.Popen([harness.PROGRAM, "verify", by, "--repair", "--yes", *QUICK], cwd=r.out, env=r.environment(hub),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_for(lambda: any(name == "cdn" for name, _, _, _ in list(hub.requests[n:])))
                err = swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK, expect=1)[1]
                must("process %d on " % first.pid in err, err)
                same("touched", read_dir(r.out) == bad, True)
                hub.slow = 0
                same("exit", first.wait(timeout=60), 0)
            finally:
                first.kill()
            same("repaired", tree(r.out) == want, True)
            same("left", sorted(x for x in os.listdir(r.dir) if x.startswith("out")), ["out.qpack"])


@check
def a_repair_waits_for_no_pull_and_leaves_what_that_began():
    with Hub(packed()) as hub, Room() as r:
        r.run(hub)
        spoil(r, "config.json", 0)
        os.mkdir(os.path.join(r.out, ".repair"))
        partial = r.out + ".partial"
        begun = {".swiftlet-install.json": b"{}\n", ".swiftlet-owner": b"process 4711 on elsewhere\n", "begun": b"more"}
        make_dir(r, begun, "out.qpack.partial")
        fd = os.open(partial, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        err = swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK, expect=1)[1]
        must("process 4711 on elsewhere" in err, err)
        must(os.path.exists(os.path.join(r.out, ".repair")), "the repair folder is gone")
        os.close(fd)
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        same("repaired", tree(r.out) == packed(), True)
        same("left", sorted(os.listdir(partial)), [".swiftlet-install.json", "begun"])


@check
def verify_compares_with_a_source_when_asked():
    layer = "packed_experts/layer_02.bin"
    other = packed("q35moe-c")
    with Hub(packed()) as hub, Hub(other) as another, Room() as r, Room() as theirs:
        make_dir(r, packed(), "out.qpack")  # without a record
        theirs.run(hub)
        for source in "org/name", hub.mirror, theirs.out:
            swiftlet(r, hub, "verify", r.out, "--source", source, *QUICK)
        # hashes.json is changed along with the weights: nothing but the source can tell
        files = packed()
        spoil(r, layer, 9)
        hashes = json.loads(files["hashes.json"])
        hashes["files"][layer] = hashlib.sha256(tree(r.out)[layer]).hexdigest()
        with open(os.path.join(r.out, "hashes.json"), "w") as f:
            json.dump(hashes, f)
        swiftlet(r, None, "verify", r.out)
        for source in "org/name", hub.mirror, theirs.out:
            result = json.loads(swiftlet(r, hub, "verify", r.out, "--source", source, "--json", *QUICK, expect=3)[0])
            same("bad by " + source, {x["path"] for x in result["rows"] if not x["ok"]}, {layer, "hashes.json"})
        n = len(hub.requests)
        swiftlet(r, hub, "verify", r.out, "--source", "org/name", "--repair", "--yes", *QUICK)
        r.complete(files)
        must(all("layer_01" not in x[2] for x in hub.requests[n:]), "fetched what is good")
        spoil(r, layer, 9)
        swiftlet(r, None, "verify", r.out, "--source", theirs.out, "--repair", "--yes")
        r.complete(files)
        swiftlet(r, another, "verify", r.out, "--source", "org/name", *QUICK, expect=3)
        swiftlet(r, hub, "verify", r.out, "--source", "org/none", *QUICK, expect=3)
        swiftlet(r, None, "verify", r.out, "--source", "org/name", HF_ENDPOINT="http://127.0.0.1:9", *QUICK, expect=5)
        swiftlet(r, hub, "verify", r.out, "--source", "org/name", "--offline", expect=3)
        same("still", tree(r.out), files)


@check
def verify_knows_whether_a_conversion_is_of_what_the_source_has_now():
    with Hub(raw("q35moe-a-mlx4")) as hub, Room() as r:
        r.run(hub)
        swiftlet(r, hub, "verify", r.out, "--source", "org/name", *QUICK)
        hub.versions[fake_hub.OTHER], hub.commit = hub.files, fake_hub.OTHER
        out = swiftlet(r, hub, "verify", r.out, "--source", "org/name", *QUICK, expect=3)[0]
        must(fake_hub.OTHER in out and fake_hub.COMMIT in out, out)
        swiftlet(r, hub, "verify", r.out, "--source", "org/name@" + fake_hub.COMMIT, *QUICK, expect=None)
        err = swiftlet(r, None, "verify", r.out, "--source", os.path.join(CASES, "q35moe-a-mlx4"), expect=6)[1]
        must("converting" in err, err)


@check
def verify_names_the_slot_and_the_tensor():
    with Room() as r:
        r.run(None, command="repack", source=os.path.join(CASES, "q35moe-a"))
        stride = json.loads(tree(r.out)["packed_experts/layout.json"])["expertStride"]
        spoil(r, "packed_experts/layer_01.bin", 7 * stride)
        spoil(r, "model.safetensors", 250000)
        rows = json.loads(swiftlet(r, None, "verify", r.out, "--json", expect=3)[0])["rows"]
        must(any(x["path"] == "packed_experts/layer_01.bin" and x.get("slot") == 7 for x in rows), rows)
        must(any(x["path"] == "model.safetensors" and x.get("tensor") for x in rows), rows)
        err = swiftlet(r, None, "verify", r.out, "--repair", "--yes", expect=3)[1]
        must("not brought from a hub" in err, err)


@check
def a_converted_container_is_repaired_by_a_new_conversion():
    with Hub(raw("q35moe-a-mlx4")) as hub, Room() as r:
        r.run(hub)
        want = tree(r.out)
        spoil(r, "packed_experts/layer_01.bin")
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        same("equal", tree(r.out) == want, True)


@check
def a_repair_goes_where_a_link_leads():
    for files in packed(), raw("q35moe-a-mlx4"):
        with Hub(files) as hub, Room() as r:
            r.run(hub)
            want = tree(r.out)
            spoil(r, "packed_experts/layer_01.bin")
            os.mkdir(os.path.join(r.dir, "links"))
            link = os.path.join(r.dir, "links", "link.qpack")
            os.symlink("../out.qpack", link)
            swiftlet(r, hub, "verify", link, "--repair", "--yes", *QUICK)
            same("equal", tree(r.out) == want, True)
            same("link", os.readlink(link), "../out.qpack")
            same("left", (os.listdir(os.path.dirname(link)), [x for x in os.listdir(r.dir) if x.startswith("out")]),
                 (["link.qpack"], ["out.qpack"]))


@check
def the_record_of_a_container_does_not_get_the_token():
    with Hub(packed()) as hub, Hub(packed()) as thief, Room() as r:
        r.run(hub)
        state = os.path.join(r.out, ".swiftlet-install.json")
        text = open(state).read().replace(hub.url, thief.url)
        open(state, "w").write(text)
        spoil(r, "config.json")
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        same("who saw the token", holders(thief), set())


# ---- publishing, listing, removing ----------------------------------------------------------------------------------------------

@check
def hashes_are_written_for_publishers():
    files = packed()
    with Room() as r:
        out = make_dir(r, {p: d for p, d in files.items() if p != "hashes.json"}, "out.qpack")
        said = swiftlet(r, None, "verify", "--write-hashes", out)[1]
        same("said", said, "swiftlet: wrote %s/hashes.json\n" % out)
        hashes = json.load(open(os.path.join(out, "hashes.json")))["files"]
        same("hashes", hashes, {p: hashlib.sha256(d).hexdigest() for p, d in files.items() if p != "hashes.json"})
        swiftlet(r, None, "verify", out)


@check
def hashes_that_say_the_same_keep_their_bytes():
    """A pull records the digest of what was published, as a rule by a conversion, in whose form the file is made anew."""
    files = packed()
    with Room() as r:
        subprocess.run([harness.PROGRAM, "repack", os.path.join(CASES, "q35moe-a"), "--output", r.out, "-q"], check=True)
        form = read_dir(r.out)["hashes.json"]
        os.remove(os.path.join(r.out, "hashes.json"))
        swiftlet(r, None, "verify", "--write-hashes", r.out)
        same("made anew", read_dir(r.out)["hashes.json"], form)
    for published in (files["hashes.json"], json.dumps(json.loads(files["hashes.json"]), separators=(",", ":")).encode()):
        with Hub({**files, "hashes.json": published}) as hub, Room() as r:
            r.run(hub)
            swiftlet(r, None, "verify", "--write-hashes", r.out)
            same("bytes", read_dir(r.out)["hashes.json"] == published, True)
            swiftlet(r, None, "verify", r.out)


@check
def models_are_listed_and_removed_by_name():
    with Hub(packed()) as hub, Room() as r:
        more = dict(SWIFTLET_HOME=os.path.join(r.dir, "own"))
        said = swiftlet(r, hub, "pull", "org/name", **more)[1]
        must(said.endswith("\nswiftlet: next: swiftlet chat name\n"), said)
        swiftlet(r, hub, "info", "name", **more)
        swiftlet(r, hub, "info", "org/name", **more)
        models = json.loads(swiftlet(r, hub, "ls", "--json", **more)[0])["models"]
        same("models", [(m["name"], m["complete"], m["commit"]) for m in models], [("org/name", True, hub.commit)])
        swiftlet(r, hub, "rm", "org/name", expect=2, **more)
        swiftlet(r, hub, "rm", "../hf", "--yes", expect=3, **more)
        must(os.path.exists(os.path.join(r.dir, "own", "models", "org--name.qpack")))
        swiftlet(r, hub, "rm", "org/name", "--yes", **more)
        same("left", os.listdir(os.path.join(r.dir, "own", "models")), [])
        swiftlet(r, hub, "pull", "org/name", **more)
        make_dir(r, packed(), "own/models/other--name.qpack")
        said = swiftlet(r, hub, "pull", "org/name", **more)[1]
        must(said.endswith("\nswiftlet: next: swiftlet chat org/name\n"), said)
        place = os.path.join(r.dir, "elsewhere")
        said = swiftlet(r, hub, "pull", "org/name", "--local-dir", place, **more)[1]
        must(said.endswith("\nswiftlet: next: swiftlet chat %s\n" % place), said)


if __name__ == "__main__":
    sys.exit(harness.main())
