#!/usr/bin/env python3
"""Pulls from a hub (fake_hub.py), a mirror and a directory as they should go, and checks what is there afterwards, byte by byte.

What goes wrong is in check_pull_breaks.py, who is trusted with what in check_pull_trust.py, FP8 and GGUF sources in
check_pull_formats.py, what is done with containers that are there in check_installed.py.

usage: check_pull.py PROGRAM [--mebibytes N] [--only WORD] [--times]
  --mebibytes N  of the files while whose pull and conversion memory is measured (default 64)
  --only WORD    the checks with WORD in their names
The last line says "N passed, N failed, N skipped".
"""
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import harness  # noqa: E402
from fake_hub import Hub  # noqa: E402
from harness import (CASES, QUICK, Room, Skip, big_source, by_itself, check, converted, fill_cache, gguf_file,  # noqa: E402
                     make_dir, must, packed, peak_of, plan_of, raw, same, sanitized, spoil, swiftlet, tree, with_extra)

MEBIBYTES = 64  # of a tensor to be quantised; unoptimised builds take a second for ten


# ---- the ordinary ---------------------------------------------------------------------------------------------------------------

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


# ---- offline and caches ---------------------------------------------------------------------------------------------------------

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


# ---- old names ------------------------------------------------------------------------------------------------------------------

@check
def the_old_spellings_of_repack_work():
    with Hub(packed()) as hub, Room() as r:
        swiftlet(r, hub, "repack", "--from-hf", "org/name", "--output", r.out)
        r.complete(packed())


# ---- bounds ---------------------------------------------------------------------------------------------------------------------

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
    global MEBIBYTES
    MEBIBYTES = arguments.mebibytes


if __name__ == "__main__":
    sys.exit(harness.main({"mebibytes": MEBIBYTES}, prepare))
