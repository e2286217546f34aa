#!/usr/bin/env python3
"""Many clients for a while: everybody is answered, nobody starves, memory stays where it is, who leaves is forgotten at once.

usage: load.py PROGRAM [--seconds N] [--clients N] [--model DIR]     (the program; the model is models/demo.qpack; 600 for a long one)
"""
import argparse
import json
import os
import random
import signal
import statistics
import sys
import threading
import time

import harness
from harness import Connection, Server, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHAT = "/v1/chat/completions"
WARM = 0.4    # of the time, before memory is looked at
GROWTH = 1.02 # of what the process has after that; and
SLACK = 4 << 20
SOON = 3.0    # a second is what is promised; the rest is for machines that are busy with other tests: with those that
SOON_TOKENS = 300 # are so slow or so busy that a client alone needs longer for so many tokens, that long


class Client(threading.Thread):
    """Streams answers until told to stop, counting tokens; sometimes goes away in the middle, when it is one of those."""

    def __init__(self, server, number, leaves=False):
        super().__init__(daemon=True)
        self.server, self.random, self.leaves = server, random.Random(number), leaves
        self.tokens, self.answers, self.left, self.errors, self.stop = 0, 0, 0, [], False

    def run(self):
        """On one connection as long as it is not left; there are as many clients as the server lets in."""
        while not self.stop:
            try:
                with Connection(self.server) as c:
                    c.socket.settimeout(120)
                    while not self.stop and self.once(c):
                        pass
                time.sleep(0.3)
            except Exception as e:
                self.errors.append("%s: %s" % (type(e).__name__, e))

    def once(self, c):
        r = self.random
        c.request("POST", CHAT, {"messages": [{"role": "user", "content": r.choice(["Tell me a story.", "Why is the sky blue?", "Hi! " * 20])}], "stream": True,
                                 "max_tokens": 10, "seed": r.randrange(1000), "temperature": 1, "stream_options": {"include_usage": True}})
        status, _ = c.head()
        if status != 200:
            raise AssertionError("status %d" % status)
        leave = self.leaves and r.random() < 0.5
        text = b""
        while True:
            data = c.chunk()
            if not data:
                break
            text += data
            if leave and b'"content"' in text:
                self.left += 1
                if r.random() < 0.5:
                    c.reset()
                else:
                    c.socket.shutdown(1)
                    while c.socket.recv(65536):
                        pass
                return False
        events = [json.loads(line[6:]) for line in text.decode().split("\n") if line.startswith("data: {")]
        if any("error" in e for e in events) or not text.endswith(b"data: [DONE]\n\n"):
            raise AssertionError("a stream that went wrong: %r" % text[-300:])
        self.tokens += next(e["usage"]["completion_tokens"] for e in events if e.get("usage"))
        self.answers += 1
        return True


def run(server, n, seconds, leaving=0, watch=None):
    clients = [Client(server, i, i < leaving) for i in range(n)]
    begin = time.monotonic()
    for c in clients:
        c.start()
    while time.monotonic() - begin < seconds:
        time.sleep(0.5)
        if watch:
            watch((time.monotonic() - begin) / seconds)
    spent, tokens = time.monotonic() - begin, [c.tokens for c in clients]
    for c in clients:
        c.stop = True
    for c in clients:
        c.join(180)
    return clients, tokens, spent


def rss(pid):
    with open("/proc/%d/statm" % pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--model", default=os.path.join(ROOT, "models", "demo.qpack"))
    a = p.parse_args()
    harness.PROGRAM = os.path.abspath(a.program)
    checks, sizes = [], []

    def expect(condition, what):
        checks.append(bool(condition))
        print(("ok    " if condition else "WRONG ") + what, flush=True)

    n = a.clients
    server = Server("--threads", "2", "-c", "512", "--queue", "64", model=a.model)
    run(server, 1, 2)
    _, one, spent = run(server, 1, 5)
    alone = sum(one) / spent
    _, four, spent = run(server, 4, 5)
    print("      1 client %.0f tokens/s, 4 clients %.0f tokens/s together: %.2f times as many" % (alone, sum(four) / spent, sum(four) / spent / alone))
    soon = max(SOON, SOON_TOKENS / max(alone, 0.1))
    clients, tokens, spent = run(server, n, a.seconds, n // 8, lambda part: sizes.append((part, rss(server.process.pid))))
    steady = [c for c in clients if not c.leaves]
    rates = sorted(c.answers for c in steady)
    median = statistics.median(rates)
    errors = [e for c in clients for e in c.errors]
    print("      %d clients %.0f tokens/s, answers for each %d to %d (median %g), %d streams left in the middle" % (
        n, sum(tokens) / spent, rates[0], rates[-1], median, sum(c.left for c in clients)))
    expect(not errors, "no client had an error" + "".join("\n      " + e for e in errors[:5]))
    expect(rates[0] * 2 >= median, "the slowest client has at least half of the median")
    warm = [size for part, size in sizes if part >= WARM]
    quarter = max(len(warm) // 4, 1)
    early, late = statistics.median(warm[:quarter]), statistics.median(warm[-quarter:])
    expect(late <= max(early * GROWTH, early + SLACK), "memory: %.1f MB after the start, %.1f MB at the end" % (early / 1e6, late / 1e6))
    wait_until(lambda: server.metric("requests_running") + server.metric("requests_waiting") == 0, 10 * soon)
    for name, leave in (("reset", Connection.reset), ("closed", lambda c: c.socket.close())):
        gone = [server.connect() for _ in range(12)]
        for c in gone:
            c.request("POST", CHAT, {"messages": [{"role": "user", "content": "Tell me a story."}], "stream": True, "max_tokens": 400, "temperature": 1, "ignore_eos": True})
        wait_until(lambda: server.metric("requests_running") >= 1 and server.metric("requests_waiting") >= 1)
        begin = time.monotonic()
        for c in gone:
            leave(c)
        wait_until(lambda: server.metric("requests_running") + server.metric("requests_waiting") == 0, 10 * soon)
        spent = time.monotonic() - begin
        expect(spent < soon, "twelve clients that were %s are forgotten after %.2f s" % (name, spent))
    expect(server.chat(max_tokens=2).status == 200, "the next client is answered")
    server.process.send_signal(signal.SIGTERM)
    expect(server.process.wait(30) == 0, "it stops in order")
    server.stop()
    print("%d passed, %d failed" % (sum(checks), len(checks) - sum(checks)))
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
