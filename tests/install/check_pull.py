#!/usr/bin/env python3
"""Pulls from a hub that misbehaves (fake_hub.py) and checks what is there afterwards, byte by byte.

usage: check_pull.py PROGRAM [--kills N] [--only WORD]
  --kills N    SIGKILLs at random moments of a pull, of a conversion by pull, and of a repack (default 34 each)
  --only WORD  the checks with WORD in their names
The last line says "N passed, N failed, N skipped".
"""
import atexit
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_formats  # noqa: E402
import check_gguf  # noqa: E402
import certificates  # noqa: E402
import fake_hub  # noqa: E402
import harness  # noqa: E402
from fake_hub import Hub, read_dir  # noqa: E402
from harness import (CASES, QUICK, TOKEN, Room, Skip, big_source, by_itself, check, converted, listing, make_dir,  # noqa: E402
                     making, must, packed, peak_of, plan_of, raw, same, sanitized, spoil, swiftlet, tree, wait_for, with_extra)

KILLS, MEBIBYTES = 34, 64


# ---- the ordinary ---------------------------------------------------------------------------------------------------------

@check
def a_container_comes_from_a_hub_as_it_is():
    with Hub(packed(), no_range_400=True) as hub, Room() as r:
        _, out, err = r.run(hub)
        same("result line", out, r.out + "\n")
        r.complete(packed())
        state = json.load(open(os.path.join(r.out, ".swiftlet-install.json")))
        same("record", (state["source"], state["commit"], state["complete"], state["kind"]), ("org/name", hub.commit, True, "hub"))
        _, out, err = r.run(hub)
        must("already installed" in err, err)


@check
def a_container_comes_from_a_mirror_and_from_a_directory():
    with Hub(packed()) as hub, Room() as r, Room() as other:
        r.run(hub, source=hub.mirror)
        r.complete(packed())
        plan = plan_of(other, None, source=r.out)
        same("plan", (plan["local"], plan["kind"], {f["action"] for f in plan["files"]}), (True, "qpack", {"copy"}))
        err = other.run(None, source=r.out)[2]
        must("copied in" in err and "received" not in err, err)
        other.complete(packed())
        must("already installed" in other.run(None, source=r.out)[2])
        os.utime(os.path.join(r.out, "config.json"), (1, 1))  # hashes.json says what it holds
        must("already installed" in other.run(None, source=r.out)[2])
        make_dir(r, packed("q35moe-c"), "new.qpack")
        shutil.rmtree(r.out)
        os.rename(os.path.join(r.dir, "new.qpack"), r.out)
        must("another version" in other.run(None, source=r.out, expect=2)[2])
        other.run(None, "--replace", source=r.out)
        other.complete(packed("q35moe-c"))


@check
def a_mirror_that_has_something_else_now_is_noticed():
    for before, after in (packed(), packed("q35moe-c")), (raw("q35moe-a-mlx4"), raw("q35moe-a-mlx8")):
        with Hub(before) as hub, Room() as r:
            r.run(hub, source=hub.mirror)
            must("already installed" in r.run(hub, source=hub.mirror)[2])
            hub.files = after
            must("another version" in r.run(hub, source=hub.mirror, expect=2)[2])
            r.run(hub, "--replace", source=hub.mirror)


@check
def a_conversion_on_this_machine_is_planned_known_again_and_waited_for():
    gguf = os.path.join("Big-Q8_0.gguf")
    with Room() as r:
        make_dir(r, gguf_file(), "file")
        for source, kind in (os.path.join(CASES, "q35moe-a"), "hf"), (os.path.join(CASES, "q35moe-a-mlx4"), "mlx"), \
                (os.path.join(r.dir, "file", gguf), "gguf"):
            for command in "pull", "repack":
                plan = plan_of(r, None, source=source, command=command)
                same("plan", (plan["local"], plan["kind"], plan["bytes_total"]), (True, kind, sum(f["size"] for f in plan["files"])))
                same("left", [x for x in os.listdir(r.dir) if x.startswith("out")], [])
            err = r.run(None, source=source)[2]
            must("converted in" in err and "received" not in err, err)
            size = sum(len(d) for n, d in tree(r.out).items() if n.endswith((".bin", ".safetensors")))
            same("planned bytes", plan["result_bytes"], size)
            must("already installed" in r.run(None, source=source)[2])
            must("this very conversion" in r.run(None, source=source, command="repack", expect=2)[2])
            r.run(None, "--bits", "8", source=source, expect=2 if kind == "hf" else 0)
            shutil.rmtree(r.out)
    with Room() as r:
        os.mkdir(r.out + ".partial")
        for name, text in (".swiftlet-install.json", "{}\n"), (".swiftlet-owner", "process 4711 on elsewhere\n"):
            open(os.path.join(r.out + ".partial", name), "w").write(text)
        source = os.path.join(CASES, "q35moe-a")
        fd = os.open(r.out + ".partial", os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        for command in "pull", "repack":
            err = r.run(None, "--no-wait", source=source, command=command, expect=1)[2]
            must("process 4711 on elsewhere" in err, err)
        waiting = [r.start(None, source=source, command=command) for command in ("repack", "repack", "pull")]
        for p in waiting:  # until it has said so
            must(any(b"4711" in line for line in iter(p.stderr.readline, b"")), "waits for nobody")
        os.close(fd)
        ends = [(p.communicate(timeout=120)[1], p.returncode) for p in waiting]
        same("exits", [code for _, code in ends], [0, 0, 0])
        r.complete(converted_here(source))


def converted_here(source):
    with Room() as r:
        r.run(None, source=source, command="repack")
        return tree(r.out)


@check
def a_mirror_that_hides_lengths_or_knows_no_ranges_serves():
    for switches in dict(ignore_range=True), dict(ignore_range=True, cut_once=70000, cut_once_times=2):
        n = switches.pop("cut_once_times", 0)
        with Hub(packed(), **switches) as hub, Room() as r:
            hub.cut_once_times = n
            r.run(hub, source=hub.mirror)
            r.complete(packed())


@check
def a_mirror_without_hashes_gives_a_warning_or_is_refused():
    files = packed()
    del files["hashes.json"]
    with Hub(files) as hub, Room() as r:
        r.run(hub, "--require-hashes", source=hub.mirror, expect=3)
        r.nothing()
        err = r.run(hub, source=hub.mirror)[2]
        must("no hashes.json" in err, err)
        r.complete(files)


@check
def wrong_hashes_are_noticed():
    files = packed()
    files["hashes.json"] = files["hashes.json"].replace(hashlib.sha256(files["config.json"]).hexdigest().encode(), b"0" * 64)
    with Hub(files) as hub, Room() as r:
        err = r.run(hub, source=hub.mirror, expect=3)[2]
        must("config.json" in err, err)
        r.nothing()


@check
def the_digest_of_hashes_json_pins_the_container():
    digest = hashlib.sha256(packed()["hashes.json"]).hexdigest()
    with Hub(packed()) as hub, Room() as r:
        r.run(hub, "--sha256", "0" * 64, source=hub.mirror, expect=3)
        r.nothing()
        r.run(hub, "--sha256", digest, source=hub.mirror)
        r.complete(packed())


@check
def checkpoints_are_converted_as_from_disk():
    for case in ("q35moe-a", "next-b", "q35moe-c-mlx5g32s", "golden-next-moe"):
        want = converted(raw(case))
        for options in ["--streams", "1"], ["--streams", "8", "--part-size", "64K"]:
            with Hub(raw(case)) as hub, Room() as r:
                r.run(hub, *options)
                r.complete(want)


@check
def a_checkpoint_comes_from_a_mirror():
    for case in ("q35moe-a-mlx4", "q35moe-c"):
        with Hub(raw(case)) as hub, Room() as r:
            r.run(hub, source=hub.mirror)
            found = tree(r.out)
            want = converted(raw(case))
            for name in want:
                if name not in ("swiftlet.json", "hashes.json", "manifest.json"):  # these name the source
                    must(found[name] == want[name], name)


@check
def conversion_is_deterministic_under_breaks():
    """Where it breaks off is a number of bytes; a machine that is busy makes it slower, and no answer counts as a stalled one."""
    files = raw("q35moe-c")
    shards = [len(data) for name, data in files.items() if name.startswith("model-")]
    want = converted(files, "--bits", "8")
    for cut, streams in (40000, "4"), (77777, "1"):
        with Hub(files, cut=cut) as hub, Room() as r:
            r.run(hub, "--bits", "8", "--streams", streams, "--stall", "90s")
            r.complete(want)
            n = sum(name == "cdn" for name, _, _, _ in hub.requests)
            must(n >= sum(-(-size // cut) for size in shards), "only", n, "answers, so they did not break off")


@check
def a_dry_run_says_what_would_be_done_and_leaves_nothing():
    for files in (packed(), raw("q35moe-a")):
        with Hub(files) as hub, Room() as r:
            plan = json.loads(r.run(hub, "--dry-run", "--json")[1].splitlines()[-1] if files is None else
                              [x for x in r.run(hub, "--dry-run", "--json")[1].splitlines() if '"plan"' in x and '"files"' in x][0])
            sizes = {f["path"]: f["size"] for f in plan["files"]}
            for name, size in sizes.items():
                same(name, size, len(files[name]))
            same("commit", plan["commit"], hub.commit)
            must(plan["result_bytes"] > 0 and plan["disk_free"] > 0)
            same("left", [x for x in os.listdir(r.dir) if x.startswith("out")], [])


@check
def json_events_are_one_object_a_line():
    with Hub(packed(), slow=3000000) as hub, Room() as r:
        events = [json.loads(line) for line in r.run(hub, "--json")[1].splitlines()]
        same("first key", {list(e)[0] for e in events}, {"version"})
        kinds = [e["event"] for e in events]
        must("plan" in kinds and kinds[-1] == "done" and "progress" in kinds, kinds)
        same("received", events[-1]["bytes_received"], sum(len(d) for n, d in packed().items()
                                                           if n not in ("manifest.json", "hashes.json")))


@check
def a_conversion_takes_the_options_of_repack():
    files = raw("next-a")
    with Hub(files) as hub, Room() as r:
        for options in (["--recipe", "mixed_4_6"], ["--quantiser", "minmax"], ["--bits", "8", "--group", "32"]):
            r.run(hub, "--replace", *options)
            r.complete(converted(files, *options))
            must("already installed" in r.run(hub, *options)[2], "not known again with", options)
            must("other options" in r.run(hub, expect=2)[2], "taken for the default with", options)
        spoil(r, "packed_experts/layer_00.bin")
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        r.complete(converted(files, *options))
        r.run(hub, "--recipe", "mixed_9_9", expect=2)
    with Hub(raw("q35moe-a-mlx4")) as hub, Room() as r:  # quantised already: nothing to choose
        r.run(hub, "--bits", "8")
        r.complete(converted(raw("q35moe-a-mlx4")))
        must("already installed" in r.run(hub)[2])


def fp8_files():
    c, more, fp8, plain = check_formats.fp8_model()
    names = sorted(fp8)  # a scale may lie in another shard than its weight
    parts = [{n: fp8[n] for n in names[i::2]} for i in (0, 1)]
    shards = ["model-%05d-of-00002.safetensors" % (i + 1) for i in (0, 1)]
    files = {shard: check_formats.raw_file(part) for shard, part in zip(shards, parts)}
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": {
        n: shard for shard, part in zip(shards, parts) for n in part}}).encode()
    files["config.json"] = json.dumps({**c, **more}).encode()
    plain = {"config.json": json.dumps(c).encode(), "model.safetensors": check_formats.raw_file(plain)}
    return files, plain


@check
def an_fp8_original_is_converted_as_from_disk():
    files, plain = fp8_files()
    want, same_numbers = converted(files), converted(plain)
    for name in same_numbers:
        if name.endswith(".bin") or name == "model.safetensors":
            must(want[name] == same_numbers[name], name, "differs from the same numbers in float32")
    for switches in dict(), dict(cut=300000, expire=2), dict(flip={"model-00002-of-00002.safetensors": (90000, 1)}):
        with Hub(files, **switches) as hub, Room() as r:
            r.run(hub, "--part-size", "256K")
            r.complete(want)
    with Hub(files, slow=3000000) as hub, Room() as r:
        p = r.start(hub, "--part-size", "256K")
        wait_for(lambda: hub.n_sent > 1500000)
        p.send_signal(signal.SIGKILL)
        p.communicate()
        sent, hub.slow = hub.n_sent, 0
        plan = plan_of(r, hub)
        must(0 < plan["bytes_left"] < plan["bytes_total"], "bytes left after a kill", plan["bytes_left"])
        r.run(hub, "--part-size", "256K")
        r.complete(want)
        all_bytes = sum(map(len, files.values()))
        must(hub.n_sent < sent + all_bytes - 200000, "sent anew", hub.n_sent - sent, "of", all_bytes)


_ggufs = {}
AHEAD = (4 << 20) // 4  # floats in the first piece of a GGUF file that is fetched as its header, so that no weight is


def gguf_file(split=0):
    """A model of four layers in a GGUF file, or in parts of so many tensors: names and bytes."""
    if split not in _ggufs:
        c, W = check_gguf.big_model(np.random.default_rng(3))
        with tempfile.TemporaryDirectory() as d:
            check_gguf.gf.write(os.path.join(d, "Big-Q8_0.gguf"), c, W, check_gguf.q8_or_f16, np.random.default_rng(4), split=split,
                                ahead=AHEAD)
            _ggufs[split] = read_dir(d)
    return dict(_ggufs[split])


@check
def a_gguf_file_comes_from_a_hub():
    files, other = gguf_file(), {"Big-Q4_0.gguf": b"GGUF" + bytes(100), "mmproj-F16.gguf": b"GGUF", "README.md": b"text",
                                 "config.json": b"{}"}
    want = converted(files, source="Big-Q8_0.gguf")
    with Hub({**files, **other}, no_range_400=True) as hub, Room() as r:
        plan = plan_of(r, hub, source="org/name:Big-Q8_0.gguf")
        same("plan", (plan["kind"], [f["path"] for f in plan["files"]], plan["bytes_total"]),
             ("gguf", ["Big-Q8_0.gguf"], len(files["Big-Q8_0.gguf"])))
        margin = max(1 << 30, plan["result_bytes"] // 100)
        same("disk needed", plan["disk_needed"], plan["result_bytes"] + margin)
        same("with the source", plan_of(r, hub, "--keep-source", source="org/name:Big-Q8_0.gguf")["disk_needed"],
             plan["bytes_total"] + plan["result_bytes"] + margin)
        r.run(hub, source="org/name:Big-Q8_0.gguf")
        r.complete(want)
        for name in "org/name:Big-Q8_0.gguf", "hf://org/name@main:Big-Q8_0.gguf", "org/name:q8_0", hub.url + "/org/name/blob/main/Big-Q8_0.gguf", \
                hub.url + "/org/name/resolve/main/Big-Q8_0.gguf?download=true":
            must("already installed" in r.run(hub, source=name)[2], "not known as", name)
        err = r.run(hub, expect=2)[2]
        must("Big-Q8_0.gguf (0.0 GB)" in err and "Big-Q4_0.gguf" in err and "mmproj" not in err, err)
        must("Big-Q8_0.gguf" in r.run(hub, source="org/name:Q5_K_M", expect=3)[2])
        r.run(hub, source="org/name:../x.gguf", expect=2)
        r.run(hub, "--replace", source="org/name:Big-Q4_0.gguf", expect=6)
        r.complete(want)
        spoil(r, "packed_experts/layer_01.bin")
        swiftlet(r, hub, "verify", r.out, "--repair", "--yes", *QUICK)
        r.complete(want)
    with Hub({**files, "README.md": b"text"}) as hub, Room() as r, Room() as mirror, Room() as cached:
        r.run(hub)  # the only one
        r.complete(want)
        mirror.run(hub, source=hub.mirror + "Big-Q8_0.gguf")
        same("bytes of a mirror's", tree(mirror.out)["model.safetensors"], want["model.safetensors"])
        mirror.run(hub, "--replace", source=hub.mirror + "Big-Q9.gguf", expect=3)
        fill_cache(cached, files)
        cached.run(hub, "--offline", source="org/name:Big-Q8_0.gguf")
        cached.complete(want)
        n = len(hub.requests)
        cached.run(hub, "--keep-source", "--replace", "--scales", "f32", source="org/name:Big-Q8_0.gguf")
        cached.run(hub, "--replace", source="org/name:Big-Q8_0.gguf")
        cached.complete(want)
        must(sum(x[0] == "cdn" for x in hub.requests[n:]) <= 4, "fetched what the cache has")


@check
def gguf_files_of_every_form_are_converted_as_from_disk():
    for name, case, kind, more in check_gguf.FILES:
        rng = np.random.default_rng(5)
        c, W = check_gguf.big_model(rng) if case is None else check_gguf.nf.load(os.path.join(CASES, case))
        with tempfile.TemporaryDirectory() as d:
            check_gguf.gf.write(os.path.join(d, name + ".gguf"), c, W, kind, rng, ahead=AHEAD, **more)
            files = read_dir(d)
        options = ["--bits", "8", "--group", "32"] if kind("output.weight") in (0, 1, 30) else []
        with Hub(files) as hub, Room() as r:
            r.run(hub, "--streams", "3", "--part-size", "64K", *options, source="org/name:" + sorted(files)[0])
            r.complete(converted(files, *options, source=sorted(files)[0]))


@check
def a_gguf_file_in_parts_comes_whole():
    files = {"q8/" + n: d for n, d in gguf_file(20).items()}
    names = sorted(files)
    must(len(names) > 2, names)
    want = converted(files, source=names[0])
    for asked in names[0], names[-1], "Q8_0":
        with Hub(files) as hub, Room() as r:
            r.run(hub, source="org/name:" + asked)
            r.complete(want)
    with Hub({n: files[n] for n in names[:-1]}) as hub, Room() as r:
        must(names[-1] in r.run(hub, source="org/name:" + names[0], expect=3)[2])
    with Hub({os.path.basename(n): d for n, d in files.items()}) as hub, Room() as r:
        r.run(hub, source=hub.mirror + os.path.basename(names[1]))
        same("bytes of a mirror's", tree(r.out)["model.safetensors"], want["model.safetensors"])


@check
def a_gguf_file_that_breaks_off_goes_on():
    files = gguf_file()
    name, = files
    want = converted(files, source=name)
    for switches in dict(cut=300000, expire=2), dict(flip={name: (900000, 3)}), dict(ignore_range=True):
        with Hub(files, **switches) as hub, Room() as r:
            r.run(hub, "--part-size", "256K", source="org/name:" + name)
            r.complete(want)
    with Hub(files, flip={name: (900000, 1 << 30)}) as hub, Room() as r:
        must("came twice" in r.run(hub, source="org/name:" + name, expect=3)[2])
        r.nothing()
    with Hub(files, slow=3000000) as hub, Room() as r:
        p = r.start(hub, "--part-size", "256K", source="org/name:" + name)
        wait_for(lambda: hub.n_sent > (8 << 20) + 1500000)  # the header, as much that is left out, and then weights
        p.send_signal(signal.SIGKILL)
        p.communicate()
        held = os.stat(os.path.join(r.out + ".partial/.source", name)).st_blocks * 512
        must(held <= (4 << 20) + 65536 < len(files[name]), held, "bytes of the file are kept")
        hub.slow = 0
        plan = plan_of(r, hub, source="org/name:" + name)
        must(0 < plan["bytes_left"] < plan["bytes_total"], "bytes left after a kill", plan["bytes_left"])
        r.run(hub, source="org/name:" + name)
        r.complete(want)


@check
def models_are_called_after_their_gguf_files():
    names = {"org/name:x/Big-Q4_K_M-00001-of-00003.gguf": "org--Big-Q4_K_M.qpack", "org/Big-GGUF:Q4_K_M": "org--Big-Q4_K_M.qpack",
             "hf://org/name@v1:Big.gguf": "org--Big.qpack", "https://huggingface.co/org/name/blob/main/a/Big.GGUF": "org--Big.qpack",
             "https://huggingface.co/org/name": "org--name.qpack", "org/name@v1": "org--name.qpack", "/nowhere/Big.gguf": "Big.qpack",
             "https://host.invalid/a/Big.gguf": "Big.qpack", "https://host.invalid/a/b/": "b.qpack"}
    with Room() as r:
        for source, name in names.items():
            err = swiftlet(r, None, "pull", source, "--offline", expect=None)[1]
            must(name in err or "no directory" in err, source, "gives", err)


@check
def the_source_is_kept_when_asked():
    for files in raw("q35moe-a-mlx4"), fp8_files()[0]:
        with Hub(files) as hub, Room() as r:
            plan = plan_of(r, hub, "--keep-source")
            must(plan["disk_needed"] > plan["result_bytes"] + plan["bytes_total"], plan)
            r.run(hub, "--keep-source")
            r.complete(converted(files))
            kept = read_dir(os.path.join(r.out, ".source"))
            same("kept", sorted(kept), sorted(n for n in files if "reference" not in n))
            must(all(kept[n] == files[n] for n in kept), "what is kept differs")
            swiftlet(r, None, "verify", r.out)
            again = os.path.join(r.dir, "again.qpack")
            swiftlet(r, None, "repack", os.path.join(r.out, ".source"), "--output", again)
            same("bytes of another conversion", read_dir(again)["model.safetensors"], tree(r.out)["model.safetensors"])


# ---- misbehaviour ---------------------------------------------------------------------------------------------------------

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


# ---- tokens ---------------------------------------------------------------------------------------------------------------

def holders(hub):
    return {name for name, _, _, headers in hub.requests if any(TOKEN in str(v) for v in headers.values())}


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


# ---- TLS --------------------------------------------------------------------------------------------------------------------

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


# ---- evil entries ----------------------------------------------------------------------------------------------------------

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


# ---- ends of all kinds -------------------------------------------------------------------------------------------------------

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


# ---- offline and caches ---------------------------------------------------------------------------------------------------------

def fill_cache(r, files, where="hf/hub"):
    base = os.path.join(r.dir, where, "models--org--name")
    snapshot = os.path.join(base, "snapshots", fake_hub.COMMIT)
    for name, data in files.items():
        oid = hashlib.sha256(data).hexdigest()
        for path in (os.path.join(base, "blobs", oid), os.path.join(snapshot, name), os.path.join(base, "refs", "main")):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.path.join(base, "blobs", oid), "wb") as f:
            f.write(data)
        os.symlink(os.path.relpath(os.path.join(base, "blobs", oid), os.path.dirname(os.path.join(snapshot, name))),
                   os.path.join(snapshot, name))
    with open(os.path.join(base, "refs", "main"), "w") as f:
        f.write(fake_hub.COMMIT)


@check
def a_file_in_the_hubs_cache_is_not_fetched():
    with Hub(packed()) as hub, Room() as r:
        spoiled = {**packed(), "packed_experts/layer_03.bin": bytes(len(packed()["packed_experts/layer_03.bin"]))}
        fill_cache(r, spoiled)
        r.run(hub)
        r.complete(packed())
        blobs = {p.split("?")[0] for n, _, p, _ in hub.requests if n == "cdn"}
        must(blobs and all("layer_03" in b for b in blobs), blobs)


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int socket(int domain, int type, int protocol)
{
    int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    FILE *f = domain == AF_INET || domain == AF_INET6 ? fopen(getenv("SHIM_LOG"), "a") : NULL;

    if (f) {
        fputs("socket\n", f);
        fclose(f);
    }
    return real(domain, type, protocol);
}
"""


@check
def offline_opens_no_socket():
    with Hub(packed()) as hub, Room() as r:
        with open(os.path.join(r.dir, "shim.c"), "w") as f:
            f.write(SHIM)
        shim, log = os.path.join(r.dir, "shim.so"), os.path.join(r.dir, "sockets")
        if subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, f.name, "-ldl"], capture_output=True).returncode:
            raise Skip("no compiler for a shim")
        if sanitized():
            raise Skip("a sanitizer's library must come first")
        more = dict(LD_PRELOAD=shim, SHIM_LOG=log)
        err = r.run(hub, "--offline", expect=3, **more)[2]
        must("org/name" in err, err)
        fill_cache(r, raw("q35moe-a-mlx4"))
        r.run(hub, expect=0, HF_HUB_OFFLINE="ON", **more)
        r.complete(converted(raw("q35moe-a-mlx4")))
        r.run(hub, "--offline", **more)
        must(not os.path.exists(log), "a socket was opened")
        shutil.rmtree(r.out)
        r.run(hub, "--dry-run", **more)
        must(os.path.exists(log), "the shim does not count")


# ---- what is installed ----------------------------------------------------------------------------------------------------------

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


@check
def hashes_are_written_for_publishers():
    files = packed()
    with Room() as r:
        out = make_dir(r, {p: d for p, d in files.items() if p != "hashes.json"}, "out.qpack")
        swiftlet(r, None, "verify", "--write-hashes", out)
        hashes = json.load(open(os.path.join(out, "hashes.json")))["files"]
        same("hashes", hashes, {p: hashlib.sha256(d).hexdigest() for p, d in files.items() if p != "hashes.json"})
        swiftlet(r, None, "verify", out)


@check
def models_are_listed_and_removed_by_name():
    with Hub(packed()) as hub, Room() as r:
        more = dict(SWIFTLET_HOME=os.path.join(r.dir, "own"))
        swiftlet(r, hub, "pull", "org/name", **more)
        swiftlet(r, hub, "info", "org/name", **more)
        models = json.loads(swiftlet(r, hub, "ls", "--json", **more)[0])["models"]
        same("models", [(m["name"], m["complete"], m["commit"]) for m in models], [("org/name", True, hub.commit)])
        swiftlet(r, hub, "rm", "org/name", expect=2, **more)
        swiftlet(r, hub, "rm", "../hf", "--yes", expect=3, **more)
        must(os.path.exists(os.path.join(r.dir, "own", "models", "org--name.qpack")))
        swiftlet(r, hub, "rm", "org/name", "--yes", **more)
        same("left", os.listdir(os.path.join(r.dir, "own", "models")), [])


@check
def the_old_spellings_of_repack_work():
    with Hub(packed()) as hub, Room() as r:
        swiftlet(r, hub, "repack", "--from-hf", "org/name", "--output", r.out)
        r.complete(packed())


# ---- bounds ------------------------------------------------------------------------------------------------------------------------

@by_itself
def memory_does_not_grow_with_the_files():
    """Measured: 29 MiB for a conversion, 14 for a copy, whatever the sizes. Sanitizers want more."""
    bound = 250 if sanitized() else 60
    with Hub(big_source(MEBIBYTES)) as hub, Room() as r:
        peak = peak_of(r, hub, "--streams", "8")
        must(peak < bound, "a conversion took", peak, "MiB")
    with Hub(with_extra(MEBIBYTES)) as hub, Room() as r:
        peak = peak_of(r, hub, "--streams", "8", "--part-size", "8M")
        must(peak < bound, "a pull took", peak, "MiB")


def prepare(arguments):
    global KILLS, MEBIBYTES
    KILLS = arguments.kills
    MEBIBYTES = 512 if KILLS > 100 else 64  # of a tensor to be quantised; unoptimised builds take a second for ten


if __name__ == "__main__":
    sys.exit(harness.main({"kills": KILLS}, prepare))
