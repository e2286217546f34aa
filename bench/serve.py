#!/usr/bin/env python3
"""Tokens a second that `swiftlet serve` gives to one client and to several, over HTTP, each streaming answers of a fixed length.

usage: bench/serve.py PROGRAM CONTAINER [--clients 1,4] [--rounds 5] [--tokens 128] [--memory 12G] [--options "..."]
                      [--tokenizer DIR] [--csv FILE]

The counts of clients take turns (1, 4, 1, 4, ...) and medians are told, since machines drift. The time of all begins with the
first request and ends with the last byte, so prompts (some 50 tokens, each client's its own) are in it; "answers only" is the sum
of the rates at which clients got their tokens after the first. Weights, and what the router makes of them, are the container's: say
so where they are synthetic. Synthetic containers have no tokenizer: they get that of --tokenizer (the demo model's), filled up with words
to the size of their vocabulary, in a folder beside them that is made of links. Needs nothing but Python.
"""
import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT = "You are client %d in round %d, and this is what you want to know: why is the sky blue in the day and dark in the night?"


def with_tokenizer(container, tokenizer, folder):
    """The container as it is, and the files of a tokenizer as large as its head."""
    made = os.path.join(folder, "synthetic.qpack")
    os.mkdir(made)
    for name in os.listdir(container):
        os.symlink(os.path.join(os.path.abspath(container), name), os.path.join(made, name))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        os.symlink(os.path.join(os.path.abspath(tokenizer), name), os.path.join(made, name))
    with open(os.path.join(container, "config.json")) as f:
        n = json.load(f)["vocab_size"]
    with open(os.path.join(tokenizer, "tokenizer.json")) as f:
        t = json.load(f)
    used = max(max(t["model"]["vocab"].values()), max(a["id"] for a in t["added_tokens"])) + 1
    t["model"]["vocab"].update({"word%d" % i: i for i in range(used, n)})
    with open(os.path.join(made, "tokenizer.json"), "w") as f:
        json.dump(t, f)
    return made


class Client(threading.Thread):
    """One answer: when its first and its last token came, and how many there were."""

    def __init__(self, port, number, turn, tokens):
        super().__init__(daemon=True)
        self.port, self.error = port, None
        self.body = json.dumps({"messages": [{"role": "user", "content": PROMPT % (number, turn)}], "stream": True, "max_tokens": tokens, "ignore_eos": True,
                                "temperature": 1, "top_k": 20, "top_p": 0.95, "seed": 1000 * turn + number, "stream_options": {"include_usage": True}})

    def run(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            self.begin = time.monotonic()
            c.request("POST", "/v1/chat/completions", self.body, {"Content-Type": "application/json"})
            answer, self.first, self.tokens = c.getresponse(), None, 0
            for line in answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if self.first is None and event["choices"] and any(event["choices"][0]["delta"].get(k) for k in ("content", "reasoning_content")):
                        self.first = time.monotonic()
                    self.timings = event.get("timings") or getattr(self, "timings", None)
                    if event.get("usage"):
                        self.tokens = event["usage"]["completion_tokens"]
            self.end = time.monotonic()
        except Exception as e:
            self.error = e


def measure(port, n, turn, tokens):
    """Tokens/s of all, prompts included; of all in their answers; of the slowest and of the fastest client there."""
    clients = [Client(port, i, turn, tokens) for i in range(n)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    for c in clients:
        if c.error or c.tokens != tokens:
            raise SystemExit("a client got %s tokens: %s" % (getattr(c, "tokens", None), c.error))
    spent = max(c.end for c in clients) - min(c.begin for c in clients)
    rates = [c.timings["predicted_per_second"] for c in clients]
    return n * tokens / spent, sum(rates), min(rates), max(rates)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("container")
    p.add_argument("--clients", default="1,4")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--memory", default="12G")
    p.add_argument("--options", default="", help="further ones of the server")
    p.add_argument("--tokenizer", default=os.path.join(ROOT, "models", "demo.qpack"))
    p.add_argument("--csv", help="a row for each count of clients is added to this file")
    a = p.parse_args()
    counts = [int(n) for n in a.clients.split(",")]
    with tempfile.TemporaryDirectory(prefix="swiftlet-serve-") as folder:
        model = a.container if os.path.exists(os.path.join(a.container, "tokenizer.json")) else with_tokenizer(a.container, a.tokenizer, folder)
        command = [a.program, "serve", model, "--port", "0", "--memory", a.memory, "-c", "2048", "--parallel", str(max(counts)), *a.options.split()]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            port = int(server.stdout.readline().rsplit(":", 1)[1])
            for turn in range(2): # until the experts that are wanted are in memory
                measure(port, max(counts), turn, a.tokens)
            got = {n: [] for n in counts}
            for turn in range(a.rounds):
                for n in counts:
                    got[n].append(measure(port, n, 100 + turn, a.tokens))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    rows = []
    for n in counts:
        whole, answers, slowest, fastest = (statistics.median(x) for x in zip(*got[n]))
        rows.append((n, whole, min(x[0] for x in got[n]), max(x[0] for x in got[n]), answers, slowest, fastest))
        print("clients %d: %.2f tokens/s together (%.2f - %.2f), %.2f times as many; answers only %.2f, %.2f times as many; of one client %.2f to %.2f" % (
            *rows[-1][:4], whole / rows[0][1], answers, answers / rows[0][4], slowest, fastest))
    if a.csv:
        with open(a.csv, "a") as f:
            for n, whole, least, most, answers, slowest, fastest in rows:
                f.write('%d,%d,%d,%.2f,%.2f - %.2f,%.2f,%.2f,%.2f,%.2f - %.2f,"%s"\n' % (
                    n, a.tokens, a.rounds, whole, least, most, whole / rows[0][1], answers, answers / rows[0][4], slowest, fastest, " ".join(sys.argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
