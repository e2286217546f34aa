#!/usr/bin/env python3
"""Builds examples/chat.c as a stranger would, against an installed library, and talks with it: streamed answers, a memory
pressure call, Ctrl-C. What the README shows of it must be lines of it.

usage: check_example.py BUILD_FOLDER
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "demo.qpack")
SOURCE = os.path.join(ROOT, "examples", "chat.c")


def build(work):
    prefix = os.path.join(work, "prefix")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    pc = next(base for base, _, names in os.walk(prefix) if "swiftlet.pc" in names)
    env = dict(os.environ, PKG_CONFIG_PATH=pc)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "swiftlet"], env=env, check=True, stdout=subprocess.PIPE)
    program = os.path.join(work, "chat")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program, SOURCE,
                    *flags.stdout.decode().split(), "-Wl,-rpath," + os.path.dirname(pc)], check=True)
    return program


def conversation(program):
    p = subprocess.run([program, MODEL], input=b"Hello!\nWhat is your name?\n", stdout=subprocess.PIPE, check=True, timeout=120)
    answers = p.stdout.decode().splitlines()
    assert len([a for a in answers if a.strip()]) >= 2, answers


def interrupted(program):
    """A long answer that Ctrl-C ends, after the pool was made small."""
    p = subprocess.Popen([program, MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(b"Tell me a long story about a fox.\n")
    p.stdin.flush()
    assert p.stdout.read(20)
    p.send_signal(signal.SIGUSR1)
    assert p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    begin = time.monotonic()
    p.stdin.close()
    p.stdout.read()
    assert p.wait(60) == 0
    assert time.monotonic() - begin < 20


def missing(program):
    p = subprocess.run([program, "/nowhere"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.returncode == 1 and b"/nowhere" in p.stderr, p


def readme():
    with open(SOURCE) as f:
        lines = {line.strip() for line in f}
    with open(os.path.join(ROOT, "README.md")) as f:
        text = f.read()
    shown = text[text.index("examples/chat.c"):].split("\n\n")[1].splitlines()
    assert len(shown) > 5, shown
    for line in shown:
        assert line.strip() in lines, "README.md shows a line that is not in examples/chat.c: " + line
    for line in lines:  # what an engine cannot do without, which the compiler does not ask for
        assert not line.startswith("chat_engine.") or line in map(str.strip, shown), "README.md leaves out " + line


work = tempfile.mkdtemp()
checks = [conversation, interrupted, missing]
try:
    example = build(work)
    for check in checks:
        check(example)
    readme()
finally:
    shutil.rmtree(work)
print("%d passed, 0 failed, 0 skipped" % (len(checks) + 1))
