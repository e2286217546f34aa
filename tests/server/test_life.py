#!/usr/bin/env python3
"""What happens in time: several clients, clients that go away in every phase, queues, signs of life, faults, the end.

usage: test_life.py PROGRAM     (the program built with scripted.c)
"""
import json
import os
import random
import re
import resource
import signal
import socket
import string
import subprocess
import tempfile
import threading
import time
import types
import unittest

import harness
from harness import Server, in_background, wait_until

CHAT = "/v1/chat/completions"
TEXT = "word " * 2000 # at 20 ms a letter, or a word, it goes on until the test is over


def body(stream=False, text="hi", **more):
    return {"messages": [{"role": "user", "content": text}], "stream": stream, **more}


def start(server, path=CHAT, **more):
    c = server.connect()
    c.request("POST", path, body(**more) if path == CHAT else more)
    return c


def cancelled(server, *phases):
    return sum(server.metric('requests_cancelled_total{phase="%s"}' % phase) for phase in phases)


def present(server):
    return server.metric("requests_running") + server.metric("requests_waiting")


class Cancellation(unittest.TestCase):
    """The client goes away, and nothing is left of its request although the script stands still; the next one is answered."""

    def each(self):
        for stream in (False, True):
            yield stream, harness.Connection.reset
            yield stream, lambda c: c.socket.close()

    def goes(self, server, connection, phase, leave):
        before = cancelled(server, phase)
        leave(connection)
        wait_until(lambda: cancelled(server, phase) == before + 1)
        wait_until(lambda: present(server) == 0)
        server.release()
        self.assertEqual(server.chat(max_tokens=1).status, 200)
        server.hold()

    def test_while_the_request_is_made(self):
        with Server(hold=-1, SCRIPT_TEXT=TEXT) as server:
            for stream, leave in self.each():
                n = server.n_asked()
                c = start(server, stream=stream)
                wait_until(lambda: server.n_asked() == n + 1)
                self.goes(server, c, "preparing", leave)

    def test_in_the_prompt(self):
        with Server(hold=0, SCRIPT_TEXT=TEXT) as server:
            for stream, leave in self.each():
                n = len(server.started())
                c = start(server, stream=stream, text="x" * 3000)
                wait_until(lambda: len(server.started()) == n + 1)
                self.assertEqual(server.metric("requests_running"), 1)
                self.goes(server, c, "prefill", leave)

    def test_in_the_answer(self):
        with Server(hold=8, SCRIPT_TEXT=TEXT) as server:
            for stream, leave in self.each():
                c = start(server, stream=stream, max_tokens=2000)
                wait_until(lambda: max(slot["n_past"] for slot in server.get("/slots").json) > 25) # the prompt has 19 tokens
                self.goes(server, c, "decode", leave)

    def test_in_line(self):
        for stream in (False, True):
            with Server("--parallel", "1", SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=20) as server:
                first = start(server, stream=True)
                wait_until(lambda: server.metric("requests_running") == 1)
                second = start(server, stream=stream)
                wait_until(lambda: server.metric("requests_waiting") == 1)
                second.socket.close()
                wait_until(lambda: server.metric("requests_waiting") == 0)
                self.assertEqual(server.metric("requests_running"), 1)
                self.assertEqual(cancelled(server, "queued"), 1)
                first.socket.close()

    def test_who_only_stops_sending_gets_the_answer(self):
        for stream, hold in ((False, -1), (False, 3), (True, 0), (True, 3)):
            with Server(hold=hold) as server:
                c = start(server, stream=stream)
                wait_until(lambda: server.n_asked() == 1)
                if stream:
                    c.until(b'"content":""')
                c.socket.shutdown(socket.SHUT_WR)
                if stream:
                    c.until(b'"delta":{}') # the sign of life by which one that is gone would be known
                else:
                    self.assertEqual(c.head(), (100, {}))
                time.sleep(0.5) # in which one that is gone is forgotten
                server.release()
                rest = c.rest
                while c.more():
                    rest = c.rest
                self.assertTrue(rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if stream else b"Hello, world." in rest, rest)
                wait_until(lambda: present(server) == 0)
                self.assertEqual(cancelled(server, "preparing", "queued", "prefill", "decode"), 0)

    def test_so_does_who_sent_several_requests(self):
        with Server(hold=0) as server:
            c = server.connect()
            for path in (CHAT, CHAT):
                c.request("POST", path, body())
            c.request("GET", "/health")
            c.send("GET /health HTTP/1.1\r\n") # and this is no request yet
            wait_until(lambda: server.n_asked() == 1)
            c.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(c.head(), (100, {}))
            server.release()
            self.assertEqual([c.answer().status for _ in range(3)], [200] * 3)
            self.assertTrue(c.closed())

    def test_who_went_away_behind_its_last_byte(self):
        """Whoever only stopped sending may be gone a little later."""
        for leave in (harness.Connection.reset, lambda c: c.socket.close()):
            with Server(hold=3) as server:
                c = start(server, stream=True)
                c.until(b'"content":""')
                c.socket.shutdown(socket.SHUT_WR)
                time.sleep(0.3)
                leave(c)
                server.release()
                wait_until(lambda: server.metric("requests_running") == 0)

    def test_an_old_client_that_stops_sending_is_gone(self):
        """There is nothing in HTTP/1.0 that could be sent before the answer, to see whether it is still there."""
        with Server(hold=3) as server:
            c = server.connect()
            data = json.dumps(body())
            c.send("POST %s HTTP/1.0\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n%s" % (CHAT, c.host, len(data), harness.JSON, data))
            wait_until(lambda: server.metric("requests_running") == 1)
            c.socket.shutdown(socket.SHUT_WR)
            wait_until(lambda: server.metric("requests_running") == 0)
            self.assertEqual(cancelled(server, "queued", "prefill", "decode"), 1)

    def test_leaving_after_the_last_word_is_no_cancellation(self):
        with Server() as server:
            c = start(server, stream=True)
            c.until(b'"finish_reason":"stop"')
            c.socket.close()
            self.assertEqual(server.chat().status, 200)
            self.assertEqual(cancelled(server, "queued", "prefill", "decode"), 0)

    def test_between_several_answers(self):
        with Server(SCRIPT_TEXT=TEXT, SCRIPT_DELAY_MS=20) as server:
            c = start(server, stream=True, n=8, max_tokens=40)
            c.until(b'"index":1')
            c.socket.close()
            wait_until(lambda: server.metric("requests_running") == 0)
            self.assertEqual(cancelled(server, "queued", "prefill", "decode"), 1)

    def test_a_reader_that_does_not_read_is_dropped(self):
        with Server("-c", "3000000", SCRIPT_TEXT=("\1" * 2000 + " ") * 60, SCRIPT_WORDS=1) as server:
            c = server.connect()
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.request("POST", CHAT, body(stream=True, n=8)) # six megabytes of escapes
            wait_until(lambda: cancelled(server, "decode") == 1)
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
            self.assertNotIn(b'"queue_position":2', c[1].until(b'"content":"w'))
            c[2].until(b'"queue_position":1')
            for x in c[1:]:
                x.socket.close()

    def test_the_first_token_goes_out_at_once(self):
        """Alone, however soon others follow it."""
        for text, field in ((TEXT, b'"content":"'), ("<think>" + TEXT + "</think>", b'"reasoning_content":"')):
            with Server(SCRIPT_TEXT=text, SCRIPT_DELAY_MS=2) as server:
                c = start(server, stream=True)
                c.until(b'"content":""') # with the role
                c.until(field)
                self.assertEqual(c.until(b'"'), b'w"')

    def test_first_come_first_served(self):
        with Server("--parallel", "1", SCRIPT_DELAY_MS=5) as server:
            clients = []
            for i in range(5):
                clients.append(start(server, stream=True, text=str(i)))
                clients[-1].head()
            for c in clients:
                c.until(b"[DONE]")
            self.assertEqual(server.started(), ["[user]%d[assistant]" % i for i in range(5)])

    def test_several_at_a_time(self):
        with Server(SCRIPT_DELAY_MS=20, SCRIPT_TEXT=TEXT) as server:
            clients = [start(server, stream=True) for _ in range(4)]
            for c in clients:
                c.until(b'"content":"w')
            self.assertEqual(server.metric("requests_running"), 4)
            for c in clients:
                c.socket.close()
            one = server.chat(max_tokens=30)
            running = [in_background(lambda: server.chat(max_tokens=30)) for _ in range(4)]
            for t, got in running:
                t.join(harness.PATIENCE)
                self.assertEqual(got[0].json["choices"][0]["message"]["content"], one.json["choices"][0]["message"]["content"])

    def test_small_questions_never_wait(self):
        """Neither for a request that is being made, nor for a pass."""
        for hold in (-1, 0):
            with Server("--parallel", "1", hold=hold) as server:
                busy = [start(server) for _ in range(4)]
                wait_until(lambda: server.n_asked() == 1 if hold < 0 else server.metric("requests_waiting") == 3)
                for path in ("/health", "/v1/models", "/props", "/slots", "/metrics") * 3:
                    self.assertEqual(server.get(path).status, 200)
                self.assertEqual((server.n_asked(), len(server.started())), (1, 0) if hold < 0 else (4, 1))
                for c in busy:
                    c.socket.close()

    def test_headers_come_at_once(self):
        with Server(hold=0) as server:
            for path, more in [(CHAT, {"stream": True, "text": "x" * 100}), ("/v1/responses", {"input": "x" * 100, "stream": True}),
                               ("/v1/messages", {"messages": [{"role": "user", "content": "x" * 100}], "stream": True})]:
                c = start(server, path, **more)
                self.assertEqual(c.head()[0], 200)
                c.until(b"\n\n")
                c.socket.close()


class SignsOfLife(unittest.TestCase):
    """A hundred times sooner than for real clients, while the script stands still."""

    def run_stream(self, mark, path=CHAT, **more):
        """The answer with at least four of these in it, that came before any token."""
        with Server(hold=0, SWIFTLET_TEST_PULSE=100) as server:
            c = start(server, path, **more)
            seen = b"".join(c.until(mark) for _ in range(4))
            server.release()
            c.rest = seen + c.rest
            return c.answer()

    def test_chat(self):
        a = self.run_stream(b'"delta":{}', stream=True, return_progress=True)
        beats = [e for e in a.events() if e != "[DONE]" and e["choices"] and e["choices"][0]["delta"] == {} and not e["choices"][0]["finish_reason"]]
        self.assertGreaterEqual(len(beats), 3)
        self.assertIn("prompt_progress", beats[0])
        self.assertEqual(a.events()[-1], "[DONE]")

    def test_responses(self):
        a = self.run_stream(b"event: response.in_progress", "/v1/responses", input="hi", stream=True)
        events = [json.loads(data) for _, data in harness.frames(a.body)]
        self.assertGreaterEqual([e["type"] for e in events].count("response.in_progress"), 4)
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))

    def test_messages(self):
        a = self.run_stream(b"event: ping", "/v1/messages", messages=[{"role": "user", "content": "hi"}], stream=True)
        self.assertGreaterEqual([name for name, _ in harness.frames(a.body)].count("ping"), 4)

    def test_completions(self):
        a = self.run_stream(b'"text":""', "/v1/completions", prompt="hi", stream=True)
        self.assertEqual("".join(e["choices"][0]["text"] for e in a.events()[:-1]), "Hello, world.")
        self.assertGreaterEqual(len(a.events()), 5)

    def test_an_answer_in_one_piece(self):
        with Server(hold=0, SWIFTLET_TEST_PULSE=100) as server:
            for path, more in [(CHAT, {}), ("/v1/responses", {"input": "hi"}), ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}]})]:
                c = start(server, path, **more)
                status, headers = c.head()
                self.assertEqual((status, headers["transfer-encoding"]), (200, "chunked"))
                pieces = [c.chunk(), c.chunk()]
                self.assertEqual(pieces, [b" ", b" "])
                server.release()
                while pieces[-1]:
                    pieces.append(c.chunk())
                self.assertIn("Hello, world.", json.dumps(json.loads(b"".join(pieces))))
                server.hold()

    def test_a_fault_after_the_first_space(self):
        with Server(hold=0, SWIFTLET_TEST_PULSE=100, SCRIPT_FAIL_AT=2) as server:
            c = start(server)
            first = c.until(b"\r\n\r\n1\r\n \r\n")
            server.release()
            c.rest = first + c.rest
            a = c.answer()
            self.assertEqual((a.status, a.error["type"]), (200, "server_error"))

    def test_as_often_as_the_client_likes(self):
        with Server(hold=0, SWIFTLET_TEST_PULSE=5) as server:
            plain, often = start(server, stream=True), start(server, stream=True, sse_ping_interval=1)
            for _ in range(7):
                often.until(b'"delta":{}')
            plain.socket.settimeout(0.01)
            with self.assertRaises(socket.timeout):
                while plain.more():
                    pass
            self.assertLess(plain.rest.count(b'"delta":{}'), 4)


class Control(unittest.TestCase):
    def test_reasoning_can_be_ended(self):
        with Server(SCRIPT_DELAY_MS=20, SCRIPT_WORDS=1, SCRIPT_TEXT="<think>" + "hm " * 3000 + "</think>Now.") as server:
            c = start(server, stream=True, max_tokens=3500)
            first = json.loads(c.until(b"hm").split(b"data: ")[1].split(b"\n")[0])
            a = server.post(CHAT + "/control", {"id": first["id"], "action": "reasoning_end"})
            self.assertEqual((a.status, a.json), (200, {"success": True}))
            rest = c.until(b"[DONE]").decode()
            text = "".join(re.findall(r'"content":"([^"]*)"', rest))
            self.assertTrue(text.endswith("Now."), text)
            self.assertLess(rest.count("hm"), 2900)
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
            self.assertIn("[user]verysecret", server.logged(1))

    def test_unknown_fields_are_named(self):
        with Server() as server:
            server.chat(no_such_field="verysecret", **{"very secret": 1, "store": True})
            self.assertIn('unknown field "no_such_field"', server.logged(1))
            self.assertNotRegex(server.stderr(), "secret|store")

    def test_nothing_of_a_prompt_is_logged(self):
        with Server(SCRIPT_FAIL_AT=3) as server:
            for more in ({}, {"temperature": "verysecret"}, {"tools": [{"type": "verysecret"}]}, {"stream": True}):
                server.chat("verysecret", **more)
            server.post(CHAT, '{"verysecret":')
            server.get("/v1/models/verysecret?verysecret")
            self.assertNotIn("verysecret", server.logged(6))


    def test_too_many_open_files(self):
        """Who comes then waits, the log has it once, and no processor is burnt; a connection that is merely kept open makes room."""
        def processor_seconds(server):
            with open("/proc/%d/stat" % server.process.pid) as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        with Server(hold=3) as server:
            files = "/proc/%d/fd" % server.process.pid
            room = [start(server) for _ in range(2)]
            wait_until(lambda: present(server) == 2)
            idle = server.connect()
            idle.request("GET", "/health")
            self.assertEqual(idle.answer().status, 200)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(files))) + 1,) * 2)
            waiting = [start(server) for _ in range(3)]
            self.assertTrue(idle.closed())
            wait_until(lambda: "cannot be accepted: Too many open files" in server.stderr())
            before = processor_seconds(server)
            time.sleep(1)
            self.assertLess(processor_seconds(server) - before, 0.5)
            server.release()
            for c in room + waiting:
                self.assertEqual(c.answer().status, 200)
                c.socket.close()
            self.assertEqual(server.chat().status, 200)
            self.assertEqual(server.stderr().count("cannot be accepted"), 1)
            self.assertNotIn("[warn]", server.stderr())


class ALogThatNobodyReads(unittest.TestCase):
    """Standard error is a pipe that is full from the beginning."""
    FIELDS = {"field_%s%s" % (a, b): 1 for a in string.ascii_lowercase for b in string.ascii_lowercase}  # a line for each

    def setUp(self):
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(self.write, b"x" * 4096)
        os.set_blocking(self.write, True)

    def tearDown(self):
        os.close(self.read)
        if self.write:
            os.close(self.write)

    def test_nobody_waits_for_it_and_what_was_lost_is_told(self):
        got = []
        with Server("--log-prompts", stderr=self.write) as server:
            for _ in range(30):
                self.assertEqual(server.chat(max_tokens=1, **self.FIELDS).status, 200)
            self.assertEqual(server.get("/health").status, 200)
            reader = threading.Thread(target=lambda: got.extend(iter(lambda: os.read(self.read, 65536), b"")), daemon=True)
            reader.start()
            wait_until(lambda: re.search(rb"swiftlet: [1-9]\d* lines of the log were lost", b"".join(got)))
            server.get("/nowhere")
            wait_until(lambda: b"GET other 404" in b"".join(got))
        os.close(self.write)
        reader.join()
        self.write = None

    def test_it_does_not_keep_the_server_from_ending(self):
        with Server(stderr=self.write) as server:
            server.chat(max_tokens=1, **self.FIELDS)
            self.assertEqual(server.stop(signal.SIGTERM), 0)
            server.stop = lambda: None

    def end_of(self, *options, use=None, stdout=subprocess.DEVNULL, **script):
        """The exit status of a server that ends with an error, or that is ended once use(ask) has used it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            p = subprocess.Popen([harness.PROGRAM, "serve", folder, "--host", "unix:" + path, *options], stdout=stdout,
                                 stderr=self.write, env=harness.environment(**script))

            def ask(*request):
                with harness.Connection(types.SimpleNamespace(path=path, host="localhost")) as c:
                    c.request(*request)
                    return c.answer()

            try:
                if use:
                    wait_until(lambda: os.path.exists(path) and ask("GET", "/health").status == 200)
                    use(ask)
                    p.send_signal(signal.SIGTERM)
                return p.wait(harness.PATIENCE)
            finally:
                p.kill()
                p.wait()

    def test_nor_from_beginning(self):
        def use(ask):
            self.assertEqual(ask("GET", "/props").json["total_slots"], 3)

        self.assertEqual(self.end_of("--parallel", "8", use=use, SCRIPT_SESSIONS="3"), 0)
        with Server("--parallel", "8", SCRIPT_SESSIONS=3) as server:
            wait_until(lambda: "3 conversations at a time, not 8" in server.stderr())

    def test_its_last_error_does_not_keep_it_either(self):
        self.assertEqual(self.end_of(SCRIPT_OPEN="3"), 4)

    def test_nor_does_an_error_behind_lines_of_the_log(self):
        def use(ask):
            self.assertEqual(ask("POST", CHAT, body(max_tokens=1, **self.FIELDS)).status, 200)

        with open("/dev/full", "w") as full:  # for its first line
            self.assertEqual(self.end_of(use=use, stdout=full), 4)


class TheEnd(unittest.TestCase):
    """Grace is longer here than anybody waits: what ends, ends without it."""

    def test_without_work_it_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = Server("--grace", "600s")
            idle = server.connect()
            idle.request("GET", "/health")
            idle.answer()
            self.assertEqual(server.stop(number), 0)

    def test_running_answers_are_finished(self):
        server = Server("--grace", "600s", hold=5, SCRIPT_TEXT="x" * 40)
        streamed, whole = start(server, stream=True), start(server)
        wait_until(lambda: server.metric("requests_running") == 2)
        other = server.connect()
        other.request("GET", "/health")
        self.assertEqual(other.answer().status, 200)
        server.process.send_signal(signal.SIGTERM)
        wait_until(server.is_gone)
        other.request("POST", CHAT, body())
        a = other.answer()
        self.assertEqual((a.status, a.error["type"], a.headers["retry-after"]), (503, "unavailable_error", "2"))
        server.release()
        self.assertEqual(whole.answer().json["choices"][0]["message"]["content"], "x" * 40)
        self.assertEqual(streamed.answer().events()[-1], "[DONE]")
        self.assertEqual(server.process.wait(harness.PATIENCE), 0)
        server.stop()

    def test_long_answers_are_cut_when_grace_is_over(self):
        server = Server("--grace", "1s", hold=5)
        streamed, whole = start(server, stream=True), start(server)
        wait_until(lambda: server.metric("requests_running") == 2)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(streamed.answer().events()[-1]["error"]["type"], "unavailable_error")
        self.assertGreater(time.monotonic() - begin, 0.9)
        self.assertEqual(whole.answer().status, 503)
        self.assertEqual(server.process.wait(harness.PATIENCE), 0)
        server.stop()

    def test_a_second_signal_does_not_wait(self):
        server = Server("--grace", "600s", hold=5)
        c = start(server, stream=True)
        wait_until(lambda: server.metric("requests_running") == 1)
        server.process.send_signal(signal.SIGTERM)
        wait_until(server.is_gone)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(harness.PATIENCE), 0)
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
                t.join(2 * harness.PATIENCE)
            wait_until(lambda: present(server) == 0)
            self.assertEqual(server.chat().json["choices"][0]["message"], plain)
            self.assertEqual(server.stop(signal.SIGTERM), 0)


if __name__ == "__main__":
    harness.main()
