#!/usr/bin/env python3
"""Hostile clients by the thousand: valid requests of every dialect, changed at random in their JSON, their HTTP and in the way
they are sent. Whatever comes back has to be well-formed and no fault of the server's; after each batch nothing may be left running
and an ordinary request is answered; at the end the server stops in order, without a word of a sanitizer.

usage: mutate.py PROGRAM [--model DIR] [--memory SIZE] [--count N] [--seed S] [--only CASE]
       (a build with sanitizers; the model is models/demo.qpack; 100000 cases are for machines that have the night to themselves)
"""
import argparse
import copy
import gzip
import json
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import zlib

import harness
from harness import Server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BATCH, CLIENTS = 200, 8
AHEAD = 32768    # of what is sent while an answer is due so much is kept at that memory; who sends more gets no further answers
PATIENCE = 90.0  # without anything moving in the server. A machine that is busy with other things may take its time,
LONGEST = 1800.0 # but no case is this long
USER = [{"role": "user", "content": "Hi there, how are you?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                               "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 3}},
              "required": ["city"], "additionalProperties": False}
CALLS = [{"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "the weather", "parameters": PARAMETERS, "strict": True}}]
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "seed": 4}
OPENAI = {**SAMPLING, "top_k": 20, "min_p": 0.05, "frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1, "stop": ["zz", "\n\n\n"],
          "logit_bias": {"17": -100, "18": 2.5}}
VALID = [
    ("/v1/chat/completions", {"model": "demo", "messages": USER, "max_tokens": 3, **OPENAI}),
    ("/v1/chat/completions", {"messages": USER, "max_completion_tokens": 3, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}),
    ("/v1/chat/completions", {"messages": USER + CALLS, "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False, "max_tokens": 3}),
    ("/v1/chat/completions", {"messages": USER, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "max_tokens": 8}),
    ("/v1/chat/completions", {"messages": USER, "n": 2, "logprobs": True, "top_logprobs": 3, "max_tokens": 2, "chat_template_kwargs": {"enable_thinking": False}}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 6,
                              "response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PARAMETERS}}}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 4, "response_format": {"type": "json_object"}, "reasoning_effort": "low"}),
    ("/v1/chat/completions/control", {"id": "chatcmpl-x", "action": "reasoning_end"}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 3, "instructions": "be brief", **SAMPLING}),
    ("/v1/responses", {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                                 {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c1", "output": "4"}],
                       "tools": [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}], "tool_choice": "auto", "stream": True,
                       "max_output_tokens": 3, "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 5, "text": {"format": {"type": "json_schema", "name": "p", "schema": PARAMETERS}}}),
    ("/v1/responses/input_tokens", {"input": "Hi"}),
    ("/v1/messages", {"model": "demo", "max_tokens": 3, "messages": USER, "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}], **SAMPLING,
                      "stop_sequences": ["zz"]}),
    ("/v1/messages", {"max_tokens": 3, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024},
                      "messages": USER + [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                                                            {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}]},
                                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "4"}]}]}],
                      "tools": [{"name": "get_weather", "input_schema": PARAMETERS}], "tool_choice": {"type": "auto"}}),
    ("/v1/messages/count_tokens", {"messages": USER}),
    ("/v1/completions", {"prompt": "Once upon", "max_tokens": 3, "echo": True, "logprobs": 2, **SAMPLING}),
    ("/v1/completions", {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 2, "stream": True, "suffix": None}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2, "best_of": 2}),
    ("/tokenize", {"content": "Hello <|im_end|>", "add_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/apply-template", {"messages": USER + CALLS, "tools": TOOLS}),
    ("/v1/embeddings", {"input": "x"}),
    ("/v1/chat/completions", {"messages": USER, "tools": TOOLS, "max_tokens": 8, "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}}}),
    ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}], "max_output_tokens": 3,
                       "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]}}),
    ("/slots/0?action=save", {"filename": "kept"}),
    ("/slots/1?action=restore", {"filename": "kept"}),
    ("/slots/2?action=erase", {"filename": "kept"}),
    ("/slots/0?action=erase", {}),
    ("/api/show", {"model": "demo"}),
    ("/api/chat", {"model": "demo", "messages": USER + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
                                                        {"role": "tool", "content": "4"}],
                   "tools": TOOLS, "stream": False, "think": False, "format": "json", "options": {"num_predict": 3, "temperature": 0.5, "stop": ["zz"]}}),
    ("/api/chat", {"model": "demo", "messages": USER, "options": {"num_predict": 3}, "format": PARAMETERS}),
    ("/api/generate", {"model": "demo", "prompt": "Hi", "system": "x", "raw": False, "options": {"num_predict": 3, "seed": 1}}),
    ("/api/pull", {"model": "x"}),
]
GETS = ["/v1/models", "/v1/models/demo", "/health", "/metrics", "/props", "/slots", "/api/version", "/api/tags", "/api/ps", "/api/v0/models", "/", "/favicon.ico",
        "/v1/responses/resp_1", "/%2e%2e/etc/passwd", "/v1/models/%00", "/?" + "a=b&" * 50]
EXPECTED = {200, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 411, 413, 414, 415, 417, 422, 429, 431, 501, 503, 505}


class Raw:
    """Text that goes into JSON as it is, valid or not."""

    def __init__(self, text):
        self.text = text if isinstance(text, bytes) else text.encode()


def dump(value, r, gap=b""):
    """With `gap` between tokens."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        fields = [dump(k, r) + gap + b":" + gap + dump(v, r, gap) for k, v in value.items()]
        if fields and r.random() < 0.01:
            fields.append(r.choice(fields))  # the same name again
        return b"{" + gap + (gap + b"," + gap).join(fields) + b"}"
    if isinstance(value, list):
        return b"[" + (gap + b"," + gap).join(dump(v, r, gap) for v in value) + gap + b"]"
    return json.dumps(value, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")


def odd_value(r):
    n = r.choice([1, 10, 127, 128, 129, 500, 5000, 100000])
    return r.choice([
        lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1, lambda: 3.5, lambda: "", lambda: [], lambda: {}, lambda: [[]], lambda: [None], lambda: {"": {}},
        lambda: r.choice([2**31 - 1, 2**31, -2**31 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -2**63, 2**64, 10**400]),
        lambda: Raw(r.choice(["1e999", "-1e999", "1e-999", "-0", "0.1e1", "1E+2", "01", "+1", ".5", "1.", "NaN", "Infinity", "0x10", "1" * 5000, "0." + "3" * 5000, "1e" + "9" * 30])),
        lambda: Raw(r.choice([r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', r'"a\u0000b"', '"\0"', b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', r'"\x"', '"\n"', '"',
                              r'"\u12"', r'"\ud83d\ude00"', "'a'", "nul", "tru", "", ",", "[,]", "{,}", '{"a"}', '{"a":1,}', "[1,]", "//c\n1"])),
        lambda: Raw("[" * n + "]" * n), lambda: Raw('{"a":' * n + "1" + "}" * n), lambda: Raw("[" * n), lambda: Raw('{"type":"array","items":' * n + "{}" + "}" * n),
        lambda: "x" * n, lambda: "\U0001f600" * (n % 5000), lambda: "<|im_start|>" * (n % 300), lambda: "</think><tool_call>{", lambda: "{{ messages }}{% for %}", lambda: "\u202e\ufeff\uffff",
        lambda: r.choice(["kept", "..", "../kept", "/tmp/kept", "a/b", ".kept", "kept/", "nul", "0" * 64 + ".session", "kept\0.txt", "kept.tmp.1"]),
        lambda: [1] * n, lambda: ["a"] * n, lambda: {"k%d" % i: i for i in range(n % 2000)}, lambda: [{"role": "user", "content": "x"} for _ in range(n % 20000)],
        lambda: {"$ref": "#"}, lambda: {"anyOf": [{"$ref": "#/anyOf/0"}]}, lambda: {"pattern": "(" * n}, lambda: {"type": "string", "pattern": "(a{1,1000}){1,1000}"},
        lambda: {"type": "string", "pattern": "^(([a-z]*)*)*$"}, lambda: {"type": "string", "minLength": 10**9}, lambda: {"type": "array", "minItems": 10**9, "items": {}},
        lambda: {"type": "integer", "minimum": 10**30, "maximum": 10**31}, lambda: {"type": "integer", "minimum": 5, "maximum": 4}, lambda: {"type": "integer", "multipleOf": 7919}, lambda: {"enum": []},
        lambda: {"type": ["string", "null", "integer"]}, lambda: {"allOf": [{"type": "string"}, {"type": "integer"}]}, lambda: {"not": {}}, lambda: {"oneOf": [True, False]},
        lambda: {"type": "string", "format": r.choice(["date-time", "uuid", "ipv4", "email", "nonsense"])},
        lambda: {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, lambda: {"type": "grammar", "grammar": "root ::= root"},
    ])()


def places(value, found):
    """Every (container, key) of a tree."""
    for k, v in list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []:
        found.append((value, k))
        places(v, found)
    return found


def change_tree(r, body, others):
    for _ in range(r.choice([0, 1, 1, 1, 2, 3, 6])):
        spots = places(body, [])
        if not spots:
            break
        at, k = r.choice(spots)
        what = r.randrange(6)
        if what <= 2:
            at[k] = odd_value(r)
        elif what == 3:
            del at[k]
        elif what == 4:  # something that belongs elsewhere
            if isinstance(at, dict):
                at.update(copy.deepcopy(dict([r.choice(list(others.items()))])) if others else {})
            else:
                at.insert(k, copy.deepcopy(r.choice(at)))
        else:
            other, j = r.choice(spots)
            value = copy.deepcopy(other[j])
            if not isinstance(value, (dict, list)) or len(json.dumps(value, default=str)) < 100000:
                at[k] = value
    return body


def change_bytes(r, data):
    data = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 4, 16])):
        if not data:
            break
        at, what = r.randrange(len(data)), r.randrange(5)
        if what == 0:
            data[at] ^= 1 << r.randrange(8)
        elif what == 1:
            data[at:at] = r.choice([b"\0", b"\xff", b"\r\n", b"\n", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" " * 200, b"\xed\xa0\x80", b"\xef\xbb\xbf", bytes([r.randrange(256)])])
        elif what == 2:
            del data[at:at + r.choice([1, 2, 10, 1000])]
        elif what == 3:
            data[at:at] = data[at:at + r.choice([1, 8, 100])]
        else:
            data[at] = r.randrange(256)
    return bytes(data)


def odd_headers(r):
    return r.choice([
        lambda: b"X-A: " + b"b" * r.choice([10, 8000, 40000]) + b"\r\n",
        lambda: b"".join(b"X-%d: y\r\n" % i for i in range(r.choice([50, 200, 5000]))),
        lambda: b"Content-Length: " + r.choice([b"0", b"-1", b"+5", b"5, 5", b"99999999999999999999", b"0x10", b"", b" ", b"67108865", b"1e3"]) + b"\r\n",
        lambda: b"Transfer-Encoding: " + r.choice([b"chunked", b"gzip, chunked", b"identity", b"chunked, chunked", b"xchunked", b""]) + b"\r\n",
        lambda: b"Content-Encoding: " + r.choice([b"gzip", b"deflate", b"br", b"gzip, gzip", b"identity"]) + b"\r\n",
        lambda: b"Content-Type: " + r.choice([b"text/plain", b"application/json; charset=utf-16", b"", b"multipart/form-data", b"application/json;;;"]) + b"\r\n",
        lambda: b"Expect: 100-continue\r\n", lambda: b"Expect: x\r\n", lambda: b"Upgrade: websocket\r\nConnection: upgrade\r\n", lambda: b"Connection: close, keep-alive\r\n",
        lambda: b"Origin: " + r.choice([b"http://evil.example", b"null", b"http://127.0.0.1", b"\xff"]) + b"\r\n",
        lambda: b"Host: " + r.choice([b"evil.example", b"", b"[::1", b"127.0.0.1:99999", b"a b"]) + b"\r\n",
        lambda: b"Authorization: Bearer " + b"x" * r.choice([0, 10, 5000]) + b"\r\n", lambda: b"Range: bytes=0-0,5-,-9\r\n", lambda: b"If-None-Match: *\r\n", lambda: b"Accept-Encoding: gzip;q=x\r\n",
        lambda: b" folded: x\r\n", lambda: b"no colon\r\n", lambda: b": empty\r\n", lambda: b"X-Nul: a\0b\r\n", lambda: b"Bad Name: x\r\n", lambda: b"X-Lf: a\nX-B: c\r\n", lambda: b"X-Cr: a\rb\r\n",
        lambda: b"anthropic-version: \xff\xfe\r\n", lambda: b"Last-Event-ID: 5\r\n", lambda: b"X-Request-Id: " + b"\x80" * 300 + b"\r\n",
    ])()


def chunked(r, body, valid):
    out, at = b"", 0
    while at < len(body):
        n = r.choice([1, 7, 100, 5000])
        part = body[at:at + n]
        out += b"%x\r\n" % len(part) + part + b"\r\n"
        at += n
        if len(out) > 200000:
            out += b"%x\r\n" % len(body[at:]) + body[at:] + b"\r\n" if at < len(body) else b""
            break
    out += b"0\r\n\r\n"
    if valid:
        return out
    return r.choice([
        lambda: out.replace(b"\r\n", b"\n", 1), lambda: b"ffffffffffffffff\r\n" + out, lambda: b"-1\r\n" + out, lambda: b"7fffffff\r\n" + out, lambda: b"g\r\n" + out, lambda: out[:-2],
        lambda: b"1;" + b"x" * 20000 + b"\r\na\r\n" + out, lambda: out[:-2] + b"X-T: y\r\n" * r.choice([1, 9000]) + b"\r\n", lambda: b"0" * 5000 + b"1\r\na\r\n" + out, lambda: b"\r\n" + out,
        lambda: b"0x5\r\nhello\r\n" + out, lambda: b" 5\r\nhello\r\n" + out, lambda: out[:len(out) // 2], lambda: change_bytes(r, out)])()


def bomb(r, body):
    return r.choice([lambda: gzip.compress(b" " * (80 << 20), 1), lambda: gzip.compress(body)[:-r.randrange(1, 12)], lambda: change_bytes(r, gzip.compress(body)), lambda: gzip.compress(body) + b"x",
                     lambda: gzip.compress(body) + gzip.compress(body), lambda: gzip.compress(gzip.compress(body)), lambda: zlib.compress(body), lambda: b"\x1f\x8b\x08", lambda: b""])()


class Case:
    """One connection's worth of bytes, of a seed and a number alone."""

    def __init__(self, seed, number, host):
        r = random.Random(seed * 1000003 + number)
        self.r, self.number, self.host = r, number, host
        self.framed = True  # the server cannot but understand where requests end, so each has an answer
        self.heads = 0
        kind = r.choices(["tree", "bytes", "head", "chunk", "gzip", "raw", "get"], [50, 12, 12, 8, 3, 8, 7])[0]
        n = r.choice([1, 1, 1, 1, 2, 5])
        self.requests = [self.request(kind if i == n - 1 else r.choice(["tree", "get"]), i == n - 1) for i in range(n)]
        self.pipelined = r.random() < 0.3
        # How it is sent: patiently; in pieces; with the connection gone at some moment; with half of it closed.
        self.manner = r.choices(["wait", "pieces", "leave", "reset", "half", "slow"], [60, 8, 12, 8, 6, 2])[0]
        self.moment = r.choice([0, 0, 0.005, 0.02, 0.1, 0.4])

    def request(self, kind, last):
        r = self.r
        if kind == "get":
            method = r.choice([b"GET", b"GET", b"GET", b"OPTIONS", b"DELETE", b"PUT", b"BREW", b"TRACE"])
            return method + b" " + r.choice(GETS).encode() + b" HTTP/1.1\r\n" + self.end(last)
        path, body = r.choice(VALID)
        body = dump(change_tree(r, copy.deepcopy(body), r.choice(VALID)[1]) if kind != "raw" else body, r,
                    r.choice([b""] * 8 + [b"\n", b"\r\n\t "]))
        if kind == "bytes":
            body = change_bytes(r, body)
        more, framed = b"Content-Type: application/json\r\n", True
        if kind == "chunk":
            framed = r.random() < 0.4
            body, more = chunked(r, body, framed), more + b"Transfer-Encoding: chunked\r\n"
        elif kind == "gzip":
            body = bomb(r, body)
            more += b"Content-Encoding: gzip\r\n"
        if kind != "chunk":
            more += b"Content-Length: %d\r\n" % len(body)
        if kind == "head":
            framed = False
            for _ in range(r.choice([1, 1, 2])):
                more = r.choice([more + odd_headers(r), odd_headers(r) + more])
        out = b"POST " + path.encode() + b" HTTP/1.1\r\n" + more + self.end(last) + body
        if kind == "raw":
            framed = False
            out = r.choice([change_bytes(r, out), out.replace(b"HTTP/1.1", r.choice([b"HTTP/1.0", b"HTTP/9.9", b"HTTP/1.1 ", b"", b"http/1.1"])), out.replace(b" /", b" http://x/", 1), bytes([r.randrange(256)]) * 100 + out,
                            out.replace(b"\r\n", b"\n"), out[:r.randrange(len(out))], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + out, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        self.framed = self.framed and framed
        return out

    def end(self, last):
        return b"Host: " + self.host.encode() + (b"\r\nConnection: close" if last else b"") + b"\r\n\r\n"


LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\Z")


class Malformed(Exception):
    pass


def check(condition, what, data=b""):
    if not condition:
        raise Malformed("%s: %r" % (what, data[:300]))


def check_body(status, headers, body, whole):
    kind = headers.get("content-type", "")
    if kind.startswith("application/json") and whole:
        json.loads(body.decode("utf-8"), parse_constant=lambda s: check(False, "a number that JSON has not", s.encode()))
    elif kind.startswith("text/event-stream"):
        text = body.decode("utf-8") if whole else body.decode("utf-8", "ignore")
        check("\r" not in text, "a line that ends where no other does", body)
        for line in text.split("\n")[:None if whole else -1]:
            check(line == "" or line.startswith(("data: ", "event: ", ":")), "no line of a stream", line.encode("utf-8", "replace"))
            if line.startswith("data: ") and line != "data: [DONE]":
                json.loads(line[6:])
    elif kind.startswith("application/x-ndjson") and whole:
        for line in body.splitlines():
            json.loads(line.decode("utf-8"))
    if status >= 400 and whole and body:
        check(kind.startswith(("application/json", "text/")), "an error of type " + kind)


def parse(data, ended):
    """The statuses of the responses in what came; the last may be in pieces if the connection was given up."""
    statuses = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            check(not ended, "half a head", data)
            return statuses
        lines = head.split(b"\r\n")
        check(re.match(rb"HTTP/1\.1 [1-5]\d\d [A-Za-z' -]+\Z", lines[0]), "status line", lines[0])
        headers = {}
        for line in lines[1:]:
            check(LINE.match(line), "header", line)
            name, value = line.decode("latin-1").split(": ", 1)
            check(name.lower() not in headers, "a header twice", line)
            headers[name.lower()] = value
        status, data = int(lines[0][9:12]), rest
        if status == 100:
            continue
        check(status in EXPECTED, "status %d" % status, rest)
        whole = True
        if status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size, mark, rest = data.partition(b"\r\n")
                if not mark or len(rest) < int(size, 16) + 2:
                    check(not ended, "half a chunk", data)
                    whole, data = False, b""
                    break
                n = int(size, 16)
                check(rest[n:n + 2] == b"\r\n", "end of a chunk", rest)
                body, data = body + rest[:n], rest[n + 2:]
                if not n:
                    break
        elif "content-length" not in headers:  # of HTTP/1.0, which has nothing but the connection's end
            check(headers.get("connection") == "close", "no length", head)
            body, data, whole = data, b"", ended
        else:
            n = int(headers["content-length"])
            body, data, whole = data[:n], data[n:], len(data) >= n
            check(whole or not ended, "half a body", body)
        check_body(status, headers, body, whole)
        if whole:
            statuses.append(status)
    return statuses


class Watch(threading.Thread):
    """Looks at the server's counters, which go up with every layer of every pass: an answer that takes long because the
    engine gets a thousandth of a processor is no fault, one that takes long while nothing moves is."""
    COUNTERS = re.compile(r"^swiftlet_((?:expert_cache_(?:hits|misses)|prompt_tokens|generated_tokens|requests_cancelled)_total|"
                          r'requests_total(?!\{endpoint="metrics"))', re.M)

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.last, self.moved, self.over = server, None, time.monotonic(), threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            try:
                with harness.Connection(self.server) as c:
                    c.request("GET", "/metrics")
                    lines = [line for line in c.answer().body.decode().split("\n") if self.COUNTERS.match(line)]
            except (OSError, EOFError, AssertionError, ValueError):
                continue
            if lines != self.last:
                self.last, self.moved = lines, time.monotonic()

    def stuck(self, since):
        now = time.monotonic()
        return now - max(since, self.moved) > PATIENCE or now - since > LONGEST

    def until(self, condition):
        begin = time.monotonic()
        while not condition():
            if self.stuck(begin):
                raise AssertionError("nothing came of it in %.0f seconds" % (time.monotonic() - begin))
            time.sleep(0.02)


def receive(s, given_up):
    """What comes until the other side closes, or waiting for it is given up; and whether it closed, and how."""
    data = b""
    while not given_up():
        s.settimeout(0.1)
        try:
            got = s.recv(65536)
        except socket.timeout:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return data, True, True
        if not got:
            return data, True, False
        data += got
    return data, False, False


def send(s, data):
    """As slowly as the other side takes it, if it takes any."""
    data = memoryview(data)
    while data:
        data = data[s.send(data):]


def play(case, port, watch):
    r = case.r
    s = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    data = b"".join(case.requests)
    broken = False
    try:
        if case.manner == "slow":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if case.manner == "pieces" and len(data) < 100000:
            for at in range(0, len(data), max(len(data) // 20, 1)):
                send(s, data[at:at + max(len(data) // 20, 1)])
                time.sleep(0.002)
        elif case.manner in ("leave", "reset", "half") and r.random() < 0.5:
            send(s, data[:r.randrange(len(data) + 1)])
        else:
            send(s, data)
    except (ConnectionResetError, BrokenPipeError):
        broken = True  # refused before all of it was sent
    except socket.timeout:
        raise Malformed("the server stopped reading")
    if case.manner in ("leave", "reset"):
        time.sleep(case.moment)
        if case.manner == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
        return []
    patient = case.framed and case.manner in ("wait", "pieces", "slow")
    if case.manner == "half":
        time.sleep(case.moment)
        try:
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    begin = time.monotonic()
    got, closed, reset = receive(s, lambda: watch.stuck(begin) if patient or case.manner == "half" else time.monotonic() - begin > 0.5)
    s.close()
    if case.manner == "half":
        check(closed, "a connection of which half is closed stays")
    statuses = parse(got, closed and not reset and patient)
    if patient and not broken and not reset:
        check(closed, "no end after %d of %d answers" % (len(statuses), len(case.requests)), got[-300:])
        check(statuses, "no answer")
        check(len(statuses) == len(case.requests) or statuses[-1] >= 400 or sum(map(len, case.requests[1:])) > AHEAD, "%d of %d answers" % (len(statuses), len(case.requests)), got[-300:])
    return statuses


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--model", default=os.path.join(ROOT, "models", "demo.qpack"))
    p.add_argument("--memory", default="192M", help="of the server; so little that requests come to the end of their share")
    p.add_argument("--count", type=int, default=1500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int, help="this case alone, and what it is")
    a = p.parse_args()
    harness.PROGRAM = os.path.abspath(a.program)
    top = tempfile.TemporaryDirectory(prefix="swiftlet-hostile-")
    server = Server("--threads", "2", "-c", "192", "--ollama-api", "--parallel", "3", "--queue", "6", "--memory", a.memory, "--session-dir",
                    os.path.join(top.name, "sessions"), model=a.model)
    failures, seen, lock = [], {}, threading.Lock()
    watch = Watch(server)
    watch.start()
    numbers = [a.only] if a.only is not None else list(range(a.count))

    def one(n):
        case = Case(a.seed, n, server.host)
        if a.only is not None:
            print(case.manner, case.framed, *case.requests, sep="\n")
        try:
            statuses = play(case, server.port, watch)
            if a.only is not None:
                print(statuses)
            with lock:
                for status in statuses:
                    seen[status] = seen.get(status, 0) + 1
        except Exception as e:
            with lock:
                failures.append("case %d (%s): %s %s" % (n, case.manner, type(e).__name__, e))
                print(failures[-1], flush=True)

    def client(mine):
        for n in mine:
            one(n)

    batches = [numbers[i:i + BATCH] for i in range(0, len(numbers), BATCH)]
    for batch in batches:
        threads = [threading.Thread(target=client, args=(batch[i::CLIENTS],)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        try:
            if server.process.poll() is not None:
                raise AssertionError("the server ended with %d" % server.process.returncode)
            watch.until(lambda: server.metric("requests_running") + server.metric("requests_waiting") == 0)
            answer = server.chat(max_tokens=2, temperature=0)
            assert answer.status == 200, answer
            if not all(not slot["is_processing"] for slot in server.get("/slots").json):
                raise AssertionError("a slot is stuck")
        except (AssertionError, OSError, EOFError) as e:
            failures.append("after cases %d to %d: %s" % (batch[0], batch[-1], e))
            print(failures[-1], flush=True)
            if server.process.poll() is not None:
                break
    watch.over.set()
    watch.join()
    server.log.flush()
    said_at = server.stderr
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(PATIENCE)
        except Exception:
            failures.append("it does not end")
            print(failures[-1])
    said = said_at()
    if server.process.returncode != 0 or "Sanitizer" in said or "runtime error" in said:
        failures.append("it ended with %s" % server.process.returncode)
        print(failures[-1], said[-6000:])
    server.stop()
    for folder, names in ((top.name, r"sessions"), (os.path.join(top.name, "sessions"), r"[0-9A-Za-z_-][0-9A-Za-z._-]*")):
        strange = [name for name in os.listdir(folder) if not re.fullmatch(names, name) or ".tmp." in name]
        if strange:
            failures.append("files that nobody should have made: %r" % strange)
            print(failures[-1])
    top.cleanup()
    print(" ".join("%d: %d" % pair for pair in sorted(seen.items())))
    print("%d passed, %d failed" % (max(len(numbers) - len(failures), 0), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
