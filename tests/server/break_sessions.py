#!/usr/bin/env python3
"""Kept conversations that were damaged: servers ended and killed in the middle, files flipped, cut, foreign, exchanged for folders,
a folder that cannot be written, a full drive. The server starts and answers, and what it answers is what it says without any file.

usage: break_sessions.py PROGRAM [--rounds N] [--seed S] [--model DIR]     (a build with sanitizers)
"""
import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import harness
from harness import Server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHAT = "/v1/chat/completions"
TOPICS = ["kindness", "a river", "the moon"]


def question(topic):
    return {"messages": [{"role": "user", "content": "Write a short story about %s. " % topic * 8}], "temperature": 0, "max_tokens": 12}


def damage(r, path):
    size = os.path.getsize(path)
    what = r.randrange(9)
    if what <= 2:
        with open(path, "r+b") as f:
            for _ in range(r.choice([1, 1, 3, 50])):
                f.seek(r.randrange(r.choice([min(64, size), min(4096, size), size])) if size else 0)
                old = f.read(1)
                f.seek(-len(old), 1)
                f.write(bytes([(old[0] if old else 0) ^ (1 << r.randrange(8))]))
    elif what <= 4:
        os.truncate(path, r.choice([0, 1, 7, 8, 63, size // 2, max(size - 1, 0), r.randrange(size + 1)]))
    elif what == 5:
        os.truncate(path, size + r.choice([1, 4096, 1 << 33]))  # a hole
    elif what == 6:
        os.remove(path)
        os.mkdir(path)
    elif what == 7:
        with open(path, "r+b") as f:  # numbers as large as they get
            f.seek(4 * r.randrange(min(size, 400) // 4 + 1))
            f.write(r.choice([b"\xff" * 4, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0" * 8, b"\xff" * 7 + b"\x7f"]))
    else:
        os.remove(path)
        os.symlink(r.choice(["/dev/zero", "/nowhere", path, "/dev/null"]), path)
    return what


def foreign(r, folder):
    """What was never a session."""
    name = os.path.join(folder, r.choice(["README", "x.swls", "a" * 200, ".hidden", "0" * 64, "0" * 64 + ".session", "b\n\xff"]))
    if not os.path.lexists(name):
        r.choice([lambda: open(name, "wb").write(b"\x7f"), lambda: os.mkdir(name), lambda: os.mkfifo(name), lambda: open(name, "wb").write(b"{}")])()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", default=os.path.join(ROOT, "models", "demo.qpack"))
    a = p.parse_args()
    harness.PROGRAM = os.path.abspath(a.program)
    r, passed, failed = random.Random(a.seed), 0, 0
    options = ["--threads", "2", "-c", "512", "--parallel", "2"]

    with tempfile.TemporaryDirectory(prefix="swiftlet-sessions-") as top:
        with Server(*options, model=a.model) as server:
            expected = {t: server.post(CHAT, question(t)).json["choices"][0]["message"] for t in TOPICS}
        good = os.path.join(top, "good")
        with Server(*options, "--session-dir", good, model=a.model) as server:
            for t in TOPICS:
                server.post(CHAT, question(t))
            assert server.stop(signal.SIGTERM) == 0
            server.stop = lambda *_: 0
        files = sorted(os.listdir(good))
        assert files, "nothing was kept"
        print("kept:", len(files), "files of", os.path.getsize(os.path.join(good, files[0])), "bytes")
        for n in range(a.rounds):
            folder = os.path.join(top, "round")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(good, folder)
            done = []
            if n % 4 != 3:
                done = [damage(r, os.path.join(folder, f)) for f in files if r.random() < 0.8]
            if n % 3 == 0:
                foreign(r, folder)
            wrong = []
            server = Server(*options, "--session-dir", folder, model=a.model)
            try:
                for t in TOPICS:
                    answer = server.post(CHAT, question(t))
                    if answer.status != 200 or answer.json["choices"][0]["message"] != expected[t]:
                        wrong.append("%s: %r" % (t, answer))
                if n % 2:  # and it goes away in the middle of something
                    c = server.connect()
                    c.request("POST", CHAT, {**question("ships"), "stream": True, "max_tokens": 200})
                    time.sleep(r.random() * 0.5)
                    number = r.choice([signal.SIGKILL, signal.SIGTERM])
                    server.process.send_signal(number)
                    if number == signal.SIGTERM and r.random() < 0.5:
                        time.sleep(r.random() * 0.3)
                        server.process.kill()
                else:
                    server.process.send_signal(signal.SIGTERM)
                rc = server.process.wait(60)
                said = server.stderr()
                refused = rc == 2 and "could not be saved" in said and "is not a regular file, so it is not replaced" in said
                if (rc not in (0, -signal.SIGKILL) and not refused) or "Sanitizer" in said or "runtime error" in said:
                    wrong.append("it ended with %d: %s" % (rc, said[-5000:]))
            except Exception as e:
                wrong.append("%s: %s, %s" % (type(e).__name__, e, server.stderr()[-3000:]))
            finally:
                server.stop()
            # What it left behind serves the next one.
            try:
                with Server(*options, "--session-dir", folder, model=a.model) as server:
                    t = r.choice(TOPICS)
                    answer = server.post(CHAT, question(t))
                    if answer.status != 200 or answer.json["choices"][0]["message"] != expected[t]:
                        wrong.append("then %s: %r" % (t, answer))
            except Exception as e:
                wrong.append("then %s: %s" % (type(e).__name__, e))
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print("round %d, damage %s:\n  %s" % (n, done, "\n  ".join(wrong)), flush=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
