#!/usr/bin/env python3
"""Runs every test of the project and sums them; see ../check for the set-up.

Steps, in this order, each reported on its own line with its count and time:
  build NAME, ctest NAME     presets debug and asan; counts come from ctest's JUnit report
  the rows of checks.list
  fuzz NAME                  every tests/fuzz/fuzz_NAME.c, FUZZ_SECONDS each or a third of it, one for each processor at a time;
                             with libFuzzer where clang is, else with the driver's own mutations in the asan build
Logs go to build/check/. A build that fails counts as one failure, and what needs it is not run.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build", "check")
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 1))
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
COUNT = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")

# What reads files from elsewhere first is fuzzed for all of FUZZ_SECONDS, the others for a third of it.
FUZZ_LONG = ("config", "qpack", "safetensors", "tokenizer")

total = [0, 0, 0]  # passed, failed, skipped


def run(name, command, env=None, shell=False):
    """Exit status, and the path of a log with everything that it printed."""
    log = os.path.join(LOGS, re.sub(r"[^A-Za-z0-9]+", "-", name) + ".log")
    with open(log, "wb") as f:
        p = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, shell=shell,
                           env=dict(os.environ, **(env or {})))
    return p.returncode, log


def lines(log):
    with open(log, errors="replace") as f:
        return f.read().splitlines()


def report(name, counts, seconds, log):
    for i in range(3):
        total[i] += counts[i]
    print("%-24s %5d passed %3d failed %3d skipped  %6.1f s" % (name, *counts, seconds), flush=True)
    if counts[1]:
        print("\n".join("    " + s for s in lines(log)[-40:]))
        print("    (all of it: %s)" % os.path.relpath(log, ROOT), flush=True)


def build(preset):
    begin = time.time()
    # The debug presets leave the chat page out, to be quick; here the debug build has it, for the check "page".
    page = ["-D", "SWL_WEB=AUTO"] if preset == "debug" else []
    rc, log = run("configure " + preset, ["cmake", "--preset", preset, *page])
    if not rc:
        rc, log = run("build " + preset, ["cmake", "--build", "--preset", preset, "-j", str(JOBS)])
    report("build " + preset, (int(not rc), int(bool(rc)), 0), time.time() - begin, log)
    return not rc


def ctest(preset):
    begin = time.time()
    junit = os.path.join(LOGS, "ctest-%s.xml" % preset)
    if os.path.exists(junit):
        os.remove(junit)
    rc, log = run("ctest " + preset, ["ctest", "--preset", preset, "-j", str(JOBS), "--timeout", "900",
                                      "--no-tests=error", "--output-junit", junit])
    counts = [0, 1, 0]
    if os.path.exists(junit):
        suite = ElementTree.parse(junit).getroot()
        n, failed = int(suite.get("tests")), int(suite.get("failures"))
        skipped = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
        counts = [n - failed - skipped, failed, skipped]
        counts[1] += int(bool(rc) and not failed)  # ctest itself had something to complain about
    report("ctest " + preset, counts, time.time() - begin, log)


def listed_checks():
    with open(os.path.join(ROOT, "tests", "checks.list")) as f:
        for row in f:
            if row.strip() and not row.startswith("#"):
                name, command = row.split("|", 1)
                yield name.strip(), command.strip()


def check(name, command):
    begin = time.time()
    env = {"BUILD": os.path.join(ROOT, "build", "debug"), "ASAN": os.path.join(ROOT, "build", "asan"),
           "PYTHON": sys.executable}
    rc, log = run(name, command, env, shell=True)
    said = COUNT.match((lines(log) or [""])[-1].strip())
    counts = [int(g or 0) for g in said.groups()] if said else [int(not rc), int(bool(rc)), 0]
    counts[1] += int(bool(rc) and not counts[1])
    report(name, counts, time.time() - begin, log)


def fuzz_seconds(name):
    return FUZZ_SECONDS if name in FUZZ_LONG else (FUZZ_SECONDS + 2) // 3


def guided(name, scratch, corpus):
    """libFuzzer; what it finds goes to a scratch folder, so that the tree stays as it is."""
    return [os.path.join(ROOT, "build", "fuzz", "tests", "fuzz_" + name), scratch, corpus, "-timeout=10",
            "-max_total_time=%d" % fuzz_seconds(name), "-rss_limit_mb=2048", "-print_final_stats=1",
            "-artifact_prefix=" + os.path.join(LOGS, "crash-%s-" % name)]


def unguided(name, scratch, corpus):
    """The plain driver, for compilers without libFuzzer."""
    return [os.path.join(ROOT, "build", "asan", "tests", "fuzz_" + name), "--seconds", str(fuzz_seconds(name)), corpus]


def fuzz_one(name, command):
    begin = time.time()
    scratch = os.path.join(ROOT, "build", "fuzz", "work", name)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    rc, log = run("fuzz " + name, command(name, scratch, os.path.join(ROOT, "tests", "fuzz", "corpus", name)))
    return name, rc, time.time() - begin, log


def have_libfuzzer():
    p = subprocess.run(["clang", "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", "/dev/null"], stderr=subprocess.DEVNULL,
                       input=b"int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return p && n; }",
                       check=False) if shutil.which("clang") else None
    return p is not None and not p.returncode


def fuzz(asan_is_built):
    folder = os.path.join(ROOT, "tests", "fuzz")
    names = sorted(f[5:-2] for f in os.listdir(folder) if f.startswith("fuzz_") and f.endswith(".c"))
    command = guided if have_libfuzzer() else unguided
    if not (build("fuzz") if command is guided else asan_is_built):
        return
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for name, rc, seconds, log in pool.map(lambda name: fuzz_one(name, command), names):
            report("fuzz " + name, (int(not rc), int(bool(rc)), 0), seconds, log)


def main():
    os.makedirs(LOGS, exist_ok=True)
    built = {preset: build(preset) for preset in ("debug", "asan")}
    for preset in built:
        if built[preset]:
            ctest(preset)
    if all(built.values()):
        for name, command in listed_checks():
            check(name, command)
    fuzz(built["asan"])
    print("%d passed, %d failed, %d skipped" % tuple(total))
    sys.exit(1 if total[1] or not total[0] else 0)


main()
