#!/usr/bin/env python3
"""Pulls from a hub that misbehaves, and pulls that are ended: killed, stopped, out of room; the next one goes on.

usage: check_pull_breaks.py PROGRAM [--kills N] [--only WORD] [--times]
  --kills N    SIGKILLs at random moments of a pull, of conversions by pull, and of a repack (default 34 each)
  --only WORD  the checks with WORD in their names
The last line says "N passed, N failed, N skipped".
"""
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fake_hub  # noqa: E402
import harness  # noqa: E402
from fake_hub import Hub  # noqa: E402
from harness import (CASES, Room, Skip, by_itself, check, converted, gguf_file, make_dir, must, packed, raw, same,  # noqa: E402
                     tree, wait_for)

KILLS = 34


# ---- misbehaviour ---------------------------------------------------------------------------------------------------------------

@check
def trouble_that_passes_is_survived():
    cases = [dict(cut=100000), dict(expire=1), dict(gzip=True), dict(wrong_range=2), dict(no_range_400=True),
             dict(status={"blob|resolve": [500, 502, 503, 408, 429]}, retry_after=0), dict(moved=True),
             dict(status={"api": [500, 429, 502]}, retry_after=0), dict(status={"manifest.json$": [500, 500]}),
             dict(redirect="host"), dict(redirect="relative")]
    for files, want in ((packed(), packed()), (raw("q35moe-a-mlx4"), converted(raw("q35moe-a-mlx4")))):
        for switches in cases:
            with Hub(files, **json.loads(json.dumps(switches))) as hub, Room() as r:
                try:
                    r.run(hub, "--part-size", "65536")
                    r.complete(want)
                except AssertionError as e:
                    raise AssertionError("%s: %s" % (switches, e))


@check
def a_stream_that_stalls_is_asked_for_again():
    with Hub(packed(), stall=150000) as hub, Room() as r:
        err = r.run(hub)[2]
        must("no byte for" in err, err)
        r.complete(packed())


@check
def trouble_that_stays_is_an_error():
    for switches, code, word in ((dict(redirect="loop"), 5, "redirects"), (dict(redirect="file"), 5, "redirects"),
                                 (dict(wrong_total=1000), 5, "length"), (dict(status={"blob": [500] * 1000}), 5, "500"),
                                 (dict(status={"manifest.json$": [500] * 1000}), 5, "500"),
                                 (dict(hide=("tokenizer_config.json",)), 3, "tokenizer_config.json"),
                                 (dict(status={"blob": [400] * 1000}), 5, "400")):
        with Hub(packed(), **switches) as hub, Room() as r:
            try:
                err = r.run(hub, expect=code)[2]
                must(word in err, err)
                r.nothing()
            except AssertionError as e:
                raise AssertionError("%s: %s" % (switches, e))


@check
def a_failed_manifest_never_means_a_checkpoint():
    files = {**raw("q35moe-a-mlx4"), "manifest.json": packed()["manifest.json"]}
    with Hub(files, status={"manifest.json$": [500, 503] * 100}) as hub, Room() as r:
        r.run(hub, expect=5)
        r.nothing()
        same("left", [x for x in os.listdir(r.dir) if x.startswith("out")], [])


@check
def what_is_missing_is_named():
    with Hub(packed()) as hub, Room() as r:
        must("repository org/none" in r.run(hub, source="org/none", expect=3)[2])
        must("revision gone" in r.run(hub, "--revision", "gone", expect=3)[2])
    with Hub({"readme.txt": b"x", "model.bin": b"x"}) as hub, Room() as r:
        must("readme.txt" in r.run(hub, expect=6)[2])


@check
def one_wrong_byte_is_fetched_once_more_and_then_refused():
    layer = "packed_experts/layer_01.bin"
    for files, path, want in ((packed(), layer, packed()), (packed(), "config.json", packed()),
                              (raw("q35moe-a-mlx4"), "model.safetensors", converted(raw("q35moe-a-mlx4")))):
        with Hub(files, flip={path: (1000 if path == "config.json" else 60000, 3 if "model" in path else 1)}) as hub, Room() as r:
            r.run(hub)
            r.complete(want)
        with Hub(files, flip={path: (1000 if path == "config.json" else 60000, 1 << 30)}) as hub, Room() as r:
            err = r.run(hub, expect=3)[2]
            must(path in err and "expected" in err, err)
            r.nothing()


@check
def a_mirror_with_wrong_bytes_is_dropped():
    bad = {p: (d[:500] + b"!" + d[501:] if p.startswith("packed_experts/layer_0") else d) for p, d in packed().items()}
    short = {p: d[:-1] for p, d in packed().items()}
    for files in (bad, short, {}):
        with Hub(packed()) as hub, Hub(files) as mirror, Room() as r:
            r.run(hub, "--mirror", mirror.mirror)
            r.complete(packed())
            must(all("Authorization" not in h for _, _, _, h in mirror.requests), "the mirror got the token")
    with Hub(packed()) as hub, Hub(packed()) as mirror, Room() as r:
        r.run(hub, "--mirror", mirror.mirror)
        r.complete(packed())
        must(not any(n == "cdn" for n, *_ in hub.requests), "the hub's CDN was asked for bytes")


# ---- ends of all kinds ----------------------------------------------------------------------------------------------------------

def kill_at_random(r, hub, want, n, start, part, first=65536):
    """Kills n runs, each at a random moment; what is there in the end is right, and no kill costs more than what was not saved
    yet, beside the `first` bytes that are asked for at each start. Results that come in between are checked and removed."""
    rng, finished, size = random.Random(7), 0, sum(map(len, hub.files.values())) if hub else 0
    for i in range(n):
        p = start()
        time.sleep(rng.uniform(0, 0.35))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        if os.path.exists(r.out):
            r_tree = tree(r.out)
            must(r_tree == want, "the result after kill", i, "differs")
            shutil.rmtree(r.out)
            shutil.rmtree(r.out + ".partial", ignore_errors=True)
            finished += 1
    p = start()
    out, err = p.communicate(timeout=120)
    same("exit", (p.returncode, err if p.returncode else b""), (0, b""))
    r.complete(want)
    if hub:
        bound = (finished + 1) * size + n * (4 * part + first) + first  # a part for each stream
        must(hub.n_sent <= bound, "sent", hub.n_sent, "bytes, expected at most", bound)


@check
def killed_pulls_go_on():
    with Hub(packed(), slow=1500000) as hub, Room() as r:
        kill_at_random(r, hub, packed(), KILLS, lambda: r.start(hub, "--part-size", "65536"), 65536)


@check
def killed_conversions_go_on():
    with Hub(raw("q35moe-c"), slow=1500000) as hub, Room() as r:
        kill_at_random(r, hub, converted(raw("q35moe-c")), KILLS, lambda: r.start(hub, "--part-size", "65536"), 65536)


@check
def killed_conversions_of_gguf_files_go_on():
    files = gguf_file()
    name, = files
    with Hub(files, slow=25000000) as hub, Room() as r:
        kill_at_random(r, hub, converted(files, source=name), KILLS,
                       lambda: r.start(hub, "--part-size", "65536", source="org/name:" + name), 65536, (4 << 20) + 65536)


@check
def killed_repacks_go_on():
    source = os.path.join(CASES, "q35moe-a")
    with Room() as straight, Room() as r:
        straight.run(None, command="repack", source=source)
        kill_at_random(r, None, tree(straight.out), KILLS, lambda: r.start(None, command="repack", source=source), 0)


@by_itself
def another_commit_keeps_what_is_equal():
    with Hub(packed(), slow=200000) as hub, Room() as r:
        p = r.start(hub, "--part-size", "65536")
        time.sleep(1.2)
        p.send_signal(signal.SIGINT)
        same("exit", (p.communicate(timeout=20), p.returncode)[1], 130)
        hub.versions = {fake_hub.OTHER: {**packed(), "tokenizer_config.json": b'{"chat_template": "y"}'}}
        files = hub.versions[fake_hub.OTHER]
        hashes = json.loads(files["hashes.json"])
        hashes["files"]["tokenizer_config.json"] = hashlib.sha256(files["tokenizer_config.json"]).hexdigest()
        files["hashes.json"] = json.dumps(hashes).encode()
        hub.commit, hub.slow = fake_hub.OTHER, 0
        r.run(hub)
        r.complete(files)


@check
def an_unreadable_state_costs_only_hashing():
    with Hub(packed()) as hub, Room() as r:
        shutil.copytree(make_dir(r, packed()), r.out + ".partial")
        for name in ("manifest.json", "hashes.json"):
            os.remove(os.path.join(r.out + ".partial", name))
        with open(r.out + ".partial/packed_experts/layer_02.bin", "r+b") as f:
            f.write(b"spoiled")
        open(r.out + ".partial/.swiftlet-install.json", "w").write("{ not json")
        r.run(hub)
        r.complete(packed())
        blobs = {p.split("?")[0] for n, _, p, _ in hub.requests if n == "cdn"}
        must(all("layer_02" in b for b in blobs) and blobs, "fetched", blobs)


@check
def leftovers_of_another_program_are_adopted_when_asked():
    with Hub(packed()) as hub, Room() as r:
        left = {p: d for p, d in packed().items() if "layer" in p and "layout" not in p}
        left["packed_experts/layer_00.bin"] = bytes(len(left["packed_experts/layer_00.bin"]))
        make_dir(r, left, "out.qpack")
        err = r.run(hub, expect=2)[2]
        must("--adopt" in err, err)
        same("kept", tree(r.out), left)
        r.run(hub, "--adopt")
        r.complete(packed())
        must(not any("layer_01" in p for n, _, p, _ in hub.requests if n == "cdn"), "fetched what was there")


@check
def targets_of_others_are_kept():
    with Hub(packed()) as hub, Hub(raw("q35moe-a-mlx4"), repo="org/other") as other, Room() as r:
        make_dir(r, {"precious": b"x"}, "out.qpack")
        r.run(hub, expect=2)
        r.run(hub, "--replace", expect=2)
        same("kept", tree(r.out), {"precious": b"x"})
        shutil.rmtree(r.out)
        r.run(hub)
        err = r.run(other, source="org/other", expect=2)[2]
        must("--replace" in err, err)
        r.complete(packed())
        r.run(other, "--replace", source="org/other")
        must(tree(r.out).keys() != packed().keys())


@by_itself
def a_signal_stops_within_a_second():
    files, blob = packed(), "blob"
    for name, switches, sign in (("stalled", dict(stall=1000), blob), ("slow", dict(slow=100000), blob),
                                 ("backing off", dict(status={blob: [503] * 99}, retry_after=60), blob),
                                 ("listing", dict(status={"api": [503] * 99}, retry_after=60), "api")):
        for content in (files, raw("q35moe-a")):
            with Hub(content, **json.loads(json.dumps(switches))) as hub, Room() as r:
                p = r.start(hub, "--stall", "60s")
                wait_for(lambda: any(sign in path for _, _, path, _ in list(hub.requests)))
                time.sleep(0.1)
                begin = time.time()
                p.send_signal(signal.SIGINT)
                out, err = p.communicate(timeout=20)
                must(time.time() - begin < 1.0, name, "took", time.time() - begin)
                same(name, p.returncode, 130)
                must(b"resume" in err, err)


@by_itself
def a_connection_that_nobody_answers_can_be_stopped():
    with socket.socket() as s, Room() as r:
        s.bind(("127.0.0.1", 0))
        s.listen(8)
        p = r.start(None, "--stall", "60s", HF_ENDPOINT="http://127.0.0.1:%d" % s.getsockname()[1])
        time.sleep(0.5)
        begin = time.time()
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=20)
        must(time.time() - begin < 1.0 and p.returncode == 143, p.returncode)


@check
def a_full_disk_ends_cleanly_and_the_next_run_goes_on():
    with Room() as r:
        mount = os.path.join(r.dir, "small")
        os.mkdir(mount)
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "swiftlet-test", mount],
                                          capture_output=True).returncode:
            raise Skip("a file system of limited size needs the right to mount one")
        try:
            for files, want in ((packed(), packed()), (raw("q35moe-a-mlx4"), converted(raw("q35moe-a-mlx4")))):
                subprocess.run(["mount", "-o", "remount,size=700k", mount], check=True)
                r.out = os.path.join(mount, "out.qpack")
                with Hub(files) as hub:
                    err = r.run(hub, expect=4)[2]
                    must("GiB are free" in err, err)
                    err = r.run(hub, "--force", expect=4)[2]
                    must("space" in err or "room" in err, err)
                    r.nothing()
                    subprocess.run(["mount", "-o", "remount,size=64m", mount], check=True)
                    r.run(hub, "--force")
                    r.complete(want)
                    shutil.rmtree(r.out)
        finally:
            subprocess.run(["umount", mount])


@check
def a_read_only_place_is_named():
    with Hub(packed()) as hub, Room() as r:
        mount = os.path.join(r.dir, "ro")
        os.mkdir(mount)
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "swiftlet-test", mount],
                                          capture_output=True).returncode:
            raise Skip("a read-only file system needs the right to mount one")
        try:
            r.out = os.path.join(mount, "out.qpack")
            err = r.run(hub, expect=1)[2]
            must("Read-only" in err, err)
        finally:
            subprocess.run(["umount", mount])


@by_itself
def two_processes_share_one_target():
    with Hub(packed(), slow=100000) as hub, Room() as r:
        a = r.start(hub)
        time.sleep(1)
        err = r.run(hub, "--no-wait", expect=1)[2]
        must("process %d on " % a.pid in err, err)
        b = r.start(hub)
        time.sleep(0.5)
        hub.slow = 0
        results = [p.communicate(timeout=60) + (p.returncode,) for p in (a, b)]
        same("exits", [x[2] for x in results], [0, 0])
        must(b"waiting" in results[1][1] and b"already" in results[1][1], results[1][1])
        r.complete(packed())


def prepare(arguments):
    global KILLS
    KILLS = arguments.kills


if __name__ == "__main__":
    sys.exit(harness.main({"kills": KILLS}, prepare))
