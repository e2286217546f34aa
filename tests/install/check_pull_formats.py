#!/usr/bin/env python3
"""Pulls of checkpoints in other formats, which are converted on the way: FP8 originals, GGUF files; and sources that are kept.

usage: check_pull_formats.py PROGRAM [--only WORD] [--times]
The last line says "N passed, N failed, N skipped".
"""
import json
import os
import signal
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_formats  # noqa: E402
import check_gguf  # noqa: E402
import harness  # noqa: E402
from fake_hub import Hub, read_dir  # noqa: E402
from harness import (AHEAD, CASES, QUICK, Room, check, converted, fill_cache, gguf_file, must, plan_of, raw, same,  # noqa: E402
                     spoil, swiftlet, tree, wait_for)


# ---- FP8 ------------------------------------------------------------------------------------------------------------------------

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


# ---- GGUF -----------------------------------------------------------------------------------------------------------------------

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


# ---- the source -----------------------------------------------------------------------------------------------------------------

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


if __name__ == "__main__":
    sys.exit(harness.main())
