#!/usr/bin/env python3
"""The server's HTTP: framing, limits, who may come in, what every answer has. Byte by byte, on a scripted engine.

usage: test_http.py PROGRAM     (the program built with scripted.c)
"""
import gzip
import json
import os
import select
import socket
import stat
import tempfile
import time
import unittest
import zlib

import harness
from harness import JSON, Server, Shared, wait_until

CHAT = "/v1/chat/completions"
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}]})


def rss(server):
    """Nothing of a program with a sanitizer, which keeps what was freed."""
    with open(harness.PROGRAM, "rb") as f:
        if b"__asan_init" in f.read():
            return 0
    with open("/proc/%d/statm" % server.process.pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Framing(Shared):
    def raw(self, data):
        with self.server.connect() as c:
            c.send(data)
            return c.answer()

    def refused(self, data, status=400):
        """The answer says so, and the connection ends."""
        with self.server.connect() as c:
            c.send(data)
            a = c.answer()
            self.assertEqual(a.status, status, a)
            self.assertTrue(c.closed(), data)
            self.assertEqual(a.headers["connection"], "close")
            self.assertIn("message", a.error)
        return a

    def head(self, *lines, target="/health", method="GET", version="HTTP/1.1"):
        return "\r\n".join(["%s %s %s" % (method, target, version), "Host: " + self.server.host, *lines, "", ""])

    def test_a_plain_request_keeps_the_connection(self):
        with self.server.connect() as c:
            for _ in range(3):
                c.request("GET", "/health")
                a = c.answer()
                self.assertEqual((a.status, a.json), (200, {"status": "ok"}))

    def test_requests_sent_together_are_answered_in_order(self):
        with self.server.connect() as c:
            c.send(self.head() * 3 + self.head(target="/nowhere") + self.head())
            self.assertEqual([c.answer().status for _ in range(5)], [200, 200, 200, 404, 200])

    def test_a_request_may_come_byte_by_byte(self):
        with self.server.connect() as c:
            c.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = "POST %s HTTP/1.1\r\nHost: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
                CHAT, self.server.host, JSON, len(BODY), BODY)
            for byte in data:
                c.send(byte)
            self.assertEqual(c.answer().status, 200)

    def test_chunks_of_any_size_make_the_body(self):
        for size in (1, 7, 4096):
            chunks = "".join("%x;name=value\r\n%s\r\n" % (len(BODY[i:i + size]), BODY[i:i + size]) for i in range(0, len(BODY), size))
            a = self.raw("POST %s HTTP/1.1\r\nHost: %s\r\n%sTransfer-Encoding: Chunked\r\n\r\n%s0\r\nTrailer: x\r\n\r\n" % (
                CHAT, self.server.host, JSON, chunks))
            self.assertEqual(a.status, 200, a)

    def test_bad_chunks_are_refused(self):
        start = "POST %s HTTP/1.1\r\nHost: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n" % (CHAT, self.server.host, JSON)
        for chunks in ["x\r\n", "\r\n", "2\nab\r\n", "2\r\nabc\r\n", "-1\r\n", "0x2\r\nab\r\n", "2 \r\nab\r\n", "1;\x01\r\na\r\n",
                       "fffffffffffffffff\r\n", "0\r\nbad trailer\x00\r\n\r\n", "1;" + "e" * 300 + "\r\n"]:
            self.refused(start + chunks)

    def test_ambiguous_lengths_are_refused(self):
        for lines in [["Content-Length: 2", "Transfer-Encoding: chunked"], ["Content-Length: 2", "Content-Length: 2"],
                      ["Content-Length: 2", "Content-Length: 3"], ["Content-Length: 2, 2"], ["Content-Length: +2"],
                      ["Content-Length: 0x2"], ["Content-Length: -1"], ["Content-Length:"], ["Content-Length: 2 3"],
                      ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], ["Transfer-Encoding : chunked"]]:
            self.refused(self.head(JSON.strip(), *lines, target=CHAT, method="POST") + "{}")

    def test_other_transfer_codings_are_not_implemented(self):
        for coding in ["gzip, chunked", "identity", "xchunked", "chunked, chunked", "\x0bchunked"]:
            self.refused(self.head("Transfer-Encoding: " + coding, target=CHAT, method="POST"), 400 if coding[0] < " " else 501)

    def test_a_chunked_body_is_not_http_1_0(self):
        self.refused(self.head("Transfer-Encoding: chunked", target=CHAT, method="POST", version="HTTP/1.0"))

    def test_malformed_heads_are_refused(self):
        host = "Host: " + self.server.host
        for data in ["GET /health\r\n%s\r\n\r\n" % host, "GET  /health HTTP/1.1\r\n%s\r\n\r\n" % host,
                     "GET /health HTTP/1.1 \r\n%s\r\n\r\n" % host, "GET health HTTP/1.1\r\n%s\r\n\r\n" % host,
                     "G(T /health HTTP/1.1\r\n%s\r\n\r\n" % host, "GET /hea\tlth HTTP/1.1\r\n%s\r\n\r\n" % host,
                     "GET /h\u00e9 HTTP/1.1\r\n%s\r\n\r\n" % host, "GET /%%zz HTTP/1.1\r\n%s\r\n\r\n" % host,
                     "GET /%%00 HTTP/1.1\r\n%s\r\n\r\n" % host, "GET /health HTTP/1.1\n%s\n\n" % host,
                     "GET /health HTTP/1.1\r\n%s\n\r\n" % host, "GET /health HTTP/1.1\r\n%s\r\rX: y\r\n\r\n" % host,
                     "GET /health HTTP/1.1\r\n%s\r\nX: a\x01b\r\n\r\n" % host, "GET /health HTTP/1.1\r\n%s\r\nX: a\x7fb\r\n\r\n" % host,
                     "GET /health HTTP/1.1\r\n%s\r\nX: a\x00b\r\n\r\n" % host, "GET /health HTTP/1.1\r\n%s\r\nX y\r\n\r\n" % host,
                     "GET /health HTTP/1.1\r\n%s\r\n: y\r\n\r\n" % host, "GET /health HTTP/1.1\r\n%s\r\nX: a\r\n b\r\n\r\n" % host,
                     "GET /health HTTP/1.1\r\n%s\r\nX : a\r\n\r\n" % host, "GET /health HTTPS/1.1\r\n%s\r\n\r\n" % host,
                     "GET /health HTTP/1.x\r\n%s\r\n\r\n" % host]:
            self.refused(data)
        self.refused("GET /health HTTP/2.0\r\n%s\r\n\r\n" % host, 505)

    def test_an_absolute_target_is_its_path(self):
        self.assertEqual(self.raw(self.head(target="http://%s/health?x=1" % self.server.host)).status, 200)

    def test_empty_lines_before_a_request_are_skipped(self):
        self.assertEqual(self.raw("\r\n\r\n" + self.head()).status, 200)

    def test_the_host_is_needed_once(self):
        for data in ["GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.0\r\n\r\n", "GET /health HTTP/1.1\r\nHost:\r\n\r\n",
                     self.head("Host: " + self.server.host), "GET /health HTTP/1.1\r\nHost: localhost:x\r\n\r\n"]:
            with self.server.connect() as c:
                c.send(data)
                self.assertEqual(c.answer().status, 400, data)

    def test_http_1_0_is_answered_and_closed(self):
        with self.server.connect() as c:
            c.send(self.head(version="HTTP/1.0"))
            self.assertEqual(c.answer().status, 200)
            self.assertTrue(c.closed())
        with self.server.connect() as c:
            body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True})
            c.send(self.head(JSON.strip(), "Content-Length: %d" % len(body), target=CHAT, method="POST", version="HTTP/1.0") + body)
            a = c.answer()
            self.assertNotIn("transfer-encoding", a.headers)
            self.assertEqual(a.events()[-1], "[DONE]")

    def test_connection_close_is_kept(self):
        with self.server.connect() as c:
            c.request("GET", "/health", headers="Connection: close\r\n")
            a = c.answer()
            self.assertEqual(a.headers["connection"], "close")
            self.assertTrue(c.closed())

    def test_expectations_are_answered(self):
        with self.server.connect() as c:
            c.send(self.head(JSON.strip(), "Content-Length: %d" % len(BODY), "Expect: 100-continue", target=CHAT, method="POST"))
            self.assertEqual(c.until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n")
            c.send(BODY)
            self.assertEqual(c.answer().status, 200)
        self.refused(self.head("Expect: miracles"), 417)

    def test_refusals_come_before_the_body_is_asked_for(self):
        a = self.refused(self.head(JSON.strip(), "Content-Length: 99999999999", "Expect: 100-continue", target=CHAT, method="POST"), 413)
        self.assertEqual(a.error["type"], "invalid_request_error")

    def test_long_heads_are_refused(self):
        self.refused(self.head("X: " + "a" * 33000), 431)
        self.refused(self.head(*("X%d: a" % i for i in range(200))), 431)
        self.refused("GET /" + "a" * 40000, 431)
        self.assertEqual(self.raw(self.head("X: " + "a" * 31000)).status, 200)

    def test_head_has_no_body(self):
        for path in ("/health", "/v1/models", "/"):
            with self.server.connect() as c:
                c.request("HEAD", path)
                a = c.answer("HEAD")
                c.request("GET", path)
                b = c.answer()
                self.assertEqual((a.status, a.headers["content-length"]), (200, b.headers["content-length"]))

    def test_wrong_methods_are_told_the_right_ones(self):
        for method, path, allow in [("GET", CHAT, "POST"), ("DELETE", "/v1/models", "GET"), ("PUT", "/health", "GET"),
                                    ("POST", "/metrics", "GET"), ("POST", "/v1/models/tiny", "GET")]:
            a = self.server.ask(method, path)
            self.assertEqual(a.status, 405, path)
            self.assertIn(allow, a.headers["allow"])

    def test_paths_are_known_with_and_without_the_last_slash_and_the_query(self):
        for path in ("/health", "/health/", "/v1/health", "/v1/models/", "/models?x=y", "/v1/models?beta=true", "/v1//models"):
            self.assertEqual(self.server.get(path).status, 404 if "//" in path else 200, path)
        for path in ("/nowhere", "/v1", "/v1/chat", "/v2/models", "/healthx", "/assets/none.js", "/assets/../etc/passwd"):
            a = self.server.get(path)
            self.assertEqual((a.status, a.error["type"], a.error["code"]), (404, "not_found_error", None), path)

    def test_every_answer_has_its_headers(self):
        seen = set()
        for a in [self.server.get("/health"), self.server.get("/nowhere"), self.server.chat(), self.server.chat(stream=True),
                  self.server.get("/"), self.server.post(CHAT, "{")]:
            self.assertEqual(a.headers["x-content-type-options"], "nosniff")
            self.assertRegex(a.headers["x-request-id"], "^req_[A-Za-z0-9]{24}$")
            seen.add(a.headers["x-request-id"])
            self.assertEqual(a.headers.get("x-should-retry"), "false" if a.status >= 400 else None)
        self.assertEqual(len(seen), 6)

    def test_the_page_has_its_policy(self):
        a = self.server.get("/")
        policy = a.headers["content-security-policy"]
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]:
            self.assertIn(part, policy)
        self.assertEqual((a.headers["referrer-policy"], a.headers["cross-origin-opener-policy"]), ("no-referrer", "same-origin"))
        self.assertTrue(a.headers["content-type"].startswith("text/html"))

    def test_many_bytes_ahead_are_not_stored(self):
        """They are read and forgotten, so that it is noticed when the client goes away; the answer comes, and is the last."""
        for stream in (False, True):
            with Server(hold="0") as server, server.connect() as c:
                c.request("POST", CHAT, {"messages": [{"role": "user", "content": "x"}], "stream": stream})
                wait_until(lambda: server.metric("requests_running") == 1)
                before = rss(server)
                for _ in range(200):
                    c.send(b"x" * 65536)
                self.assertLess(rss(server), before + (4 << 20))
                server.release()
                a = c.answer()
                self.assertEqual((a.status, a.headers["connection"]), (200, "keep-alive" if stream else "close"))
                self.assertTrue(c.closed())
        with Server(hold="0") as server, server.connect() as c:
            c.request("POST", CHAT, {"messages": [{"role": "user", "content": "x"}]})
            wait_until(lambda: server.metric("requests_running") == 1)
            for _ in range(200):
                c.send(b"x" * 65536)
            c.reset()
            wait_until(lambda: server.metric('requests_cancelled_total{phase="prefill"}') == 1)


class Bodies(Shared):
    options = ("--max-body", "100K")

    def test_types(self):
        for headers, status in [("Content-Type: application/json\r\n", 200), ("Content-Type: application/json; charset=utf-8\r\n", 200),
                                ("Content-Type: Application/JSON\r\n", 200), ("Content-Type: text/plain\r\n", 415),
                                ("Content-Type: application/jsonx\r\n", 415), ("Content-Type: multipart/form-data; boundary=x\r\n", 415)]:
            self.assertEqual(self.server.post(CHAT, BODY, headers).status, status, headers)

    def test_no_type_is_one_unless_a_page_sends_it(self):
        for origin, status in [("", 200), ("Origin: http://localhost\r\n", 415)]:
            with self.server.connect() as c:
                c.send("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n%s" % (CHAT, c.host, origin, len(BODY), BODY))
                self.assertEqual(c.answer().status, status)

    def test_gzip_is_inflated_within_the_limit(self):
        zipped = "Content-Encoding: gzip\r\n"
        self.assertEqual(self.server.post(CHAT, gzip.compress(BODY.encode()), zipped).status, 200)
        bomb = gzip.compress(b'{"messages": [{"role": "user", "content": "' + b"a" * 5000000 + b'"}]}')
        self.assertLess(len(bomb), 100000)
        self.assertEqual(self.server.post(CHAT, bomb, zipped).status, 413)
        for bad in (b"", b"{}", zlib.compress(BODY.encode()), gzip.compress(BODY.encode())[:-9]):
            self.assertEqual(self.server.post(CHAT, bad, zipped).status, 400, bad)
        self.assertEqual(self.server.post(CHAT, b"x", "Content-Encoding: br\r\n").status, 415)

    def test_the_limit_holds_for_every_framing(self):
        big = json.dumps({"messages": [{"role": "user", "content": "a" * 110000}]})
        self.assertEqual(self.server.post(CHAT, big).status, 413)
        with self.server.connect() as c:
            c.send("POST %s HTTP/1.1\r\nHost: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n" % (CHAT, c.host, JSON))
            try:
                for i in range(4):
                    c.send("8000\r\n" + "a" * 0x8000 + "\r\n")
            except OSError:
                pass
            self.assertEqual(c.answer().status, 413)

    def test_bad_json_is_told_where(self):
        for body in ["", "{", "[]", "nul", '{"a":1,}', "{'a':1}", '{"a":01}', '{"a":"\n"}', '{"a":"\\x"}', '{"a":1}x', "\ufeff", '"x"', "1"]:
            a = self.server.post(CHAT, body)
            self.assertEqual((a.status, a.error["type"], a.error["code"]), (400, "invalid_request_error", "invalid_value"), body)

    def test_depth_is_limited(self):
        deep = lambda n: '{"messages":[{"role":"user","content":"x"}],"metadata":%s%s}' % ("[" * n, "]" * n)
        self.assertEqual(self.server.post(CHAT, deep(126)).status, 200)
        a = self.server.post(CHAT, deep(128))
        self.assertEqual(a.status, 400)
        self.assertIn("128", a.error["message"])
        self.assertEqual(self.server.post(CHAT, deep(40000)).status, 400)

    def test_strange_text_is_made_whole(self):
        body = b'{"messages":[{"role":"user","content":"a\xffb\\ud800c\\u0000d\xed\xa0\x80\\ud83d\\ude00\xf0\x9f\x98\x80"}]}'
        self.assertEqual(self.server.post(CHAT, body).status, 200)
        text = json.loads(self.server.asked()["messages"])[0]["content"]
        self.assertEqual(text, "a\ufffdb\ufffdc\0d\ufffd\ufffd\ufffd\U0001f600\U0001f600")

    def test_a_mark_before_the_text_is_dropped(self):
        self.assertEqual(self.server.post(CHAT, b"\xef\xbb\xbf" + BODY.encode()).status, 200)


class Memory(Shared):
    """What requests take together stays within a share of --memory: here 32 MiB."""
    options = ("--memory", "480M", "--ctx", "100000")
    script = {"SCRIPT_TEXT": "x" * 20000}

    def test_one_body(self):
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
        self.assertEqual(self.server.post(CHAT, {**body, "metadata": "a" * 500000}).status, 200)
        a = self.server.post(CHAT, {**body, "metadata": "a" * 530000})
        self.assertEqual(a.status, 413)
        self.assertIn("524288", a.error["message"])
        self.assertEqual(self.server.post(CHAT, {**body, "metadata": [[]] * 10000}).status, 200)
        self.assertEqual(self.server.post(CHAT, {**body, "metadata": [1] * 30000}).status, 200)
        a = self.server.post(CHAT, {**body, "metadata": [[]] * 20000})
        self.assertEqual((a.status, a.error["message"]), (400, "the body's JSON has too many values"))
        for n, status in ((5000, 200), (20000, 400)):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps([{}] * n)}}
            a = self.server.post(CHAT, {**body, "messages": [*body["messages"], {"role": "assistant", "tool_calls": [call]},
                                                             {"role": "tool", "tool_call_id": "c", "content": "x"}]})
            self.assertEqual(a.status, status, a)

    def test_all_bodies_together(self):
        head = "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 510000\r\n\r\n" % (CHAT, self.server.host, JSON)
        waiting = [self.server.connect() for _ in range(18)]
        for c in waiting:
            try:
                c.send(head + "a" * 500000)
            except OSError:
                pass  # refused already
        ready, _, _ = select.select([c.socket for c in waiting], [], [], 30)
        a = next(c for c in waiting if c.socket in ready).answer()
        self.assertEqual((a.status, a.headers["retry-after"]), (503, "2"), a)
        for c in waiting:
            c.socket.close()
        wait_until(lambda: self.server.chat(max_tokens=5, metadata="a" * 500000).status == 200)

    def test_one_answer(self):
        self.assertEqual(len(self.server.chat().json["choices"][0]["message"]["content"]), 20000)
        a = self.server.chat(logprobs=True, top_logprobs=20)
        self.assertEqual((a.status, a.error["type"]), (400, "invalid_request_error"), a)
        self.assertIn("larger than", a.error["message"])
        self.assertEqual(self.server.chat(logprobs=True, top_logprobs=20, max_tokens=100).status, 200)
        text = "ab" * 50000  # each byte is a token here, and one of them is 20 bytes of the answer
        a = self.server.post("/tokenize", {"content": text, "with_pieces": True})
        self.assertEqual((a.status, len(a.json["tokens"])), (200, 100000))
        a = self.server.post("/tokenize", {"content": text * 4, "with_pieces": True})
        self.assertEqual((a.status, a.error["message"]), (400, "the answer would be larger than the 4194304 bytes that there is memory for"))

    def test_answers_that_nobody_reads(self):
        body = {"content": "ab" * 50000, "with_pieces": True}
        answered = lambda: self.server.stderr().count("POST tokenize")
        before, already = rss(self.server), answered()
        waiting = [self.server.connect() for _ in range(40)]
        for c in waiting:
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.request("POST", "/tokenize", body)
        wait_until(lambda: answered() == already + 40)
        self.assertLess(rss(self.server), before + (32 << 20))
        self.assertIn(503, [c.answer().status for c in waiting[-10:]])
        for c in waiting:
            c.socket.close()
        wait_until(lambda: self.server.post("/tokenize", body).status == 200)

    def test_large_events_reach_who_reads_them(self):
        """Events of Responses repeat what was asked, several of them at once."""
        a = self.server.post("/v1/responses", {"input": "hi", "instructions": "x" * 90000, "stream": True, "max_output_tokens": 5})
        self.assertEqual(a.status, 200)
        self.assertEqual([e["type"] for e in a.events()][::len(a.events()) - 1], ["response.created", "response.incomplete"])
        self.assertGreater(len(a.body), 270000)


class Visitors(Shared):
    options = ("--allowed-hosts", "my.box,other.box", "--cors-origins", "https://app.example")

    def ask(self, *headers, method="GET", path="/v1/models", host=None):
        with self.server.connect() as c:
            c.send("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, path, host or c.host, "".join(h + "\r\n" for h in headers)))
            return c.answer(method)

    def test_only_own_names(self):
        for host, status in [("localhost", 200), ("LOCALHOST:1", 200), ("127.0.0.1", 200), ("127.1.2.3:80", 200), ("[::1]:8080", 200),
                             ("my.box", 200), ("MY.BOX:80", 200), ("other.box", 200), ("evil.com", 403), ("127.0.0.1.evil.com", 403),
                             ("localhost.evil.com", 403), ("127.1", 403), ("my.box.evil.com", 403), ("0.0.0.0", 403), ("[::2]", 403),
                             ("192.168.0.1", 403), ("127.0.0.1@evil.com", 400), ("a b", 403)]:
            a = self.ask(host=host)
            self.assertIn(a.status, (status,) if status != 400 else (400, 403), host)
            if a.status == 403:
                self.assertEqual(a.error["type"], "permission_error")

    def test_only_known_origins(self):
        for origin, status in [("http://localhost:3000", 200), ("http://127.0.0.1", 200), ("https://[::1]:5", 200), ("https://app.example", 200),
                               ("https://app.example.evil", 403), ("http://app.example", 403), ("http://evil.com", 403), ("null", 403),
                               ("http://localhost.evil.com", 403), ("file://", 403), ("", 403), ("chrome-extension://abc", 403)]:
            a = self.ask("Origin: " + origin)
            self.assertEqual(a.status, status, origin)
            self.assertEqual(a.headers.get("access-control-allow-origin"), origin if status == 200 else None)
            self.assertEqual(a.headers.get("vary"), "Origin" if status == 200 else None)
            self.assertNotIn("access-control-allow-credentials", a.headers)

    def test_other_sites_are_known_by_the_browsers_word(self):
        self.assertEqual(self.ask("Sec-Fetch-Site: cross-site").status, 403)
        self.assertEqual(self.ask("Sec-Fetch-Site: same-origin").status, 200)
        self.assertEqual(self.ask("Sec-Fetch-Site: none").status, 200)
        self.assertEqual(self.ask("Sec-Fetch-Site: cross-site", "Origin: https://app.example").status, 200)

    def test_refused_before_the_body(self):
        a = self.ask("Origin: http://evil.com", "Content-Length: 1000000", JSON.strip(), method="POST", path=CHAT)
        self.assertEqual((a.status, a.headers["connection"]), (403, "close"))

    def test_preflight(self):
        a = self.ask("Origin: https://app.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true",
                     "Access-Control-Request-Headers: authorization, content-type,X-Api-Key,anthropic-beta, x-stainless-os, cookie, x-evil",
                     method="OPTIONS", path=CHAT)
        self.assertEqual((a.status, a.body), (204, b""))
        self.assertEqual(a.headers["access-control-allow-headers"], "authorization, content-type, X-Api-Key, anthropic-beta, x-stainless-os")
        self.assertEqual(a.headers["access-control-allow-private-network"], "true")
        self.assertIn("POST", a.headers["access-control-allow-methods"])
        a = self.ask("Origin: http://evil.com", "Access-Control-Request-Private-Network: true", method="OPTIONS", path=CHAT)
        self.assertEqual(a.status, 403)
        self.assertNotIn("access-control-allow-private-network", a.headers)

    def test_without_a_key_any_key_will_do(self):
        for header in ("Authorization: Bearer none", "Authorization: Bearer ", "x-api-key: x"):
            self.assertEqual(self.ask(header).status, 200)


class Keys(Shared):
    options = ("--api-key", "first-key", "--api-key", "second-key")

    def test_keys_are_asked_for(self):
        for header, status in [("", 401), ("Authorization: Bearer first-key\r\n", 200), ("authorization: bearer second-key\r\n", 200),
                               ("x-api-key: first-key\r\n", 200), ("x-api-key: first-ke\r\n", 401), ("x-api-key: first-keyy\r\n", 401),
                               ("Authorization: Basic first-key\r\n", 401), ("x-api-key:\r\n", 401), ("Authorization: Bearer\r\n", 401)]:
            a = self.server.get("/v1/models", header)
            self.assertEqual(a.status, status, header)
            if status == 401:
                self.assertEqual((a.error["type"], a.error["code"]), ("authentication_error", "invalid_api_key"))
                self.assertEqual(a.headers["www-authenticate"], "Bearer")
                self.assertNotIn("first-key", a.body.decode())

    def test_some_things_are_open(self):
        for path in ("/health", "/v1/health", "/"):
            self.assertEqual(self.server.get(path).status, 200)
        self.assertEqual(self.server.ask("OPTIONS", "/v1/models").status, 204)
        for path in ("/metrics", "/props", "/slots", "/nowhere"):
            self.assertEqual(self.server.get(path).status, 401, path)

    def test_the_answer_is_in_the_paths_dialect(self):
        a = self.server.post("/v1/messages", {})
        self.assertEqual((a.status, a.json["type"], a.error["type"]), (401, "error", "authentication_error"))

    def test_keys_do_not_reach_the_log(self):
        self.server.get("/v1/models", "x-api-key: first-key\r\n")
        self.server.get("/v1/models", "x-api-key: wrong-key\r\n")
        self.assertNotRegex(self.server.logged(2), "first-key|second-key|wrong-key")


class Places(unittest.TestCase):
    def test_another_address_needs_a_key(self):
        for options, ok in [((), False), (("--insecure",), True), (("--api-key", "k"), True)]:
            try:
                with Server("--host", "0.0.0.0", *options) as server:
                    self.assertTrue(ok)
                    self.assertEqual(server.get("/health").status, 200)
            except AssertionError as e:
                self.assertFalse(ok, e)
                self.assertIn("API key", str(e))

    def test_with_a_key_elsewhere_the_name_does_not_matter(self):
        with Server("--host", "0.0.0.0", "--api-key", "k") as server, server.connect() as c:
            c.send("GET /v1/models HTTP/1.1\r\nHost: some.name\r\nx-api-key: k\r\n\r\n")
            self.assertEqual(c.answer().status, 200)

    def test_insecure_still_looks_at_the_name(self):
        with Server("--host", "0.0.0.0", "--insecure") as server, server.connect() as c:
            c.send("GET /v1/models HTTP/1.1\r\nHost: evil.com\r\n\r\n")
            self.assertEqual(c.answer().status, 403)

    def test_a_key_file(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("one\ntwo\n")
            f.flush()
            with Server("--api-key-file", f.name) as server:
                self.assertEqual(server.get("/v1/models", "x-api-key: two\r\n").status, 200)
                self.assertEqual(server.get("/v1/models", "x-api-key: one\ntwo\r\n").status, 400)

    def test_a_key_from_the_environment(self):
        with Server(SWIFTLET_API_KEY="secret") as server:
            self.assertEqual(server.get("/v1/models").status, 401)
            self.assertEqual(server.get("/v1/models", "x-api-key: secret\r\n").status, 200)

    def test_keys_are_not_shown_with_the_settings(self):
        import subprocess
        p = subprocess.run([harness.PROGRAM, "info", "--config"], env=harness.environment(SWIFTLET_API_KEY="secret"), capture_output=True)
        self.assertEqual(p.returncode, 0)
        self.assertNotIn(b"secret", p.stdout + p.stderr)

    def test_a_socket_in_the_file_system(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.sock")
            server = Server("--host", "unix:" + path)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            self.assertEqual(server.get("/health").status, 200)
            self.assertEqual(server.stop(15), 0)
            self.assertFalse(os.path.exists(path))

    def test_a_socket_that_is_served_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.sock")
            with Server("--host", "unix:" + path) as server:
                with self.assertRaisesRegex(AssertionError, "cannot listen.*in use"):
                    Server("--host", "unix:" + path)
                self.assertEqual(server.get("/health").status, 200)
                server.stop()  # killed
            self.assertTrue(os.path.exists(path))
            with Server("--host", "unix:" + path) as server:  # nobody is behind what was left
                self.assertEqual(server.get("/health").status, 200)

    def test_a_port_that_is_taken_is_an_error(self):
        with Server() as server:
            with self.assertRaisesRegex(AssertionError, "cannot listen on port %d of 127.0.0.1: .*in use" % server.port):
                Server("--port", str(server.port))

    def test_the_first_line_is_the_address(self):
        with Server() as server:
            self.assertRegex(server.first_line, r"^listening on http://127\.0\.0\.1:\d+\n$")

    def test_no_web_has_no_page(self):
        with Server("--no-web", "--no-slots") as server:
            self.assertEqual(server.get("/").status, 404)
            self.assertEqual(server.get("/slots").status, 501)


class Clocks(Shared):
    """Time limits, ten times shorter: a second for a head, six between bytes."""
    script = {"SWIFTLET_TEST_HURRY": 10}

    def test_a_slow_head_is_given_up(self):
        with self.server.connect() as c:
            c.send("GET /health HTTP/1.1\r\nHost:")
            begin = time.monotonic()
            self.assertEqual(c.answer().status, 408)
            self.assertGreater(time.monotonic() - begin, 0.6)
            self.assertTrue(c.closed())

    def test_drops_do_not_keep_a_head_alive(self):
        with self.server.connect() as c:
            for byte in "GET /health HTTP/1.1\r\nX: " + "a" * 1000:
                c.send(byte)
                if select.select([c.socket], [], [], 0.05)[0]:
                    break
            self.assertEqual(c.answer().status, 408)

    def test_a_body_that_stops_is_given_up(self):
        with self.server.connect() as c:
            c.send("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 100\r\n\r\n{" % (CHAT, c.host, JSON))
            self.assertEqual(c.answer().status, 408)

    def test_idle_connections_end(self):
        with self.server.connect() as c:
            self.assertTrue(c.closed())
        with self.server.connect() as c:
            c.request("GET", "/health")
            self.assertEqual(c.answer().status, 200)
            self.assertTrue(c.closed())


class Figures(unittest.TestCase):
    def test_what_was_no_request_took_no_longer_than_it_was_there(self):
        begin = time.monotonic()
        with Server() as server:
            for data in ("GET\r\n\r\n", "POST %s HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n" % CHAT, "GET /health HTTP/9.9\r\nHost: x\r\n\r\n"):
                with server.connect() as c:
                    c.send(data)
                    self.assertGreaterEqual(c.answer().status, 400)
            self.assertLess(server.metric("request_seconds_sum"), time.monotonic() - begin)


class Crowd(unittest.TestCase):
    def test_idle_connections_make_room(self):
        with Server() as server:
            idle = []
            for _ in range(64):
                c = server.connect()
                c.request("GET", "/health")
                self.assertEqual(c.answer().status, 200)
                idle.append(c)
            self.assertEqual(server.get("/health").status, 200)
            self.assertTrue(idle[0].closed())
            for c in idle:
                c.socket.close()

    def test_more_than_64_that_work_are_refused(self):
        with Server("--queue", "100", hold=0) as server:
            busy = []
            for _ in range(64):
                c = server.connect()
                c.request("POST", CHAT, BODY)
                busy.append(c)
            self.assertEqual(server.get("/health").status, 503)
            busy.pop().socket.close()
            harness.wait_until(lambda: server.get("/health").status == 200)
            for c in busy:
                c.socket.close()


if __name__ == "__main__":
    harness.main()
