#!/usr/bin/env python3
"""What happens in time: several clients, clients that go away in every phase, queues, signs of life, faults, the end.

usage: test_life.py PROGRAM     (the program built with scripted.c)
"""
import json
import random
import re
import signal
import socket
import threading
import time
import unittest

import harness
from harness import Server, in_background, wait_until

CHAT = "/v1/chat/completions"
SOON = 3.0  # a second is what is promised; the rest is for machines that are busy with other tests
TEXT = "word " * 2000


def body(stream=False, text="hi", **more):
    return {"messages": [{"role": "user", "content": text}], "stream": stream, **more}


def start(server, path=CHAT, **more):
    c = server.connect()
    c.request("POST", path, body(**more) if path == CHAT else more)
    return c


class Cancellation(unittest.TestCase):
    """The client goes away; within a second nothing is left of its request, and the next one is answered."""

    def goes(self, server, connection, phase, reset):
        if reset:
            connection.reset()
        else:
            connection.socket.close()
        begin = time.monotonic()
        name = 'requests_cancelled_total{phase="%s"}' % phase
        wait_until(lambda: server.metric(name) >= 1 and server.metric("requests_running") + server.metric("requests_waiting") == 0, 10)
        self.assertLess(time.monotonic() - begin, SOON)
        self.assertEqual(server.chat(max_tokens=1).status, 200)

    def each(self, **script):
        for stream in (False, True):
            for reset in (False, True):
                yield Server(**{"SCRIPT_TEXT": TEXT, **script}), stream, reset

    def test_while_the_request_is_made(self):
        for server, stream, reset in self.each(SCRIPT_CREATE_MS=500):
            with server:
                c = start(server, stream=stream)
                time.sleep(0.2)
                self.goes(server, c, "preparing", reset)

    def test_in_the_prompt(self):
        for server, stream, reset in self.each(SCRIPT_PROMPT_MS=50):
            with server:
                c = start(server, stream=stream, text="x" * 3000)
                wait_until(lambda: server.metric("requests_running") == 1)
                time.sleep(0.2)
                self.goes(server, c, "prefill", reset)

    def test_in_the_answer(self):
        for server, stream, reset in self.each(SCRIPT_DELAY_MS=50):
            with server:
                c = start(server, stream=stream, max_tokens=2000)
                wait_until(lambda: max(slot["n_past"] for slot in server.get("/slots").json) > 25) # the prompt has 19 tokens
                time.sleep(0.1)
                self.goes(server, c, "decode", reset)

    def test_in_line(self):
        for stream in (False, True):
            with Server("--parallel", "1", SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=20) as server:
                first = start(server, stream=True)
                wait_until(lambda: server.metric("requests_running") == 1)
                second = start(server, stream=stream)
                wait_until(lambda: server.metric("requests_waiting") == 1)
                second.socket.close()
                wait_until(lambda: server.metric("requests_waiting") == 0, SOON)
                self.assertEqual(server.metric("requests_running"), 1)
                self.assertEqual(server.metric('requests_cancelled_total{phase="queued"}'), 1)
                first.socket.close()

    def test_a_half_closed_connection_is_gone(self):
        with Server(SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=50) as server:
            c = start(server, stream=True)
            c.head()
            c.socket.shutdown(1)
            wait_until(lambda: server.metric("requests_running") == 0, SOON)

    def test_leaving_after_the_last_word_is_no_cancellation(self):
        with Server() as server:
            c = start(server, stream=True)
            c.until(b'"finish_reason":"stop"')
            c.socket.close()
            time.sleep(0.3)
            for phase in ("queued", "prefill", "decode"):
                self.assertEqual(server.metric('requests_cancelled_total{phase="%s"}' % phase), 0)

    def test_between_several_answers(self):
        with Server(SCRIPT_DELAY_MS=20) as server:
            c = start(server, stream=True, n=8)
            c.until(b'"index":1')
            c.socket.close()
            wait_until(lambda: server.metric("requests_running") == 0, SOON)

    def test_a_reader_that_does_not_read_is_dropped(self):
        with Server("-c", "3000000", SCRIPT_TEXT=("\1" * 2000 + " ") * 60, SCRIPT_WORDS=1) as server:
            c = server.connect()
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.request("POST", CHAT, body(stream=True, n=8)) # six megabytes of escapes
            wait_until(lambda: server.metric('requests_cancelled_total{phase="decode"}') == 1, 30)
            wait_until(lambda: server.metric("requests_running") == 0)
            c.socket.close()
            self.assertEqual(server.get("/health").status, 200)


class Lines(unittest.TestCase):
    def test_a_full_queue_is_told(self):
        with Server("--parallel", "1", "--queue", "2", SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=20) as server:
            waiting = []
            for i in range(3):
                waiting.append(start(server, stream=True))
                waiting[-1].head()
            a = server.chat()
            self.assertEqual((a.status, a.error["type"]), (429, "rate_limit_error"))
            self.assertGreater(int(a.headers["retry-after"]), 0)
            self.assertNotIn("x-should-retry", a.headers)
            a = server.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}]})
            self.assertEqual((a.status, a.error["type"]), (429, "rate_limit_error"))
            waiting[1].socket.close()
            wait_until(lambda: server.metric("requests_waiting") == 1)
            waiting.append(start(server, stream=True))
            self.assertEqual(waiting[-1].head()[0], 200)
            for c in waiting:
                c.socket.close()

    def test_the_place_in_line_is_told_to_who_wants_progress(self):
        with Server("--parallel", "1", SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=20) as server:
            c = []
            for i in range(3):
                c.append(start(server, stream=True, return_progress=True))
                c[i].head()
            c[1].until(b'"queue_position":1')
            c[2].until(b'"queue_position":2')
            c[0].socket.close()
            self.assertNotIn(b'"queue_position":2', c[1].until(b'"content":"w"'))
            c[2].until(b'"queue_position":1')
            for x in c[1:]:
                x.socket.close()

    def test_first_come_first_served(self):
        with Server("--parallel", "1", SCRIPT_DELAY_MS=5) as server:
            order, threads = [], []
            for i in range(5):
                c = start(server, stream=True)
                c.head()
                t = threading.Thread(target=lambda c=c, i=i: (c.until(b"[DONE]"), order.append(i)))
                t.start()
                threads.append(t)
            for t in threads:
                t.join(20)
            self.assertEqual(order, list(range(5)))

    def test_several_at_a_time(self):
        with Server(SCRIPT_DELAY_MS=10, SCRIPT_TEXT="x" * 100) as server:
            begin = time.monotonic()
            one = server.chat()
            alone = time.monotonic() - begin
            running = [in_background(server.chat) for _ in range(4)]
            for t, got in running:
                t.join(60)
                self.assertEqual(got[0].json["choices"][0]["message"]["content"], one.json["choices"][0]["message"]["content"])
            self.assertLess(time.monotonic() - begin - alone, 3.5 * alone)

    def test_small_questions_never_wait(self):
        """Nor for a request that takes long to be made, nor for a pass."""
        with Server("--parallel", "1", SCRIPT_DELAY_MS=400, SCRIPT_CREATE_MS=400) as server:
            busy = [start(server) for _ in range(4)]
            for path in ("/health", "/v1/models", "/props", "/slots", "/metrics") * 3:
                begin = time.monotonic()
                self.assertEqual(server.get(path).status, 200)
                self.assertLess(time.monotonic() - begin, 0.3, path)
            for c in busy:
                c.socket.close()

    def test_headers_come_at_once(self):
        with Server(SCRIPT_PROMPT_MS=200) as server:
            for path, more in [(CHAT, {}), ("/v1/responses", {"input": "x" * 100, "stream": True}),
                               ("/v1/messages", {"messages": [{"role": "user", "content": "x" * 100}], "stream": True})]:
                begin = time.monotonic()
                c = start(server, path, **(more or {"stream": True, "text": "x" * 100}))
                self.assertEqual(c.head()[0], 200)
                c.until(b"\n\n")
                self.assertLess(time.monotonic() - begin, 0.5)
                c.socket.close()


class SignsOfLife(unittest.TestCase):
    """Twenty times sooner than for real clients."""

    def run_stream(self, path, more):
        with Server(SCRIPT_PROMPT_MS=2500, SWIFTLET_TEST_HURRY=20) as server:
            return server.post(path, more)

    def test_chat(self):
        a = self.run_stream(CHAT, body(stream=True, return_progress=True))
        beats = [e for e in a.events() if e != "[DONE]" and e["choices"] and e["choices"][0]["delta"] == {} and not e["choices"][0]["finish_reason"]]
        self.assertGreaterEqual(len(beats), 3)
        self.assertIn("prompt_progress", beats[0])
        self.assertEqual(a.events()[-1], "[DONE]")

    def test_responses(self):
        a = self.run_stream("/v1/responses", {"input": "hi", "stream": True})
        events = [json.loads(data) for _, data in harness.frames(a.body)]
        self.assertGreaterEqual([e["type"] for e in events].count("response.in_progress"), 4)
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))

    def test_messages(self):
        a = self.run_stream("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "stream": True})
        self.assertGreaterEqual([name for name, _ in harness.frames(a.body)].count("ping"), 4)

    def test_completions(self):
        a = self.run_stream("/v1/completions", {"prompt": "hi", "stream": True})
        self.assertEqual("".join(e["choices"][0]["text"] for e in a.events()[:-1]), "Hello, world.")
        self.assertGreaterEqual(len(a.events()), 5)

    def test_an_answer_in_one_piece(self):
        for path, more in [(CHAT, body()), ("/v1/responses", {"input": "hi"}), ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}]})]:
            a = self.run_stream(path, more)
            self.assertEqual((a.status, a.headers["transfer-encoding"]), (200, "chunked"))
            self.assertTrue(a.body.startswith(b"  "), a.body[:20])
            self.assertIn("Hello, world.", json.dumps(a.json))

    def test_a_fault_after_the_first_space(self):
        with Server(SCRIPT_PROMPT_MS=2500, SWIFTLET_TEST_HURRY=20, SCRIPT_FAIL_AT=2) as server:
            a = server.chat()
            self.assertEqual((a.status, a.error["type"]), (200, "server_error"))

    def test_as_often_as_the_client_likes(self):
        with Server(SCRIPT_PROMPT_MS=1000, SWIFTLET_TEST_HURRY=5) as server:
            a = server.chat(stream=True, sse_ping_interval=1)
            self.assertGreater(len(a.events()), 6)


class Control(unittest.TestCase):
    def test_reasoning_can_be_ended(self):
        with Server(SCRIPT_DELAY_MS=30, SCRIPT_WORDS=1, SCRIPT_TEXT="<think>" + "hm " * 1000 + "</think>Now.") as server:
            c = start(server, stream=True, max_tokens=3500)
            first = json.loads(c.until(b"hm").split(b"data: ")[1].split(b"\n")[0])
            a = server.post(CHAT + "/control", {"id": first["id"], "action": "reasoning_end"})
            self.assertEqual((a.status, a.json), (200, {"success": True}))
            begin = time.monotonic()
            text = "".join(re.findall(r'"content":"([^"]*)"', c.until(b"[DONE]").decode()))
            self.assertTrue(text.endswith("Now."), text)
            self.assertLess(time.monotonic() - begin, SOON)
            for bad, status in [({"id": first["id"], "action": "reasoning_end"}, 404), ({"id": 5}, 400), ({"id": "x", "action": "y"}, 400), ("{", 400)]:
                self.assertEqual(server.post(CHAT + "/control", bad).status, status)


class Faults(unittest.TestCase):
    def test_in_one_piece(self):
        with Server(SCRIPT_FAIL_AT=3) as server:
            a = server.chat()
            self.assertEqual((a.status, a.error["type"], a.error["code"]), (500, "server_error", None))
            self.assertIn("scripted.bin", a.error["message"])
            self.assertIn("7", a.error["message"])
            self.assertEqual(server.get("/health").status, 200)

    def test_in_a_stream(self):
        with Server(SCRIPT_FAIL_AT=3) as server, server.connect() as c:
            c.request("POST", CHAT, body(stream=True))
            a = c.answer()
            self.assertEqual(a.events()[-1]["error"]["type"], "server_error")
            self.assertTrue(c.closed())
            self.assertEqual(server.chat(max_tokens=2).status, 200)

    def test_a_model_that_does_not_open(self):
        for name, code in (("SCRIPT_OPEN", 5), ("SCRIPT_ENGINE", 7)):
            with self.assertRaisesRegex(AssertionError, name + " of the script"):
                Server(**{name: code})

    def test_prompts_are_logged_when_that_is_wanted(self):
        with Server("--log-prompts") as server:
            server.chat("verysecret")
            self.assertIn("[user]verysecret", server.stderr())

    def test_unknown_fields_are_named(self):
        with Server() as server:
            server.chat(no_such_field="verysecret", **{"very secret": 1, "store": True})
            self.assertIn('unknown field "no_such_field"', server.stderr())
            self.assertNotRegex(server.stderr(), "secret|store")

    def test_nothing_of_a_prompt_is_logged(self):
        with Server(SCRIPT_FAIL_AT=3) as server:
            for more in ({}, {"temperature": "verysecret"}, {"tools": [{"type": "verysecret"}]}, {"stream": True}):
                server.chat("verysecret", **more)
            server.post(CHAT, '{"verysecret":')
            server.get("/v1/models/verysecret?verysecret")
            self.assertNotIn("verysecret", server.stderr())


class TheEnd(unittest.TestCase):
    def test_without_work_it_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = Server()
            idle = server.connect()
            idle.request("GET", "/health")
            idle.answer()
            begin = time.monotonic()
            self.assertEqual(server.stop(number), 0)
            self.assertLess(time.monotonic() - begin, SOON)

    def test_running_answers_are_finished(self):
        server = Server(SCRIPT_DELAY_MS=50, SCRIPT_TEXT="x" * 40)
        streamed, whole = start(server, stream=True), start(server)
        wait_until(lambda: server.metric("requests_running") == 2)
        other = server.connect()
        other.request("GET", "/health")
        self.assertEqual(other.answer().status, 200)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with self.assertRaises(OSError):
            server.connect()
        other.request("POST", CHAT, body())
        a = other.answer()
        self.assertEqual((a.status, a.error["type"], a.headers["retry-after"]), (503, "unavailable_error", "2"))
        self.assertEqual(whole.answer().json["choices"][0]["message"]["content"], "x" * 40)
        self.assertEqual(streamed.answer().events()[-1], "[DONE]")
        self.assertEqual(server.process.wait(10), 0)
        server.stop()

    def test_long_answers_are_cut_when_grace_is_over(self):
        server = Server("--grace", "1s", SCRIPT_DELAY_MS=50, SCRIPT_TEXT=TEXT)
        streamed, whole = start(server, stream=True), start(server)
        wait_until(lambda: server.metric("requests_running") == 2)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(streamed.answer().events()[-1]["error"]["type"], "unavailable_error")
        self.assertEqual(whole.answer().status, 503)
        self.assertEqual(server.process.wait(10), 0)
        self.assertLess(time.monotonic() - begin, 1 + SOON)
        server.stop()

    def test_a_second_signal_does_not_wait(self):
        server = Server("--grace", "60s", SCRIPT_DELAY_MS=50, SCRIPT_TEXT=TEXT)
        c = start(server, stream=True)
        wait_until(lambda: server.metric("requests_running") == 1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(SOON * 2), 0)
        c.socket.close()
        server.stop()


class Soak(unittest.TestCase):
    def test_clients_that_leave_at_any_time(self):
        rng = random.Random(7)
        paths = [(CHAT, lambda: body(stream=rng.random() < 0.7, text="x" * rng.randrange(200))),
                 ("/v1/responses", lambda: {"input": "hi", "stream": rng.random() < 0.7}),
                 ("/v1/messages", lambda: {"messages": [{"role": "user", "content": "hi"}], "stream": rng.random() < 0.7}),
                 ("/v1/completions", lambda: {"prompt": ["a", "b"], "stream": rng.random() < 0.7}), ("/v1/messages/count_tokens", lambda: {"messages": []})]
        with Server(SCRIPT_DELAY_MS=2, SCRIPT_PROMPT_MS=2, SCRIPT_TEXT="<think>hm hm hm</think>" + "word " * 20) as server:
            plain = server.chat().json["choices"][0]["message"]

            def client(seed):
                mine = random.Random(seed)
                for _ in range(15):
                    path, make = mine.choice(paths)
                    c = server.connect()
                    c.request("POST", path, make())
                    c.socket.settimeout(0.001 + mine.random() * 0.3)
                    try:
                        while c.more():
                            pass
                    except OSError:
                        pass
                    c.reset() if mine.random() < 0.5 else c.socket.close()

            clients = [threading.Thread(target=client, args=(i,)) for i in range(8)]
            for t in clients:
                t.start()
            for t in clients:
                t.join(120)
            wait_until(lambda: server.metric("requests_running") + server.metric("requests_waiting") == 0)
            self.assertEqual(server.chat().json["choices"][0]["message"], plain)
            self.assertEqual(server.stop(signal.SIGTERM), 0)


if __name__ == "__main__":
    harness.main()
