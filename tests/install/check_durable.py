#!/usr/bin/env python3
"""Power cuts, and disks that fill up, fail, vanish or are slow, under downloads, conversions and repairs.

A library between the program and the disk (disk_layer.c) writes down every change and every sync; power_cut.py makes of that
what a disk may hold after a crash at any point. From a sample of these states the program has to come to the right container.

usage: check_durable.py PROGRAM [--states N] [--only WORD] [--seed N] [--times]
  --states N   crash states of each scenario (default 16)
The last line says "N passed, N failed, N skipped".
"""
import atexit
import concurrent.futures
import errno
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import harness  # noqa: E402
import power_cut  # noqa: E402
from fake_hub import Hub  # noqa: E402
from harness import (CASES, QUICK, Room, Skip, big_source, by_itself, check, converted, must, packed, peak_of, raw,  # noqa: E402
                     same, sanitized, spoil, swiftlet, tree, wait_for, with_extra)

STATES, SEED, LAYER = 16, 1, None


def layered(r, **more):
    """The environment of a run over the layer."""
    return dict(LD_PRELOAD=LAYER, DISK_ROOT=os.path.dirname(r.out), **{k: str(v) for k, v in more.items()})


class Place(Room):
    """A room whose container lies in a folder of its own, which is the disk."""

    def __init__(self):
        super().__init__()
        self.disk = os.path.join(self.dir, "disk")
        os.mkdir(self.disk)
        self.out = os.path.join(self.disk, "out.qpack")

    def log(self):
        return os.path.join(self.dir, "log")


# ---- power cuts -----------------------------------------------------------------------------------------------------------------

def points(records, n, rng):
    """Where to cut: half of them beside syncs and changes of entries, where the states differ most, half anywhere."""
    edges = [i + d for i, x in enumerate(records) if x[0] in "SRUC" for d in (0, 1)]
    some = rng.sample(edges, min(len(edges), n // 2)) + [rng.randrange(len(records) + 1) for _ in range(n - n // 2)]
    return sorted(some)


def states(records, disk, n, rng):
    at = 0
    for k, point in enumerate(points(records, n, rng)):
        for record in records[at:point]:
            disk.step(record)
        at = point
        how = power_cut.WAYS[k % len(power_cut.WAYS)]
        yield point, how, disk.crash(how, rng)


def cut_power(start, run, resume, judge, clock=0):
    """start(place): what the disk holds before; run(place, environment): the run that is cut; resume(place): afterwards."""
    rng = random.Random(SEED)
    with Place() as p:
        start(p)
        disk = power_cut.Disk(p.disk)
        run(p, layered(p, DISK_LOG=p.log(), DISK_CLOCK=clock))
        judge(p)
        records = power_cut.read_log(p.log())

    def one(state):
        point, how, content = state
        with Place() as p:
            power_cut.put(content, p.disk)
            try:
                resume(p)
                judge(p)
            except (AssertionError, subprocess.SubprocessError, OSError) as e:
                raise AssertionError("cut before record %d of %d, %s reached the disk: %s" % (point, len(records), how, e))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(one, s) for s in states(records, disk, STATES, rng)]:
            done.result()


PART = ("--part-size", "65536")


@check
def power_cuts_of_a_pull():
    with Hub(packed()) as hub:
        cut_power(lambda p: None, lambda p, env: p.run(hub, *PART, **env), lambda p: p.run(hub, *PART),
                  lambda p: p.complete(packed()))


@check
def power_cuts_of_a_conversion_that_is_pulled():
    files = raw("q35moe-a-mlx4")
    want = converted(files)
    with Hub(files) as hub:
        cut_power(lambda p: None, lambda p, env: p.run(hub, *PART, **env), lambda p: p.run(hub, *PART),
                  lambda p: p.complete(want))


@check
def power_cuts_of_a_replacement():
    """Old or new, never neither."""
    new = {**packed(), "tokenizer_config.json": b'{"chat_template": "new"}'}
    hashes = json.loads(new["hashes.json"])
    hashes["files"]["tokenizer_config.json"] = hashlib.sha256(new["tokenizer_config.json"]).hexdigest()
    new["hashes.json"] = json.dumps(hashes).encode()
    with Hub(packed()) as old_hub, Hub(new) as hub:
        def resume(p):
            must(tree(p.out) in (packed(), new), "neither old nor new")
            p.run(hub, *PART, "--replace")

        cut_power(lambda p: p.run(old_hub), lambda p, env: p.run(hub, *PART, "--replace", **env), resume,
                  lambda p: same("new", tree(p.out) == new, True))


@check
def power_cuts_of_a_repack():
    source = os.path.join(CASES, "q35moe-a-mlx4")
    with Room() as r:
        r.run(None, command="repack", source=source)
        want = tree(r.out)

    def repack(p, env=None):
        if not os.path.exists(p.out):
            p.run(None, command="repack", source=source, **(env or {}))

    cut_power(lambda p: None, repack, repack, lambda p: p.complete(want), clock=3000)


@check
def power_cuts_of_a_repair():
    spoiled = ("packed_experts/layer_01.bin", "config.json", "manifest.json")
    with Hub(packed()) as hub:
        def start(p):
            p.run(hub)
            for name in spoiled:
                spoil(p, name, 0, b"spoiled")

        def repair(p, env=None):
            swiftlet(p, hub, "verify", p.out, "--repair", "--yes", *QUICK, **(env or {}))

        def judge(p):
            same("repaired", tree(p.out) == packed(), True)
            same("left", [x for x in os.listdir(p.out) if x == ".repair"], [])

        cut_power(start, repair, repair, judge)


@check
def what_was_ended_before_its_last_rename_is_hashed_and_not_fetched():
    for files, want in ((packed(), packed()), (raw("q35moe-a-mlx4"), converted(raw("q35moe-a-mlx4")))):
        for spoil in False, True:
            with Hub(files) as hub, Place() as p:
                p.run(hub)
                os.rename(p.out, p.out + ".partial")
                if spoil:
                    with open(p.out + ".partial/packed_experts/layer_01.bin", "r+b") as f:
                        f.write(b"spoiled")
                n = len(hub.requests)
                p.run(hub)
                p.complete(want)
                fetched = {x.split("?")[0].rsplit("/", 1)[1] for name, _, x, _ in hub.requests[n:] if name == "cdn"}
                must(fetched if spoil else not fetched, "fetched", fetched)
                must(files is raw or "layer_00.bin" not in fetched, "fetched", fetched)


# ---- disks with faults ----------------------------------------------------------------------------------------------------------

@functools.lru_cache(None)
def kinds():
    """(name, a hub's files or None, arguments of Room.run, what must come out)"""
    source = os.path.join(CASES, "q35moe-a-mlx4")
    with Room() as r:
        r.run(None, command="repack", source=source)
        repacked = tree(r.out)
    return (("pull", packed(), dict(), packed()), ("conversion", raw("q35moe-a-mlx4"), dict(), converted(raw("q35moe-a-mlx4"))),
            ("repack", None, dict(command="repack", source=source), repacked))


def under_fault(fault, exits, words, again=0):
    """Every kind of run ends with a clear error and without a result; the next one, on a sound disk, has the right bytes."""
    for name, files, how, want in kinds():
        with Hub(files or {}) as hub, Place() as p:
            parts = PART if files else ()
            clock = {} if files else dict(DISK_CLOCK=3000)
            try:
                code, _, err = p.run(hub, *parts, expect=None, **how, **layered(p, DISK_FAULT=fault, **clock))
                must(code in exits and any(w in err for w in words), "exit", code, err)
                p.nothing()
                sent = hub.n_sent
                p.run(hub, *parts, **how)
                p.complete(want)
                if files:
                    must(hub.n_sent <= sum(map(len, files.values())) + again + (1 << 20), "sent", sent, "and", hub.n_sent - sent)
            except AssertionError as e:
                raise AssertionError("%s, fault %s: %s" % (name, fault, e))


@check
def a_full_disk():
    for at in 0, 30000, 700000, 1200000:
        under_fault("write:%d:%d" % (errno.ENOSPC, at), (4,), ("space",))
    under_fault("write:%d:500000" % errno.EDQUOT, (4,), ("quota",))


@check
def a_disk_that_vanishes():
    for at in 0, 400000, 1200000:
        under_fault("all:%d:%d" % (errno.EIO, at), (1,), ("Input/output error",))


@check
def a_disk_that_becomes_read_only():
    for at in 0, 400000:
        under_fault("change:%d:%d" % (errno.EROFS, at), (1,), ("Read-only",))


@check
def a_sync_that_fails_once():
    """Pages that could not be written are gone, and the next sync says nothing of it."""
    for at in 0, 1, 2, 5, 9:
        under_fault("sync:%d:%d:1" % (errno.EIO, at), (1,), ("durable",))


# ---- slow disks -----------------------------------------------------------------------------------------------------------------

@check
def memory_is_bounded_when_the_disk_is_slower_than_the_network():
    if sanitized():
        raise Skip("a sanitizer's library must come first")
    for files in with_extra(60), big_source(24):
        with Hub(files) as hub, Place() as p:
            peak = peak_of(p, hub, "--streams", "8", "--part-size", "8M", **layered(p, DISK_RATE=40 << 20))
            must(peak < 60, "it took", peak, "MiB")


def interrupted(p, hub, sign, *command, rate=4 << 20):
    """SIGINT once the program has printed `sign`; it must be gone within a second, and say 130."""
    run = subprocess.Popen([harness.PROGRAM, *command], env=p.environment(hub, **layered(p, DISK_READ_RATE=rate)),
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if sign:
        for line in run.stdout:
            if sign in line:
                break
    time.sleep(0.3)
    begin = time.time()
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    must(time.time() - begin < 1.0, "took", time.time() - begin)
    same("exit", run.returncode, 130)


@by_itself
def a_signal_stops_what_hashes_and_repairs_big_files():
    files = with_extra(12)  # three seconds of reading, each time
    source = os.path.join(CASES, "q35moe-a-mlx4")
    with Hub(files) as hub, Place() as p:
        interrupted(p, hub, b'"verify"', "pull", "org/name", "--local-dir", p.out, "--json", *QUICK)
        p.nothing()
        p.run(hub)
        p.complete(files)
        interrupted(p, hub, b"", "verify", p.out)
        spoil(p, "extra.bin")
        n = len(hub.requests)
        run = subprocess.Popen([harness.PROGRAM, "verify", p.out, "--repair", "--yes", *QUICK], stdin=subprocess.DEVNULL,
                               env=p.environment(hub, **layered(p, DISK_READ_RATE=4 << 20)), stderr=subprocess.PIPE)
        wait_for(lambda: any("extra.bin" in path for _, _, path, _ in list(hub.requests[n:])))
        time.sleep(0.5)  # it has come, and is hashed
        begin = time.time()
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30)
        must(time.time() - begin < 1.0 and run.returncode == 130, "took", time.time() - begin, "exit", run.returncode)
        swiftlet(p, hub, "verify", p.out, "--repair", "--yes", *QUICK)
        p.complete(files)
        shutil.rmtree(p.out)
        shutil.copytree(source, os.path.join(p.disk, "source"))
        interrupted(p, None, b"", "repack", os.path.join(p.disk, "source"), "--output", p.out, rate=500000)
        p.nothing()


# ---- the frame ------------------------------------------------------------------------------------------------------------------

def build_layer(d):
    global LAYER
    LAYER = os.path.join(d, "disk_layer.so")
    p = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", LAYER, os.path.join(HERE, "disk_layer.c"), "-ldl", "-lpthread"],
                       capture_output=True)
    if p.returncode:
        raise SystemExit("the layer does not build: %s" % p.stderr.decode())


def prepare(arguments):
    global STATES, SEED
    STATES, SEED = arguments.states, arguments.seed
    d = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, d, ignore_errors=True)
    build_layer(d)


if __name__ == "__main__":
    sys.exit(harness.main({"states": STATES, "seed": SEED}, prepare))
