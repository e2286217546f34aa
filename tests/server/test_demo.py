#!/usr/bin/env python3
"""The server on a real, small model: what independent implementations say, equal answers however they are asked for, reuse of
what was computed, constrained answers, clients that leave.

usage: test_demo.py PROGRAM     (the program; the model is models/demo.qpack)
"""
import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import Server, in_background, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "demo.qpack")
ORACLE = os.path.join(ROOT, "tests", "oracle")
CHAT = "/v1/chat/completions"
GREEDY = {"temperature": 0, "max_tokens": 60}


def oracle(name):
    with open(os.path.join(ORACLE, name), encoding="utf-8") as f:
        return json.load(f)

# fsync of a file with $HELD in its path takes as long as $GATE exists, but no more than $GATE_SECONDS.
SLOW_DISK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd)
{
    char link[64], path[4096] = "", reached[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, getenv("HELD"))) {
        snprintf(reached, sizeof reached, "%s.reached", getenv("GATE"));
        close(open(reached, O_WRONLY | O_CREAT, 0600));
        for (int i = 0; i < 100 * atoi(getenv("GATE_SECONDS")) && !access(getenv("GATE"), F_OK); i++)
            usleep(10000);
    }
    return (int)syscall(SYS_fsync, fd);
}
"""


@contextlib.contextmanager
def slow_disk(held):
    """A server, its session directory, and the gate before its disk."""
    with tempfile.TemporaryDirectory() as top:
        folder, gate, shim = (os.path.join(top, name) for name in ("sessions", "gate", "shim.so"))
        with open(shim + ".c", "w") as f:
            f.write(SLOW_DISK)
        if subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, f.name], capture_output=True).returncode:
            raise unittest.SkipTest("no compiler for a shim")
        with Server("--threads", "2", "-c", "2048", "--parallel", "2", "--session-dir", folder, model=MODEL, LD_PRELOAD=shim, HELD=held,
                    GATE=gate, GATE_SECONDS=int(harness.PATIENCE / 2)) as server:
            yield server, folder, gate


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", "2", "-c", "2048", model=MODEL)

    @classmethod
    def tearDownClass(cls):
        rc = cls.server.stop(signal.SIGTERM)
        assert rc == 0, "the server ended with %d" % rc

    def chat(self, messages, **more):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        a = self.server.post(CHAT, {"messages": messages, **GREEDY, **more})
        self.assertEqual(a.status, 200, a)
        return a.json

    def test_prompts_are_those_of_transformers(self):
        for p in oracle("demo_greedy.json")["prompts"]:
            if "messages" not in p:
                continue
            more = {"chat_template_kwargs": {"enable_thinking": p["enable_thinking"]}} if "enable_thinking" in p else {}
            if "tools" in p:
                more["tools"] = p["tools"]
            a = self.server.post("/apply-template", {"messages": p["messages"], **more}).json
            self.assertEqual((a["prompt"], a["tokens"]), (p["prompt_text"], p["prompt_ids"]), p["name"])

    def test_clear_answers_are_those_of_transformers(self):
        """Where the reference's choice is never close, the quantised model chooses the same."""
        n = 0
        for p in oracle("demo_greedy.json")["prompts"]:
            if "messages" not in p or p["smallest_lead"] < 0.13 or "<tool_call>" in p["text"]:
                continue
            more = {"tools": p["tools"]} if "tools" in p else {}
            self.assertEqual(self.chat(p["messages"], **more)["choices"][0]["message"]["content"], p["text"], p["name"])
            n += 1
        self.assertGreater(n, 1)

    def test_a_call_is_the_one_of_transformers(self):
        p = next(p for p in oracle("demo_greedy.json")["prompts"] if p["name"] == "chat-tool")
        choice = self.chat(p["messages"], tools=p["tools"])["choices"][0]
        call, = choice["message"]["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"]), choice["finish_reason"]), ("get_weather", {"city": "Oslo"}, "tool_calls"))
        m = self.server.post("/v1/messages", {"messages": p["messages"], **GREEDY, "tools": [
            {"name": t["function"]["name"], "description": t["function"]["description"], "input_schema": t["function"]["parameters"]} for t in p["tools"]]}).json
        self.assertEqual([(b["type"], b.get("input")) for b in m["content"]], [("tool_use", {"city": "Oslo"})])

    def test_prompts_are_scored_as_by_transformers(self):
        text = oracle("demo_ppl.json")["texts"][0]
        ids = text["ids"]
        a = self.server.post("/v1/completions", {"prompt": [ids], "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}).json
        lp = a["choices"][0]["logprobs"]
        self.assertEqual((len(lp["tokens"]), lp["token_logprobs"][0]), (len(ids) + 1, None))
        nll = -sum(lp["token_logprobs"][1:-1])
        self.assertLess(abs(nll / text["nll"] - 1), 0.1) # the container has four bits a weight
        for logprob, top in zip(lp["token_logprobs"][1:], lp["top_logprobs"][1:]):
            self.assertLessEqual(logprob, max(top.values()) + 1e-6)

    def test_an_answer_is_the_same_however_it_is_asked_for(self):
        questions = ["Tell me a story.", "What is the capital of France?", "Why is the sky blue?", "Hi!"]
        alone = [self.chat(q)["choices"][0]["message"]["content"] for q in questions]
        running = [in_background(self.chat, q) for q in questions]
        for (t, got), expected in zip(running, alone):
            t.join(120)
            self.assertEqual(got[0]["choices"][0]["message"]["content"], expected)
        for q, expected in zip(questions, alone):
            events = self.server.post(CHAT, {"messages": [{"role": "user", "content": q}], "stream": True, **GREEDY}).events()
            self.assertEqual("".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1]), expected)
            r = self.server.post("/v1/responses", {"input": q, "temperature": 0, "max_output_tokens": 60}).json
            self.assertEqual(r["output"][-1]["content"][0]["text"], expected)
            m = self.server.post("/v1/messages", {"messages": [{"role": "user", "content": q}], **GREEDY}).json
            self.assertEqual(m["content"][-1]["text"], expected)

    def test_seeds_repeat(self):
        a, b, c = [self.chat("Tell me a story.", temperature=1, seed=seed)["choices"][0]["message"]["content"] for seed in (5, 5, 6)]
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_the_next_turn_computes_only_what_is_new(self):
        messages = [{"role": "user", "content": "Write a short story about kindness. " * 4}]
        first = self.chat(messages)
        messages += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        second = self.chat(messages)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, first["usage"]["prompt_tokens"] // 2)
        self.assertLess(cached, second["usage"]["prompt_tokens"])

    def test_constrained_answers_are_valid(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}, "required": ["name", "age"],
                  "additionalProperties": False}
        for seed in range(3):
            a = self.chat("Describe a person.", temperature=1, seed=seed, max_tokens=300, response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}})
            if a["choices"][0]["finish_reason"] == "stop":
                got = json.loads(a["choices"][0]["message"]["content"])
                self.assertEqual((set(got), type(got["name"]), type(got["age"])), ({"name", "age"}, str, int))
        a = self.chat("Hi!", tools=[{"type": "function", "function": {"name": "wave", "parameters": {"type": "object", "properties": {}}}}], tool_choice="required")
        self.assertEqual([c["function"]["name"] for c in a["choices"][0]["message"]["tool_calls"]], ["wave"])

    def test_schemas_beyond_the_limits_are_refused(self):
        """They are the client's fault, whichever limit it is, and it need not try again."""
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a{1,1000}){1,1000}"}}, "required": ["a"]}
        user = {"messages": [{"role": "user", "content": "Hi!"}]}
        tool = {"name": "f", "parameters": schema}
        a = self.server.post(CHAT, {**user, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": 5}}}})
        self.assertEqual((a.status, a.error["param"]), (400, "response_format"), a)
        for path, more in ((CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}}),
                           (CHAT, {"tools": [{"type": "function", "function": tool}], "tool_choice": "required"}),
                           ("/v1/messages", {"tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "any"}, "max_tokens": 5})):
            a = self.server.post(path, {**user, **more})
            self.assertEqual((a.status, a.error["type"], a.headers["x-should-retry"]), (400, "invalid_request_error", "false"), a)
            self.assertIn("too many states", a.error["message"])

    def test_clients_that_leave(self):
        for stream in (True, False):
            for seconds in (0.02, 0.2, 0.6):
                c = self.server.connect()
                c.request("POST", CHAT, {"messages": [{"role": "user", "content": "Tell me a story. " * 60}], "max_tokens": 1500, "stream": stream, "temperature": 1})
                time.sleep(seconds)
                c.socket.close()
                wait_until(lambda: self.server.metric("requests_running") + self.server.metric("requests_waiting") == 0)

    def test_log_probabilities_add_up(self):
        entries = self.chat("Hi!", logprobs=True, top_logprobs=5)["choices"][0]["logprobs"]["content"]
        self.assertGreater(len(entries), 3)
        for e in entries:
            self.assertLessEqual(sum(math.exp(t["logprob"]) for t in e["top_logprobs"]), 1.0001)
            self.assertEqual((e["token"], e["bytes"]), (e["top_logprobs"][0]["token"], list(e["token"].encode())))
            self.assertAlmostEqual(e["logprob"], e["top_logprobs"][0]["logprob"], 5)


class Memory(unittest.TestCase):
    def test_the_figure_that_is_named_does(self):
        """Also where requests get a part of it."""
        for memory, more in ("40M", []), ("130M", ["--max-body", "32M", "-c", "4096", "--prefill-chunk", "4096"]):
            with self.assertRaisesRegex(AssertionError, r"it needs \d+ MiB") as caught:
                Server("--threads", "2", "--memory", memory, *more, model=MODEL)
            [figure] = re.findall(r"it needs (\d+) MiB", str(caught.exception))
            with Server("--threads", "2", "--memory", figure + "M", *more, model=MODEL) as server:
                self.assertEqual(server.chat("Hi", max_tokens=2).status, 200)

    def test_more_than_the_machine_has_is_logged(self):
        with Server("--threads", "2", "--memory", "8000G", model=MODEL) as server:
            wait_until(lambda: re.search(r"--memory: 8192000 MiB is more than the \d+ MiB that ", server.stderr()))


class Damage(unittest.TestCase):
    def test_a_damaged_expert_is_told_to_both_sides_and_the_next_answer_is_right(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "demo.qpack")
            shutil.copytree(MODEL, model)
            layers = [os.path.join(model, "packed_experts", "layer_%02d.bin" % i) for i in range(8)]
            right = [open(path, "rb").read() for path in layers]
            with Server("--threads", "2", "-c", "512", "--memory", "96M", model=model) as server:
                for path, data in zip(layers, right):
                    with open(path, "r+b") as f:
                        f.write(bytes(len(data)))
                a = server.chat("Tell me a story.", **GREEDY)
                self.assertEqual((a.status, a.error["type"]), (500, "server_error"), a)
                self.assertRegex(a.error["message"], r"^layer \d, expert \d+: checksum .* damaged \(layer_0\d.bin, offset \d+\)$")
                wait_until(lambda: a.error["message"] in server.stderr())
                for path, data in zip(layers, right):
                    with open(path, "r+b") as f:
                        f.write(data)
                self.assertEqual(server.chat("Tell me a story.", **GREEDY).status, 200)


class Kept(unittest.TestCase):
    def test_conversations_survive_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            question = {"messages": [{"role": "user", "content": "Write a short story about kindness. " * 30}], **GREEDY}
            answers = []
            for _ in range(2):
                server = Server("--threads", "2", "-c", "2048", "--session-dir", folder, model=MODEL)
                answers.append(server.post(CHAT, question).json)
                self.assertEqual(server.stop(signal.SIGTERM), 0)
            self.assertEqual(answers[0]["choices"][0]["message"], answers[1]["choices"][0]["message"])
            self.assertGreater(answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 100)

    def test_what_is_short_is_not_kept(self):
        """From 32 tokens on, as the page says: of those that the model has read, so without the last one of the answer."""
        with tempfile.TemporaryDirectory() as folder:
            for n_answer, n_files in ((2, 0), (3, 1)):
                server = Server("--threads", "2", "-c", "512", "--session-dir", folder, model=MODEL)
                prompt = server.post("/tokenize", {"content": "Tell me a story. " * 20}).json["tokens"][:30]
                a = server.post("/v1/completions", {"prompt": prompt, "max_tokens": n_answer, "temperature": 0, "ignore_eos": True}).json
                self.assertEqual(a["usage"]["total_tokens"], 30 + n_answer)
                self.assertEqual(server.stop(signal.SIGTERM), 0)
                self.assertEqual(len(os.listdir(folder)), n_files, n_answer)

    def test_what_others_do_to_the_folder(self):
        """What a killed program was writing goes when it is old, and nothing else; a file that somebody removed is written again;
        one that says it holds more than fits takes no memory."""
        with tempfile.TemporaryDirectory() as folder:
            question = {"messages": [{"role": "user", "content": "Write a short story about kindness. " * 8}], **GREEDY}
            options = ["--threads", "2", "-c", "2048", "--session-dir", folder]
            server = Server(*options, model=MODEL)
            server.post(CHAT, question)
            self.assertEqual(server.stop(signal.SIGTERM), 0)
            [name] = os.listdir(folder)
            path = os.path.join(folder, name)
            old = [name + ".tmp.17", "by-hand.tmp.4000000"]
            others = [name + ".tmp.18", "by-hand.tmp.x", "by-hand.tmp.", "big", "0" * 64 + ".session"]
            for left in old + others[:3]:
                with open(os.path.join(folder, left), "w") as f:
                    f.write("half of it")
                if not left.endswith("18"):
                    os.utime(os.path.join(folder, left), (time.time() - 4000,) * 2)
            with open(path, "rb") as f:
                head = f.read(44)
            for left in others[3:]:
                with open(os.path.join(folder, left), "wb") as f:
                    f.write(head + (50000000).to_bytes(4, "little"))
                    f.truncate(300000000)
            server = Server(*options, model=MODEL)
            self.assertEqual(sorted(os.listdir(folder)), sorted([name] + others))
            a = server.post("/slots/1?action=restore", {"filename": "big"})
            self.assertEqual((a.status, a.error["param"]), (400, "filename"), a)
            self.assertIn("holds 50000000 tokens", a.error["message"])
            with open("/proc/%d/status" % server.process.pid) as f:
                peak = int(f.read().split("VmHWM:")[1].split()[0])
            self.assertLess(peak, 150000)
            self.assertGreater(server.post(CHAT, question).json["usage"]["prompt_tokens_details"]["cached_tokens"], 50)
            os.remove(path)
            self.assertEqual(server.stop(signal.SIGTERM), 0)
            self.assertIn(name, os.listdir(folder))

    def test_a_full_disk(self):
        """It is no fault of the client's, nothing of the file stays, and the next answer comes."""
        with tempfile.TemporaryDirectory() as top:
            folder, program = os.path.join(top, "sessions"), os.path.join(top, "program")
            os.mkdir(folder)
            with open(program, "w") as f:
                f.write("""#!/bin/sh
exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"' %s %s "$@"
""" % (folder, harness.PROGRAM))
            os.chmod(program, 0o755)
            if subprocess.run([program, "--version"], capture_output=True).returncode:
                self.skipTest("no file system can be mounted")
            with Server("--threads", "2", "-c", "512", "--session-dir", folder, program=program, model=MODEL) as server:
                server.chat("Why is the sky blue? " * 5, **GREEDY)
                slot = max(server.get("/slots").json, key=lambda s: s["n_past"])["id"]
                a = server.post("/slots/%d?action=save" % slot, {"filename": "a"})
                self.assertEqual((a.status, a.error["type"]), (500, "server_error"), a)
                self.assertIn("No space", a.error["message"])
                self.assertEqual(server.post("/slots/%d?action=erase" % slot, {"filename": "a"}).status, 404)
                self.assertEqual(os.listdir("/proc/%d/root%s" % (server.process.pid, folder)), [])
                self.assertEqual(server.chat("Hi", max_tokens=2).status, 200)
                for i in range(6):
                    self.assertEqual(server.chat("%d times: why is the sky blue? " % i * 8, max_tokens=2).status, 200)
                lost = "a conversation could not be saved: "
                wait_until(lambda: lost in server.stderr())
                log = os.dup(server.log.fileno())
                self.assertNotEqual(server.stop(signal.SIGTERM), 0)
                with os.fdopen(log, "rb") as f:
                    f.seek(0)
                    said = f.read().decode()
                self.assertEqual(said.count(lost), 1, said)
                self.assertRegex(said, r"(?m)^swiftlet: a conversation in memory could not be saved: .*No space left on device$")

    def test_answers_go_on_while_a_save_waits_for_the_disk(self):
        """What is saved is the conversation as it was when it was asked for."""
        with slow_disk("/held") as (server, folder, gate):
            def act(action, slot, name):
                return server.post("/slots/%d?action=%s" % (slot, action), {"filename": name})
            messages = [{"role": "user", "content": "Write a short story about kindness. " * 8}]
            messages.append(server.post(CHAT, {"messages": messages, **GREEDY}).json["choices"][0]["message"])
            slot = max(server.get("/slots").json, key=lambda s: s["n_past"])["id"]
            self.assertEqual(act("save", slot, "before").status, 200)
            open(gate, "w").close()
            saving, saved = in_background(act, "save", slot, "held")
            wait_until(lambda: os.path.exists(gate + ".reached"))
            self.assertEqual(server.chat("Hi", max_tokens=5).status, 200)
            a = server.post(CHAT, {"messages": [*messages, {"role": "user", "content": "And then?"}], **GREEDY}).json
            self.assertGreater(a["usage"]["prompt_tokens_details"]["cached_tokens"], 50)
            self.assertEqual((act("restore", 1 - slot, "held").status, act("restore", 1 - slot, "before").status), (404, 200))
            self.assertTrue(saving.is_alive())
            os.remove(gate)
            saving.join(harness.PATIENCE)
            self.assertEqual(saved[0].status, 200, saved)
            self.assertGreater(server.get("/slots").json[slot]["n_past"], saved[0].json["n_saved"])
            with open(os.path.join(folder, "before"), "rb") as before, open(os.path.join(folder, "held"), "rb") as held:
                self.assertTrue(before.read() == held.read(), "the files differ")

    def test_answers_go_on_while_what_leaves_memory_waits_for_the_disk(self):
        """It can come back before it is durable, and a server that is killed leaves nothing that is half there."""
        with slow_disk(".session") as (server, folder, gate):
            open(gate, "w").close()
            questions = [{"messages": [{"role": "user", "content": "Write a story about %s. " % what * 8}], **GREEDY}
                         for what in ("kindness", "a garden", "the sea")]
            answers = [server.post(CHAT, q).json["choices"][0]["message"] for q in questions]
            wait_until(lambda: os.path.exists(gate + ".reached"))
            self.assertRegex(" ".join(os.listdir(folder)), r"^[0-9a-f]{64}\.session\.tmp\.[0-9]+$")
            a = server.post(CHAT, questions[0]).json
            self.assertEqual(a["choices"][0]["message"], answers[0])
            self.assertGreater(a["usage"]["prompt_tokens_details"]["cached_tokens"], 50)
            self.assertEqual([name for name in os.listdir(folder) if name.endswith(".session")], [])
            os.remove(gate)
            wait_until(lambda: sum(name.endswith(".session") for name in os.listdir(folder)) == 2)
            open(gate, "w").close()
            self.assertEqual(server.post(CHAT, {"messages": [{"role": "user", "content": "Hello! " * 40}], **GREEDY}).status, 200)
            server.process.kill()
            server.process.wait()
            with Server("--threads", "2", "-c", "2048", "--session-dir", folder, model=MODEL) as server:
                kept = [server.post(CHAT, q).json["usage"]["prompt_tokens_details"]["cached_tokens"] > 50 for q in questions]
                self.assertEqual(sum(kept), 2, kept)

    def test_calls_are_replayed_token_by_token_also_by_the_next_server(self):
        """A client spells the arguments its own way; the next server, too, computes only what is new, and answers the same."""
        p = next(p for p in oracle("demo_greedy.json")["prompts"] if p["name"] == "chat-tool")
        begin = {"tools": p["tools"], **GREEDY}
        ends = []
        for restart in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                options = ["--threads", "2", "-c", "2048", "--session-dir", folder]
                server = Server(*options, model=MODEL)
                first = server.post(CHAT, {"messages": p["messages"], **begin}).json
                call = first["choices"][0]["message"]["tool_calls"][0]
                answer = {"role": "assistant", "tool_calls": [{**call, "function": {"name": "get_weather", "arguments": '{ "city" :  "\\u004fslo" }'}}]}
                if restart:
                    self.assertEqual(server.stop(signal.SIGTERM), 0)
                    server = Server(*options, model=MODEL)
                ends.append(server.post(CHAT, {"messages": [*p["messages"], answer, {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees, rain"}],
                                               **begin}).json)
                self.assertEqual(server.stop(signal.SIGTERM), 0)
        self.assertEqual(ends[0]["choices"], ends[1]["choices"])
        self.assertEqual(ends[0]["usage"], ends[1]["usage"])
        self.assertGreaterEqual(ends[1]["usage"]["prompt_tokens_details"]["cached_tokens"],
                                first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1)

    def test_conversations_are_saved_by_hand(self):
        """To a file, forgotten, and back, also into the next server: the next answer is the same and computes only what is new."""
        with tempfile.TemporaryDirectory() as top:
            folder = os.path.join(top, "sessions")
            options = ["--threads", "2", "-c", "2048", "--parallel", "2", "--session-dir", folder]
            outside = os.path.join(top, "outside")
            question = [{"role": "user", "content": "Write a short story about kindness. " * 8}]
            with Server(*options, model=MODEL) as server:
                def act(action, slot=0, **body):
                    return server.post("/slots/%s?action=%s" % (slot, action), body)
                first = server.post(CHAT, {"messages": question, **GREEDY}).json
                question += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
                slot = max(server.get("/slots").json, key=lambda s: s["n_past"])["id"]
                saved = act("save", slot, filename="story-1.bin")
                self.assertEqual((saved.status, saved.json["id_slot"], saved.json["filename"]), (200, slot, "story-1.bin"), saved)
                self.assertEqual(saved.json["n_written"], os.path.getsize(os.path.join(folder, "story-1.bin")))
                self.assertEqual(os.stat(os.path.join(folder, "story-1.bin")).st_mode & 0o77, 0)
                expected = server.post(CHAT, {"messages": question, **GREEDY}).json
                for name in ("", ".", "..", "../outside", "a/b", outside, ".hidden", "0" * 64 + ".session", "x.SESSION", "a b", "a\n", "a\0", "a\0b",
                             "\u00e4", "x" * 101):
                    for action in ("save", "restore", "erase"):
                        a = act(action, slot, filename=name)
                        self.assertEqual((a.status, a.error["param"]), (400, "filename"), (action, name, a))
                with open(os.path.join(folder, "foreign"), "w") as f:
                    f.write("SWLSNAP" * 20)
                self.assertEqual([act("save", slot, filename=3).status, act("save", slot).status, act("burn", slot, filename="a").status,
                                  act("save", 99, filename="a").status, act("save", "x", filename="a").status, act("restore", 0, filename="no").status,
                                  act("erase", 0, filename="no").status, act("restore", 1, filename="foreign").status],
                                 [400, 400, 400, 404, 404, 404, 404, 400])
                self.assertIn(expected["usage"]["total_tokens"] - act("erase", slot).json["n_erased"], (0, 1))  # the last token may not have run
                self.assertEqual(server.get("/slots").json[slot]["n_past"], 0)
            for name in os.listdir(folder):
                if name.endswith(".session"): # the server was killed, but who knows
                    os.remove(os.path.join(folder, name))
            self.assertEqual(os.listdir(top), ["sessions"])
            with Server(*options, model=MODEL) as server:
                a = server.post("/slots/1?action=restore", {"filename": "story-1.bin"})
                self.assertEqual((a.status, a.json["n_restored"], a.json["n_read"]), (200, saved.json["n_saved"], saved.json["n_written"]), a)
                self.assertEqual(server.get("/slots").json[1]["n_past"], a.json["n_restored"])
                again = server.post(CHAT, {"messages": question, **GREEDY}).json
                self.assertEqual((again["choices"], again["usage"]), (expected["choices"], expected["usage"]))
                self.assertEqual(server.post("/slots/1?action=erase", {"filename": "story-1.bin"}).status, 200)
                self.assertEqual(os.listdir(folder), ["foreign"])


if __name__ == "__main__":
    harness.main()
