#!/usr/bin/env python3
"""What requests of each dialect become, and what answers look like, streamed and whole, on a scripted engine.

usage: test_dialects.py PROGRAM     (the program built with scripted.c)
"""
import json
import math
import unittest

import harness
from harness import Server, Shared

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
         {"type": "function", "function": {"name": "noop"}}]
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "K\u00f6ln \\"x\\""}}</tool_call>'
FULL = "<think>Let me see.</think>I look it up. " + CALL + CALL
USER = [{"role": "user", "content": "hi"}]
THINK = {"default": 0, "off": 1, "on": 2, "low": 3, "medium": 4, "high": 5}
CONSTRAIN = {"none": 0, "json": 1, "schema": 2, "choice": 3, "tool": 4}


def assemble(events):
    """What a client makes of a Chat stream: role, content, reasoning, calls, finish reason."""
    got = {"content": "", "reasoning_content": "", "calls": [], "finish": None}
    for e in events:
        if e == "[DONE]":
            continue
        assert isinstance(e["choices"], list)
        for choice in e["choices"]:
            delta = choice["delta"]
            assert got["finish"] is None, "content after the end"
            for field in ("content", "reasoning_content"):
                got[field] += delta.get(field) or ""
            for call in delta.get("tool_calls", []):
                assert len(delta["tool_calls"]) == 1
                if "id" in call:
                    assert call["index"] == len(got["calls"]) and call["type"] == "function" and call["function"]["arguments"] == ""
                    got["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                else:
                    assert call["index"] == len(got["calls"]) - 1
                    got["calls"][-1]["arguments"] += call["function"]["arguments"]
            if choice["finish_reason"]:
                assert delta == {}
                got["finish"] = choice["finish_reason"]
    return got


class ChatRequest(Shared):
    """What the engine is given."""

    def asked(self, messages=USER, **more):
        a = self.server.post(CHAT, {"messages": messages, **more})
        self.assertEqual(a.status, 200, a)
        return self.server.asked()

    def messages(self, messages, **more):
        return json.loads(self.asked(messages, **more)["messages"])

    def refused(self, param, body, code="invalid_value"):
        a = self.server.post(CHAT, body)
        self.assertEqual((a.status, a.error["type"], a.error["code"], a.error["param"]), (400, "invalid_request_error", code, param), a)
        self.assertEqual(a.headers["x-should-retry"], "false")
        return a.error["message"]

    def test_roles(self):
        got = self.messages([{"role": "developer", "content": "be brief"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                             {"role": "function", "name": "f", "content": "c"}, {"role": "tool", "tool_call_id": "call_1", "content": "d"}])
        self.assertEqual(got, [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                               {"role": "tool", "content": "c", "name": "f"}, {"role": "tool", "content": "d", "tool_call_id": "call_1"}])
        self.refused("messages[0].role", {"messages": [{"role": "robot", "content": "x"}]})
        self.refused("messages[1].role", {"messages": USER + [{"content": "x"}]})

    def test_system_messages_are_merged_in_front(self):
        got = self.messages([{"role": "system", "content": "a"}, {"role": "user", "content": "u"}, {"role": "system", "content": [{"type": "text", "text": "b"}]},
                             {"role": "developer", "content": "c"}])
        self.assertEqual(got, [{"role": "system", "content": "a\n\nb\n\nc"}, {"role": "user", "content": "u"}])

    def test_a_user_is_put_where_there_is_none(self):
        got = self.messages([{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "tool", "content": "c"}])
        self.assertEqual([m["role"] for m in got], ["system", "user", "assistant", "tool"])
        self.assertEqual(got[1]["content"], "")
        self.assertIn("No user query", self.refused("messages", {"messages": [{"role": "system", "content": "a"}]}))
        self.refused("messages", {"messages": []})
        self.refused("messages", {})
        self.refused("messages", {"messages": {}})
        self.refused("messages[0]", {"messages": ["hi"]})

    def test_parts(self):
        parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b\n"}, {"type": "output_text", "text": "\u00e9"}]
        self.assertEqual(self.messages([{"role": "user", "content": parts}]), [{"role": "user", "content": "ab\n\u00e9"}])
        for content in (None, [], ""):
            self.assertEqual(self.messages(USER + [{"role": "assistant", "content": content}] + USER)[1]["content"], "")
        for kind in ("image_url", "input_audio", "file"):
            self.refused("messages[1].content[1]", {"messages": USER + [{"role": "user", "content": [parts[0], {"type": kind, kind: {}}]}]})
        self.refused("messages[0].content", {"messages": [{"role": "user", "content": 5}]})
        self.refused("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "text"}]}]})

    def test_calls_go_back_as_they_came(self):
        args = '{"a": 1.0, "b": 123456789012345678901234567890, "a2": 1e5}'
        calls = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": args}},
                 {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "not json"}}, {"function": {"name": "h", "arguments": {"x": 1}}}]
        got = self.messages(USER + [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "r"}])[1]["tool_calls"]
        self.assertEqual([c["function"]["arguments"] for c in got], [args, "not json", {"x": 1}])
        self.assertEqual([c.get("id") for c in got], ["call_1", "call_2", None])
        self.refused("messages[0].tool_calls[0].function.name", {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})
        self.refused("messages[0].tool_calls", {"messages": [{"role": "assistant", "tool_calls": 1}]})

    def test_spelling_of_tools_and_schemas_is_kept(self):
        tools = '[{"type":"function","function":{"name":"f","parameters":{"z":1.0,"a":1e2,"big":123456789012345678901234567890,"u":"\\u00e9"}}}]'
        schema = '{"z": 1.50, "type": "object", "a": 12345678901234567890123}'
        body = '{"messages":[{"role":"user","content":"x"}],"tools":%s,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":%s}}}'
        self.assertEqual(self.server.post(CHAT, body % (tools, schema)).status, 200)
        self.assertEqual(self.server.asked()["tools"], tools)
        self.assertEqual(self.server.asked()["constraint"], schema)

    def test_reasoning_that_comes_back(self):
        for fields, value in [({"reasoning_content": "a", "reasoning": "b"}, "a"), ({"reasoning_content": "", "reasoning": "b"}, "b"), ({"thinking": "c"}, "c"),
                              ({"reasoning_content": None}, None), ({}, None)]:
            got = self.messages(USER + [{"role": "assistant", "content": "x", **fields}] + USER)[1]
            self.assertEqual(got.get("reasoning_content"), value)

    def test_a_last_answer_is_continued(self):
        last = [{"role": "assistant", "content": "So far"}]
        self.assertTrue(self.asked(USER + last)["continue_final"])
        self.assertTrue(self.asked(USER + last, continue_final_message=True, add_generation_prompt=False)["continue_final"])
        self.assertFalse(self.asked(USER + last, add_generation_prompt=True)["continue_final"])
        self.assertFalse(self.asked(USER)["continue_final"])

    def test_how_many_tokens(self):
        for fields, n in [({}, -1), ({"max_tokens": -1}, -1), ({"max_tokens": 5}, 5), ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
                          ({"max_tokens": 384000000000}, 2147483647), ({"max_tokens": 0}, 0), ({"max_tokens": 7.0}, 7), ({"max_tokens": None}, -1)]:
            self.assertEqual(self.asked(**fields)["n_max"], n, fields)
        for bad in ("5", 1.5, -2, True, [1]):
            self.refused("max_tokens", {"messages": USER, "max_tokens": bad})
        a = self.server.chat(max_tokens=0)
        self.assertEqual((a.json["choices"][0]["finish_reason"], a.json["usage"]["completion_tokens"]), ("length", 0))

    def test_sampling(self):
        got = self.asked(temperature=0.5, top_p=0.25, seed=7, top_k=40, min_p=0.125, frequency_penalty=0.5, presence_penalty=-0.5, repetition_penalty=1.5,
                         repeat_last_n=64, min_tokens=3)
        for name, value in dict(temperature=0.5, top_p=0.25, seed=7, top_k=40, min_p=0.125, frequency_penalty=0.5, presence_penalty=-0.5,
                                repetition_penalty=1.5, repeat_last_n=64, n_min=3).items():
            self.assertEqual(got[name], value, name)
        got = self.asked()
        self.assertEqual([got[n] for n in ("temperature", "top_k", "frequency_penalty", "presence_penalty", "repetition_penalty", "n_min")], [0.75, 20, 0, 0, 1, 0])
        self.assertNotEqual(self.asked()["seed"], self.asked()["seed"])
        self.assertEqual(self.asked(temperature=-1, top_k=-5)["temperature"], 0)
        self.assertEqual(self.asked(repeat_penalty=1.25)["repetition_penalty"], 1.25)
        for name, bad in [("temperature", "hot"), ("top_p", 2), ("top_p", []), ("seed", 1.5), ("top_k", "x"), ("frequency_penalty", 3), ("logit_bias", 1),
                          ("stop", 1), ("stop", [1]), ("stop", ["a"] * 17), ("stop", "a" * 2000), ("n", 9), ("n", 0), ("stream", "yes"), ("stream_options", 1),
                          ("tools", {}), ("chat_template_kwargs", []), ("response_format", "json"), ("logprobs", 1), ("top_logprobs", 21), ("model", 5),
                          ("logit_bias", {"x": 1}), ("logit_bias", {"5": 101}), ("logit_bias", {"99999": 1}), ("parallel_tool_calls", 1), ("reasoning_effort", 5)]:
            self.refused(name, {"messages": USER, name: bad})

    def test_stop_strings(self):
        self.assertEqual(self.asked(stop="x")["stop"], ["x"])
        self.assertEqual(self.asked(stop=["a", None, "", "b\u00e9"])["stop"], ["a", "b\u00e9"])
        a = self.server.chat(stop=["wor"])
        self.assertEqual((a.json["choices"][0]["message"]["content"], a.json["choices"][0]["finish_reason"]), ("Hello, ", "stop"))

    def test_bias(self):
        self.assertEqual(self.asked(logit_bias={"65": -5, "66": 2.5})["bias"], [[65, -5], [66, 2.5]])
        self.assertEqual(self.asked(logit_bias=[[65, 1]])["bias"], [[65, 1]])

    def test_thinking_by_many_names(self):
        for fields, level in [({}, "default"), ({"reasoning_effort": "none"}, "off"), ({"reasoning_effort": "minimal"}, "low"), ({"reasoning_effort": "low"}, "low"),
                              ({"reasoning_effort": "medium"}, "medium"), ({"reasoning_effort": "xhigh"}, "high"), ({"reasoning": {"effort": "high"}}, "high"),
                              ({"reasoning_effort": "hyper"}, "medium"), ({"enable_thinking": False}, "off"), ({"enable_thinking": True}, "on"), ({"think": False}, "off"),
                              ({"think": "low"}, "low"), ({"thinking": {"type": "disabled"}}, "off"), ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "on"),
                              ({"enable_thinking": False, "think": True}, "off"), ({"think": False, "reasoning_effort": "high"}, "off")]:
            self.assertEqual(self.asked(**fields)["think"], THINK[level], fields)
        self.assertEqual(self.asked(thinking={"type": "enabled", "budget_tokens": 5})["n_reasoning_max"], 5)
        self.assertEqual(self.asked(thinking_budget_tokens=9)["n_reasoning_max"], 9)
        self.assertEqual(json.loads(self.asked(chat_template_kwargs={"enable_thinking": True, "x": [1]})["template_vars"]), {"enable_thinking": True, "x": [1]})

    def test_allowed_tools(self):
        names = [{"type": "function", "function": {"name": n}} for n in ("get_weather", "noop")]
        flat = [{"type": "function", "name": n} for n in ("get_weather", "noop")]
        for mode, constrain in (("auto", 0), ("required", CONSTRAIN["tool"])):
            got = self.asked(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": names}})
            self.assertEqual((json.loads(got["allowed"]), got["constrain"], got["no_calls"]), (["get_weather", "noop"], constrain, False))
            got = self.asked(tools=TOOLS, tool_choice={"type": "allowed_tools", "mode": mode, "tools": flat[1:]})
            self.assertEqual((json.loads(got["allowed"]), got["constrain"]), (["noop"], constrain))
        got = self.asked(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}})
        self.assertEqual((got["allowed"], got["no_calls"]), (None, True))

    def test_tools_and_choices(self):
        got = self.asked(tools=TOOLS + [{"type": "web_search"}])
        self.assertEqual(json.loads(got["tools"]), TOOLS)
        self.assertEqual((got["constrain"], got["no_calls"], got["one_call"]), (0, False, False))
        self.assertTrue(self.asked(tools=TOOLS, tool_choice="none")["no_calls"])
        self.assertEqual(json.loads(self.asked(tools=TOOLS, tool_choice="none")["tools"]), TOOLS)
        got = self.asked(tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
        self.assertEqual((got["constrain"], got["constraint"], got["one_call"]), (CONSTRAIN["tool"], None, True))
        got = self.asked(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "noop"}})
        self.assertEqual((got["constrain"], got["constraint"]), (CONSTRAIN["tool"], "noop"))
        for choice in [{"type": "function", "function": {"name": "none_of_them"}}, {"type": "function"}, "sometimes", 5,
                       {"type": "function", "function": {"name": "noop\0x"}}]:
            a = self.server.post(CHAT, {"messages": USER, "tools": TOOLS, "tool_choice": choice})
            self.assertEqual(a.status, 400, choice)
        self.refused("tools", {"messages": USER, "tools": [TOOLS[0]] * 513})
        self.refused("tools[1].function.name", {"messages": USER, "tools": [TOOLS[0], {"type": "function", "function": {}}]})
        got = self.asked(functions=[{"name": "old", "parameters": {}}])
        self.assertEqual(json.loads(got["tools"]), [{"type": "function", "function": {"name": "old", "parameters": {}}}])

    def test_formats(self):
        schema = {"type": "object"}
        for fmt, kind in [({"type": "text"}, "none"), ({"type": "json_object"}, "json"), ({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}, "schema"),
                          ({"type": "json_object", "schema": schema}, "schema"), ({"type": "json_schema", "schema": schema}, "schema")]:
            got = self.asked(response_format=fmt)
            self.assertEqual(got["constrain"], CONSTRAIN[kind], fmt)
            if kind == "schema":
                self.assertEqual(json.loads(got["constraint"]), schema)
        self.refused("response_format.type", {"messages": USER, "response_format": {"type": "xml"}})
        self.refused("response_format.json_schema.schema", {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})
        message = self.refused("response_format", {"messages": USER, "response_format": {"type": "json_object", "schema": {"$recursiveRef": "#"}}})
        self.assertIn("$recursiveRef", message)
        big = {"type": "object", "description": "x" * 270000}
        self.assertEqual(self.server.post(CHAT, {"messages": USER, "response_format": {"type": "json_object", "schema": big}}).status, 400)

    def test_unknown_and_ignored_fields(self):
        self.asked(store=False, user="x", metadata={"a": 1}, service_tier="auto", verbosity="low", prediction=None, modalities=["text"], web_search_options={},
                   client_metadata=1, no_such_field=[1, {"x": None}], cache_prompt=True, id_slot=3, safety_identifier=5)

    def test_a_long_prompt_is_told_in_figures(self):
        a = self.server.chat("x" * 5000)
        self.assertEqual((a.status, a.error["code"], a.error["n_ctx"]), (400, "context_length_exceeded", 4096))
        n = a.error["n_prompt_tokens"]
        self.assertEqual(a.error["message"], "This model's maximum context length is 4096 tokens. However, your messages resulted in %d tokens." % n)
        self.assertGreater(n, 5000)


class ChatAnswer(Shared):
    script = {"SCRIPT_TEXT": FULL}

    def test_whole(self):
        a = self.server.chat(tools=TOOLS, model="any/name:tag").json
        self.assertRegex(a["id"], "^chatcmpl-[A-Za-z0-9]{24}$")
        self.assertEqual((a["object"], a["model"]), ("chat.completion", "any/name:tag"))
        self.assertIsInstance(a["created"], int)
        choice, = a["choices"]
        m = choice["message"]
        self.assertEqual((m["role"], m["content"], m["reasoning_content"], choice["finish_reason"]), ("assistant", "I look it up. ", "Let me see.", "tool_calls"))
        for call in m["tool_calls"]:
            self.assertRegex(call["id"], "^call_[A-Za-z0-9]{24}$")
            self.assertEqual((call["type"], call["function"]["name"], json.loads(call["function"]["arguments"])), ("function", "get_weather", {"city": 'K\u00f6ln "x"'}))
        self.assertEqual(len({c["id"] for c in m["tool_calls"]}), 2)
        u = a["usage"]
        self.assertEqual(u["total_tokens"], u["prompt_tokens"] + u["completion_tokens"])
        self.assertEqual(u["completion_tokens_details"]["reasoning_tokens"], 11)
        self.assertGreater(u["prompt_tokens"], 0)
        for name in "cache_n prompt_n prompt_ms prompt_per_second predicted_n predicted_ms predicted_per_second draft_n draft_n_accepted".split():
            self.assertIn(name, a["timings"])
        self.assertEqual(set(a["timings"]["cache"]), {"expert_hits", "expert_misses", "bytes_read", "hit_rate"})

    def test_the_same_again_is_cached(self):
        for _ in range(2):
            a = self.server.chat("twice the same").json
        self.assertEqual(a["usage"]["prompt_tokens_details"]["cached_tokens"], a["usage"]["prompt_tokens"] - 1)

    def test_stream(self):
        a = self.server.chat(tools=TOOLS, stream=True)
        self.assertEqual(a.headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual((a.headers["cache-control"], a.headers["x-accel-buffering"]), ("no-cache", "no"))
        events = a.events()
        self.assertEqual(events[-1], "[DONE]")
        chunks = events[:-1]
        self.assertEqual(chunks[0]["choices"][0], {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None})
        self.assertEqual({(c["id"], c["object"]) for c in chunks}, {(chunks[0]["id"], "chat.completion.chunk")})
        self.assertTrue(all("usage" not in c for c in chunks))
        got = assemble(chunks)
        self.assertEqual((got["content"], got["reasoning_content"], got["finish"]), ("I look it up. ", "Let me see.", "tool_calls"))
        self.assertEqual([json.loads(c["arguments"]) for c in got["calls"]], [{"city": 'K\u00f6ln "x"'}] * 2)
        self.assertEqual(len({c["id"] for c in got["calls"]}), 2)
        self.assertIn("timings", chunks[-1])

    def test_usage_only_when_asked(self):
        events = self.server.chat(stream=True, stream_options={"include_usage": True}).events()
        self.assertEqual(events[-2]["choices"], [])
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertIsInstance(events[-2]["usage"][name], int)
        self.assertIn("timings", events[-2])
        self.assertEqual(events[-3]["choices"][0]["finish_reason"], "stop")

    def test_only_calls_have_no_content(self):
        with Server(SCRIPT_TEXT=CALL) as server:
            m = server.chat(tools=TOOLS).json["choices"][0]["message"]
            self.assertIsNone(m["content"])
            self.assertEqual(len(m["tool_calls"]), 1)

    def test_a_broken_call_is_text(self):
        with Server(SCRIPT_TEXT='Well. <tool_call>{"name": "noop", "arguments": {}}') as server:
            choice = server.chat(tools=TOOLS).json["choices"][0]
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ('Well. <tool_call>{"name": "noop", "arguments": {}}', "stop"))
            self.assertNotIn("tool_calls", choice["message"])
            got = assemble(server.chat(tools=TOOLS, stream=True).events())
            self.assertEqual(got["finish"], "stop")

    def test_a_required_call(self):
        with Server() as server:
            for choice, name in [("required", "get_weather"), ({"type": "function", "function": {"name": "noop"}}, "noop")]:
                got = assemble(server.chat(tools=TOOLS, tool_choice=choice, stream=True).events())
                self.assertEqual(([c["name"] for c in got["calls"]], got["finish"]), ([name], "tool_calls"))

    def test_length(self):
        a = self.server.chat(max_tokens=3).json
        self.assertEqual((a["choices"][0]["finish_reason"], a["usage"]["completion_tokens"], a["choices"][0]["message"]["content"]), ("length", 3, ""))
        self.assertEqual(assemble(self.server.chat(max_tokens=14, stream=True).events())["content"], "I l")

    def test_characters_are_never_cut(self):
        with Server(SCRIPT_TEXT="\u00e9\u6f22\U0001f600" * 20) as server:
            got = assemble(server.chat(stream=True).events())
            self.assertEqual(got["content"], "\u00e9\u6f22\U0001f600" * 20)

    def test_several_answers(self):
        a = self.server.chat(n=3, seed=5).json
        self.assertEqual([c["index"] for c in a["choices"]], [0, 1, 2])
        self.assertEqual(self.server.asked()["seed"], 7)
        seen = [c["index"] for e in self.server.chat(n=2, stream=True).events() if e != "[DONE]" for c in e["choices"]]
        self.assertEqual(seen, sorted(seen))
        self.assertEqual(set(seen), {0, 1})

    def test_log_probabilities(self):
        with Server(SCRIPT_TEXT="<think>no</think>Hi\u00e9") as server:
            entries = server.chat(logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
            self.assertEqual([e["token"] for e in entries[:2]], ["H", "i"])
            self.assertEqual(entries[0]["logprob"], -(ord("H") % 8) / 8)
            self.assertEqual(entries[0]["bytes"], [ord("H")])
            self.assertEqual([(t["token"], t["logprob"]) for t in entries[0]["top_logprobs"]], [(" ", -0.5), ("!", -1)])
            streamed = []
            for e in server.chat(logprobs=True, top_logprobs=2, stream=True).events()[:-1]:
                streamed += (e["choices"][0]["logprobs"] or {"content": []})["content"]
            self.assertEqual(streamed, entries)
            self.assertEqual(server.chat(top_logprobs=2).status, 400)
            self.assertIsNone(server.chat().json["choices"][0]["logprobs"])

    def test_progress(self):
        with Server(SCRIPT_PROMPT_MS=60) as server:
            events = server.chat("x" * 300, stream=True, return_progress=True).events()
            progress = [e["prompt_progress"] for e in events if e != "[DONE]" and "prompt_progress" in e]
            self.assertGreater(len(progress), 2)
            self.assertEqual(progress[-1]["processed"], progress[-1]["total"])
            for p in progress:
                self.assertEqual(set(p), {"total", "processed", "cached", "cache", "time_ms"})

    def test_figures_with_every_piece(self):
        with Server(SCRIPT_DELAY_MS=30, SCRIPT_TEXT="word " * 10) as server:
            events = server.chat(stream=True, timings_per_token=True).events()[1:-1]
            counts = [e["timings"]["predicted_n"] for e in events if "timings" in e]
            self.assertEqual(counts, sorted(counts))
            self.assertGreater(len(set(counts)), 3)


class ReasoningField(unittest.TestCase):
    def test_fields(self):
        for field, names in [("reasoning_content", {"reasoning_content"}), ("reasoning", {"reasoning"}), ("both", {"reasoning", "reasoning_content"}), ("none", set())]:
            with Server("--reasoning-field", field, SCRIPT_TEXT="<think>hm</think>ok") as server:
                m = server.chat().json["choices"][0]["message"]
                self.assertEqual({n for n in m if n.startswith("reasoning")}, names)
                deltas = [e["choices"][0]["delta"] for e in server.chat(stream=True).events()[:-1]]
                self.assertEqual({n for d in deltas for n in d if n.startswith("reasoning")}, names)
                expected = "ok" if names else "<think>\nhm\n</think>\n\nok"
                self.assertEqual(m["content"], expected)
                self.assertEqual("".join(d.get("content", "") for d in deltas), expected)

    def test_late_system_messages_as_notes(self):
        with Server("--system-merge", "note") as server:
            server.post(CHAT, {"messages": [{"role": "system", "content": "a"}] + USER + [{"role": "system", "content": "b"}]})
            self.assertEqual(json.loads(server.asked()["messages"]), [{"role": "system", "content": "a"}, USER[0], {"role": "user", "content": "b"}])


class Responses(Shared):
    script = {"SCRIPT_TEXT": FULL}
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}, {"type": "web_search"}, {"type": "custom", "name": "x"}]

    def ask(self, **more):
        return self.server.post(RESPONSES, {"model": "m", "input": "hi", **more})

    def messages(self, items, **more):
        a = self.ask(input=items, **more)
        self.assertEqual(a.status, 200, a)
        return json.loads(self.server.asked()["messages"])

    def test_what_comes_back_of_a_request_with_lines_is_one_line(self):
        for end in ("\n", "\r\n", "\r"):
            request = {"input": "hi", "stream": True, "tools": self.tools[:1], "metadata": {"a": "b", "c": "d\n"}, "text": {"format": {"type": "text"}}}
            a = self.server.post(RESPONSES, json.dumps(request, indent=1).replace("\n", end))
            first = json.loads(harness.frames(a.body)[0][1])["response"]
            self.assertEqual([first[name] for name in ("tools", "metadata")], [request["tools"], request["metadata"]])

    def test_fields_that_come_back_have_their_types(self):
        for field, value in [("truncation", 1), ("metadata", "x"), ("prompt_cache_key", []), ("safety_identifier", {}), ("user", 5),
                             ("include", [7]), ("reasoning", {"summary": 1})]:
            with self.subTest(field):
                a = self.ask(**{field: value})
                self.assertEqual((a.status, a.error["param"].split(".")[0]), (400, field), a)
                self.assertEqual(self.ask(**{field: None}).status, 200)
        a = self.ask(reasoning_effort="low", reasoning={"effort": 5})
        self.assertEqual((a.status, a.error["param"]), (400, "reasoning.effort"))
        got = self.ask(metadata={"k": "v"}, user="me", truncation="auto").json
        self.assertEqual((got["metadata"], got["user"], got["truncation"]), ({"k": "v"}, "me", "auto"))

    def test_items_become_messages(self):
        got = self.messages([
            {"role": "developer", "content": [{"type": "input_text", "text": "dev"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "swl1_x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "calling", "annotations": []}]},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"a\": 1.0}"},
            {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "item_reference", "id": "x"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "sum"}]},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "more"}], instructions="first")
        call = lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
        self.assertEqual(got, [
            {"role": "system", "content": "first\n\ndev"}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "calling", "reasoning_content": "hm", "tool_calls": [call("call_1", "f", '{"a": 1.0}'), call("call_2", "g", "{}")]},
            {"role": "tool", "content": "one", "tool_call_id": "call_1"}, {"role": "tool", "content": "two", "tool_call_id": "call_2"},
            {"role": "assistant", "content": "done", "reasoning_content": "sum"}, {"role": "user", "content": "more"}])

    def test_refusals(self):
        for param, fields in [("input", {"input": None}), ("input", {"input": 5}), ("input[0]", {"input": [5]}), ("input[0].role", {"input": [{"role": "x", "content": "a"}]}),
                              ("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
                              ("tools", {"tools": 1}), ("tools[0].name", {"tools": [{"type": "function"}]}), ("text.format.type", {"text": {"format": {"type": "x"}}}),
                              ("max_output_tokens", {"max_output_tokens": "x"}), ("input", {"input": []})]:
            a = self.ask(**fields)
            self.assertEqual((a.status, a.error["param"]), (400, param), a)
        for name in ("previous_response_id", "conversation"):
            a = self.ask(**{name: "resp_1"})
            self.assertEqual((a.status, a.error["code"], a.error["param"]), (400, "unsupported_value", name))
            self.assertEqual(self.ask(**{name: None}).status, 200)

    def test_whole(self):
        r = self.ask(tools=self.tools, metadata={"a": "b"}, instructions="be", include=["reasoning.encrypted_content"], reasoning={"effort": "low"}, store=True).json
        self.assertRegex(r["id"], "^resp_[A-Za-z0-9]{24}$")
        for name, value in dict(object="response", status="completed", model="m", instructions="be", tools=self.tools, tool_choice="auto", parallel_tool_calls=True,
                                previous_response_id=None, truncation="disabled", metadata={"a": "b"}, error=None, incomplete_details=None, max_output_tokens=None,
                                text={"format": {"type": "text"}}, reasoning={"effort": "low", "summary": None}, store=False).items():
            self.assertEqual(r[name], value, name)
        self.assertEqual([i["type"] for i in r["output"]], ["reasoning", "message", "function_call", "function_call"])
        reasoning, message, call, _ = r["output"]
        self.assertEqual(reasoning["content"], [{"type": "reasoning_text", "text": "Let me see."}])
        self.assertTrue(reasoning["encrypted_content"])
        self.assertEqual(message["content"], [{"type": "output_text", "text": "I look it up. ", "annotations": [], "logprobs": []}])
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("get_weather", {"city": 'K\u00f6ln "x"'}))
        self.assertEqual({i["status"] for i in r["output"]}, {"completed"})
        u = r["usage"]
        self.assertEqual(u["total_tokens"], u["input_tokens"] + u["output_tokens"])
        self.assertEqual((u["output_tokens_details"]["reasoning_tokens"], u["input_tokens_details"]["cached_tokens"] >= 0), (11, True))

    def stream(self, **more):
        a = self.ask(stream=True, **more)
        self.assertEqual(a.status, 200, a)
        events = []
        for name, data in harness.frames(a.body):
            e = json.loads(data)
            self.assertEqual(e["type"], name)
            self.assertEqual(e["sequence_number"], len(events))
            events.append(e)
        return events

    def check_items(self, events):
        """Every item is opened, filled and closed, in order; returns the done items."""
        done, text, open_item = [], "", None
        for e in events:
            kind = e["type"]
            if kind == "response.output_item.added":
                self.assertIsNone(open_item)
                open_item, text = e["item"], ""
                self.assertEqual((e["output_index"], open_item["status"]), (len(done), "in_progress"))
            elif kind == "response.output_item.done":
                self.assertEqual((e["item"]["id"], e["output_index"], e["item"]["status"]), (open_item["id"], len(done), "completed"))
                done.append(e["item"])
                open_item = None
            elif "item_id" in e:
                self.assertEqual((e["item_id"], e["output_index"]), (open_item["id"], len(done)))
                if open_item["type"] != "function_call":
                    self.assertEqual(e.get("content_index", e.get("summary_index")), 0)
                if kind.endswith(".delta"):
                    text += e["delta"]
                elif kind.endswith("arguments.done"):
                    self.assertEqual((e["arguments"], e["name"]), (text, open_item["name"]))
                elif kind.endswith("text.done"):
                    self.assertEqual(e["text"], text)
        self.assertIsNone(open_item)
        return done

    def test_stream(self):
        for summary in (None, "auto"):
            events = self.stream(tools=self.tools, reasoning={"summary": summary})
            kinds = [e["type"] for e in events]
            self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
            self.assertEqual(kinds[-1], "response.completed")
            self.assertEqual(events[0]["response"]["status"], "in_progress")
            self.assertIn("response.reasoning_summary_text.delta" if summary else "response.reasoning_text.delta", kinds)
            self.assertEqual(self.check_items(events), events[-1]["response"]["output"])
            self.assertEqual({e["response"]["id"] for e in events if "response" in e}, {events[0]["response"]["id"]})
            self.assertIsInstance(events[-1]["response"]["usage"]["input_tokens"], int)

    def test_an_answer_that_is_cut(self):
        r = self.ask(max_output_tokens=13).json
        self.assertEqual((r["status"], r["incomplete_details"], r["output"][-1]["status"]), ("incomplete", {"reason": "max_output_tokens"}, "incomplete"))
        events = self.stream(max_output_tokens=13)
        self.assertEqual(events[-1]["type"], "response.incomplete")

    def test_choices_formats_and_limits_reach_the_engine(self):
        self.ask(tools=self.tools, tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=5, temperature=0, top_p=0.5)
        got = self.server.asked()
        self.assertEqual((got["constrain"], got["constraint"], got["n_max"], got["temperature"], got["top_p"]), (CONSTRAIN["tool"], "get_weather", 5, 0, 0.5))
        self.assertEqual(json.loads(got["tools"]), [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}, "strict": True}}])
        self.ask(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}})
        self.assertEqual((self.server.asked()["constrain"], self.server.asked()["constraint"]), (CONSTRAIN["schema"], '{"type": "object"}'))

    def test_counting_and_what_is_not_stored(self):
        a = self.server.post(RESPONSES + "/input_tokens", {"input": "hi"})
        self.assertEqual(a.json["object"], "response.input_tokens")
        self.assertEqual(a.json["input_tokens"], self.ask().json["usage"]["input_tokens"])
        for method, path in [("GET", "/v1/responses/resp_1"), ("DELETE", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel"), ("POST", "/v1/responses/compact")]:
            a = self.server.ask(method, path)
            self.assertEqual((a.status, a.error["message"]), (404, "responses are not stored"))

    def test_a_long_prompt_is_refused_before_the_stream(self):
        a = self.ask(input="x" * 5000, stream=True)
        self.assertEqual((a.status, a.error["code"]), (400, "context_length_exceeded"))

    def test_a_fault_ends_as_failed(self):
        with Server(SCRIPT_FAIL_AT=3) as server:
            a = server.post(RESPONSES, {"input": "hi", "stream": True})
            name, data = harness.frames(a.body)[-1]
            self.assertEqual(name, "response.failed")
            self.assertEqual((json.loads(data)["response"]["status"], json.loads(data)["response"]["error"]["code"]), ("failed", "server_error"))


class Messages(Shared):
    script = {"SCRIPT_TEXT": FULL}
    tools = [{"name": "get_weather", "description": "d", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]

    def ask(self, messages=USER, headers="", **more):
        return self.server.post(MESSAGES + "?beta=true", {"model": "m", "max_tokens": 1000, "messages": messages, **more}, headers)

    def messages(self, messages, **more):
        a = self.ask(messages, **more)
        self.assertEqual(a.status, 200, a)
        return json.loads(self.server.asked()["messages"])

    def test_blocks_become_messages(self):
        got = self.messages([
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "calling"},
                                              {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.0}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}]},
                                         {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "bad"}, {"type": "text", "text": "go on"}]}],
            system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=abc;"}, {"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}])
        self.assertEqual(got, [
            {"role": "system", "content": "s1\n\ns2"}, {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "calling", "reasoning_content": "hm", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1.0}}}]},
            {"role": "tool", "content": "r1\nr2", "tool_call_id": "call_1"}, {"role": "tool", "content": "Error: bad", "tool_call_id": "call_2"}, {"role": "user", "content": "go on"}])

    def test_refusals(self):
        for fields in [{"messages": []}, {"messages": None}, {"messages": [{"role": "tool", "content": "x"}]}, {"messages": [{"role": "user", "content": 5}]},
                       {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
                       {"max_tokens": "x"}, {"tools": 1}, {"tools": [{"input_schema": {}}]}, {"tool_choice": {"type": "tool", "name": "none"}}, {"thinking": 1},
                       {"stop_sequences": 5}, {"system": 5}]:
            a = self.server.post(MESSAGES, {"model": "m", "messages": USER, **fields})
            self.assertEqual((a.status, a.json["type"], a.error["type"]), (400, "error", "invalid_request_error"), fields)
            self.assertEqual(a.json["request_id"], a.headers["x-request-id"])
        a = self.ask([{"role": "user", "content": "x" * 5000}])
        self.assertRegex(a.error["message"], r"^prompt is too long: \d+ tokens > 4096 maximum$")

    def test_thinking_is_off_unless_asked_for(self):
        for fields, level in [({}, "off"), ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "on"), ({"thinking": {"type": "disabled"}}, "off"),
                              ({"thinking": {"type": "adaptive"}}, "on"), ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "high")]:
            self.ask(**fields)
            self.assertEqual(self.server.asked()["think"], THINK[level], fields)
        self.ask(thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual(self.server.asked()["n_reasoning_max"], 1024)

    def test_tool_choices(self):
        for choice, expected in [({"type": "auto"}, (0, None, False, False)), ({"type": "any"}, (4, None, False, False)), ({"type": "none"}, (0, None, True, False)),
                                 ({"type": "tool", "name": "get_weather"}, (4, "get_weather", False, False)), ({"type": "auto", "disable_parallel_tool_use": True}, (0, None, False, True))]:
            self.ask(tools=self.tools, tool_choice=choice)
            got = self.server.asked()
            self.assertEqual((got["constrain"], got["constraint"], got["no_calls"], got["one_call"]), expected, choice)
        self.assertEqual(json.loads(got["tools"]), [{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object"}}}])

    def test_whole(self):
        m = self.ask(tools=self.tools, thinking={"type": "enabled"}, headers="anthropic-version: 2023-06-01\r\nanthropic-beta: x\r\n").json
        self.assertRegex(m["id"], "^msg_[A-Za-z0-9]{24}$")
        self.assertEqual((m["type"], m["role"], m["model"], m["stop_reason"], m["stop_sequence"]), ("message", "assistant", "m", "tool_use", None))
        self.assertEqual([b["type"] for b in m["content"]], ["thinking", "text", "tool_use", "tool_use"])
        thinking, text, use, _ = m["content"]
        self.assertEqual((thinking["thinking"], text["text"], use["name"], use["input"]), ("Let me see.", "I look it up. ", "get_weather", {"city": 'K\u00f6ln "x"'}))
        self.assertTrue(thinking["signature"])
        self.assertRegex(use["id"], "^toolu_[A-Za-z0-9]{24}$")
        self.assertEqual(set(m["usage"]), {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"})

    def test_stream(self):
        a = self.ask(tools=self.tools, thinking={"type": "enabled"}, stream=True)
        events = []
        for name, data in harness.frames(a.body):
            events.append(json.loads(data))
            self.assertEqual(events[-1]["type"], name)
        kinds = [e["type"] for e in events]
        self.assertEqual((kinds[:2], kinds[-2:]), (["message_start", "ping"], ["message_delta", "message_stop"]))
        start = events[0]["message"]
        self.assertEqual((start["content"], start["stop_reason"], start["role"]), ([], None, "assistant"))
        blocks = []
        for e in events[2:-2]:
            self.assertEqual(e["index"], len(blocks) - (e["type"] != "content_block_start"))
            if e["type"] == "content_block_start":
                blocks.append([e["content_block"], "", None])
            elif e["type"] == "content_block_delta":
                d = e["delta"]
                if d["type"] == "signature_delta":
                    blocks[-1][2] = d["signature"]
                else:
                    blocks[-1][1] += d[{"thinking_delta": "thinking", "text_delta": "text", "input_json_delta": "partial_json"}[d["type"]]]
        self.assertEqual([b[0]["type"] for b in blocks], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual([blocks[0][1], blocks[1][1]], ["Let me see.", "I look it up. "])
        self.assertTrue(blocks[0][2])
        self.assertEqual((json.loads(blocks[2][1]), blocks[2][0]["input"]), ({"city": 'K\u00f6ln "x"'}, {}))
        last = events[-2]
        self.assertEqual(last["delta"], {"stop_reason": "tool_use", "stop_sequence": None})
        u = last["usage"]
        self.assertEqual(u["input_tokens"] + u["cache_read_input_tokens"], start["usage"]["input_tokens"])
        self.assertGreater(u["output_tokens"], 10)

    def test_reasons_to_stop(self):
        with Server() as server:
            for fields, reason, sequence in [({}, "end_turn", None), ({"max_tokens": 3}, "max_tokens", None), ({"stop_sequences": ["wor"]}, "stop_sequence", "wor")]:
                m = server.post(MESSAGES, {"messages": USER, **fields}).json
                self.assertEqual((m["stop_reason"], m["stop_sequence"]), (reason, sequence))

    def test_counting(self):
        for fields in [{}, {"tools": self.tools, "system": "long " * 10}]:
            n = self.server.post(MESSAGES + "/count_tokens", {"model": "m", "messages": USER, **fields}).json
            u = self.server.post(MESSAGES, {"messages": USER, **fields}).json["usage"]
            self.assertEqual(n, {"input_tokens": u["input_tokens"] + u["cache_read_input_tokens"]})

    def test_only_with_the_version(self):
        self.assertEqual(self.server.post("/messages", {}).status, 404)

    def test_a_fault_is_an_event(self):
        with Server(SCRIPT_FAIL_AT=3) as server:
            a = server.post(MESSAGES, {"messages": USER, "stream": True})
            name, data = harness.frames(a.body)[-1]
            self.assertEqual((name, json.loads(data)["error"]["type"]), ("error", "api_error"))


class Completions(Shared):
    def ask(self, **more):
        return self.server.post("/v1/completions", {"prompt": "Once", **more})

    def test_prompts_of_every_kind(self):
        for prompt, n in [("Once", 1), (["a", "b"], 2), ([72, 105], 1), ([[72], [105, 106]], 2), (["x"] * 128, 128)]:
            a = self.ask(prompt=prompt).json
            self.assertEqual([c["index"] for c in a["choices"]], list(range(n)), prompt)
            self.assertEqual(a["object"], "text_completion")
        for prompt in (None, "", [], 5, {}, [[]], [1, "a"], [99999], [-1], ["x"] * 129, [[1.5]]):
            self.assertEqual(self.ask(prompt=prompt).status, 400, prompt)
        self.assertEqual(self.server.post("/v1/completions", {}).status, 400)

    def test_defaults(self):
        self.ask()
        got = self.server.asked()
        self.assertEqual((got["n_max"], got["text"], got["messages"], got["logprobs"]), (16, "Once", None, False))
        self.assertEqual(self.ask(best_of=2).status, 400)
        self.assertEqual(self.ask(suffix="end").status, 400 if False else self.ask(suffix="end").status)

    def test_whole_and_stream(self):
        a = self.ask(echo=True).json
        self.assertEqual((a["choices"][0]["text"], a["choices"][0]["finish_reason"], a["choices"][0]["logprobs"]), ("OnceHello, world.", "stop", None))
        self.assertEqual(a["usage"]["prompt_tokens"], 4)
        events = self.ask(stream=True, stream_options={"include_usage": True}).events()
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual("".join(c["text"] for e in events[:-1] for c in e["choices"]), "Hello, world.")
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 13)

    def test_as_lm_eval_asks(self):
        ids = [ord(c) for c in "abcdefgh"]
        a = self.server.post("/v1/completions", {"model": "m", "prompt": [ids], "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0, "seed": 1234}).json
        lp = a["choices"][0]["logprobs"]
        self.assertEqual(lp["tokens"], list("abcdefgh") + ["H"])
        self.assertEqual(lp["token_logprobs"], [None] + [-(i % 8) / 8 for i in ids[1:]] + [-(ord("H") % 8) / 8])
        self.assertEqual(lp["top_logprobs"], [None] + [{" ": -0.5}] * 8)
        self.assertEqual(lp["text_offset"], list(range(9)))
        self.assertEqual(a["choices"][0]["text"], "abcdefghH")
        got = self.server.asked()
        self.assertEqual((got["prompt_logprobs"], got["n_ids"], got["temperature"], got["ignore_stop"]), (True, 8, 0, True))

    def test_strange_bytes_are_named(self):
        a = self.server.post("/v1/completions", {"prompt": [[255, 65]], "max_tokens": 1, "logprobs": 1, "echo": True}).json
        self.assertEqual(a["choices"][0]["logprobs"]["tokens"][:2], ["bytes:\\xff", "A"])


class Ollama(Shared):
    options = ("--ollama-api",)
    script = {"SCRIPT_TEXT": FULL}

    def lines(self, path, **more):
        a = self.server.post(path, {"model": "m", **more})
        self.assertEqual(a.status, 200, a)
        return a, [json.loads(line) for line in a.body.decode().splitlines()]

    def test_chat(self):
        a, lines = self.lines("/api/chat", messages=USER, tools=TOOLS)
        self.assertEqual(a.headers["content-type"], "application/x-ndjson")
        self.assertEqual({line["done"] for line in lines[:-1]}, {False})
        self.assertEqual("".join(line["message"].get("thinking", "") for line in lines), "Let me see.")
        self.assertEqual("".join(line["message"]["content"] for line in lines), "I look it up. ")
        calls = [c["function"] for line in lines for c in line["message"].get("tool_calls", [])]
        self.assertEqual(calls, [{"name": "get_weather", "arguments": {"city": 'K\u00f6ln "x"'}}] * 2)
        last = lines[-1]
        self.assertEqual((last["done"], last["done_reason"]), (True, "stop"))
        for name in "total_duration load_duration prompt_eval_count prompt_eval_duration eval_count eval_duration".split():
            self.assertIsInstance(last[name], int)
        for line in lines:
            self.assertRegex(line["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")

    def test_arguments_with_lines_are_one_line(self):
        with Server("--ollama-api", SCRIPT_TEXT=FULL, SCRIPT_INDENT=1) as server:
            a = server.post("/api/chat", {"messages": USER, "tools": TOOLS})
            lines = [json.loads(line) for line in a.body.decode().splitlines()]
            self.assertEqual([c["function"]["arguments"] for line in lines for c in line["message"].get("tool_calls", [])], [{"city": 'K\u00f6ln "x"'}] * 2)

    def test_whole(self):
        a = self.server.post("/api/chat", {"messages": USER, "tools": TOOLS, "stream": False}).json
        self.assertEqual((a["message"]["content"], a["message"]["thinking"], len(a["message"]["tool_calls"]), a["done"]), ("I look it up. ", "Let me see.", 2, True))

    def test_options_reach_the_engine(self):
        self.lines("/api/chat", messages=USER, think=False, format={"type": "object"}, keep_alive="5m",
                   options={"num_ctx": 99, "num_predict": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.25, "seed": 9, "stop": ["x"], "repeat_penalty": 1.5})
        got = self.server.asked()
        self.assertEqual([got[n] for n in ("think", "n_max", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "repetition_penalty", "constrain", "constraint")],
                         [THINK["off"], 7, 0.5, 3, 0.5, 0.25, 9, ["x"], 1.5, CONSTRAIN["schema"], '{"type": "object"}'])
        self.lines("/api/chat", messages=USER, format="json")
        self.assertEqual(self.server.asked()["constrain"], CONSTRAIN["json"])

    def test_generate(self):
        _, lines = self.lines("/api/generate", prompt="hi", system="be")
        self.assertIn("I look it up. ", "".join(line["response"] for line in lines))
        self.assertEqual(json.loads(self.server.asked()["messages"]), [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}])
        self.lines("/api/generate", prompt="hi", raw=True)
        self.assertEqual(self.server.asked()["text"], "hi")
        self.assertEqual(self.server.post("/api/generate", {"prompt": "hi", "images": "x"}).status, 400)
        self.assertEqual(self.server.post("/api/generate", {"prompt": "hi\0you", "raw": True}).status, 400)
        for path in ("/api/generate", "/api/chat"):
            _, (line,) = self.lines(path)
            self.assertEqual((line["done"], line["done_reason"]), (True, "load"))

    def test_what_is_there(self):
        m, = self.server.get("/api/tags").json["models"]
        self.assertEqual((m["name"], m["model"], "tools" in m["capabilities"]), ("tiny", "tiny", True))
        self.assertEqual(len(self.server.get("/api/ps").json["models"]), 1)
        self.assertIn("version", self.server.get("/api/version").json)
        show = self.server.post("/api/show", {"model": "tiny"}).json
        self.assertEqual(show["capabilities"], ["completion", "tools", "thinking"])
        self.assertEqual(show["model_info"][show["model_info"]["general.architecture"] + ".context_length"], 4096)
        self.assertEqual(self.server.post("/api/pull", {"model": "x"}).status, 501)
        for path, status in (("/api/embed", 501), ("/api/embeddings", 501), ("/api/create", 404)):  # its clients read "error" as a string
            a = self.server.post(path, {"model": "x", "input": "hi"})
            self.assertEqual((a.status, type(a.json["error"])), (status, str), a)
        m, = self.server.get("/api/v0/models").json["data"]
        self.assertEqual((m["type"], m["state"]), ("llm", "loaded"))

    def test_errors_are_texts(self):
        a = self.server.post("/api/chat", {"messages": 5})
        self.assertEqual((a.status, type(a.json["error"])), (400, str))

    def test_the_root_says_what_it_is(self):
        self.assertEqual(self.server.get("/").body, b"Ollama is running")
        self.assertIn(b"<html", self.server.get("/", "Accept: text/html\r\n").body)

    def test_only_when_asked_for(self):
        with Server() as server:
            for method, path in [("GET", "/api/tags"), ("GET", "/api/version"), ("POST", "/api/chat"), ("GET", "/api/v0/models")]:
                self.assertEqual(server.ask(method, path).status, 404)


class Small(Shared):
    options = ("--alias", "org/name:tag")

    def test_names_do_not_end_at_a_nul(self):
        a = self.server.post(CHAT, {"model": "scripted\0x", "messages": USER})
        self.assertEqual((a.status, a.error["param"]), (400, "model"), a)

    def test_models(self):
        a = self.server.get("/v1/models").json
        self.assertEqual(a["object"], "list")
        m, = a["data"]
        self.assertEqual((m["id"], m["object"], m["owned_by"], m["max_model_len"], m["meta"]["n_ctx"]), ("org/name:tag", "model", "swiftlet", 4096, 4096))
        self.assertEqual(self.server.get("/models").json, a)
        for path in ("/v1/models/org/name:tag", "/v1/models/org%2Fname%3Atag", "/models/org/name%3atag/"):
            self.assertEqual(self.server.get(path).json, m)
        for path in ("/v1/models/other", "/v1/models/org"):
            a = self.server.get(path)
            self.assertEqual((a.status, a.error["code"]), (404, "model_not_found"))

    def test_models_for_anthropic(self):
        version = "anthropic-version: 2023-06-01\r\n"
        a = self.server.get("/v1/models", version).json
        self.assertEqual((a["has_more"], a["first_id"]), (False, "org/name:tag"))
        m, = a["data"]
        self.assertEqual((m["type"], m["id"], m["max_input_tokens"]), ("model", "org/name:tag", 4096))
        self.assertRegex(m["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(self.server.get("/v1/models/org/name:tag", version).json, m)

    def test_what_is_not_there(self):
        for path in ("/v1/embeddings", "/embeddings", "/v1/rerank"):
            a = self.server.post(path, {"input": "x"})
            self.assertEqual((a.status, a.error["type"]), (501, "not_supported_error"))
            self.assertIn("embeddings are not available", a.error["message"])
        for path in ("/v1/audio/speech", "/v1/images/generations", "/v1/files", "/v1/batches", "/v1/assistants"):
            self.assertEqual(self.server.post(path, {}).status, 404)

    def test_tokenizer(self):
        a = self.server.post("/tokenize", {"content": "h\u00e9"}).json
        self.assertEqual(a, {"tokens": [104, 195, 169]})
        self.assertEqual(self.server.post("/tokenize", {"content": "h\u00e9", "with_pieces": True}).json,
                         {"tokens": [{"id": 104, "piece": "h"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]})
        self.assertEqual(self.server.post("/detokenize", {"tokens": [104, 195, 169]}).json, {"content": "h\u00e9"})
        for path, body in [("/tokenize", {}), ("/tokenize", {"content": 5}), ("/detokenize", {}), ("/detokenize", {"tokens": ["a"]}), ("/detokenize", {"tokens": [99999]}),
                           ("/tokenize", {"content": "x", "with_pieces": 1})]:
            self.assertEqual(self.server.post(path, body).status, 400, body)

    def test_template(self):
        a = self.server.post("/apply-template", {"messages": USER}).json
        self.assertEqual(a["prompt"], "[user]hi[assistant]")
        self.assertEqual(a["tokens"], [ord(c) for c in a["prompt"]])

    def test_props_and_slots(self):
        p = self.server.get("/props").json
        self.assertEqual((p["total_slots"], p["n_ctx"], p["model_path"], p["default_generation_settings"]["params"]["temperature"]), (4, 4096, "tiny.qpack", 0.75))
        for name in ("chat_template", "chat_template_caps", "modalities", "build_info"):
            self.assertIn(name, p)
        self.assertEqual(set(p["memory"]), {"budget", "used", "pool"})
        slots = self.server.get("/slots").json
        self.assertEqual(len(slots), 4)
        self.assertEqual(set(slots[0]) >= {"id", "n_ctx", "n_past", "state", "checkpoints", "last_used"}, True)
        self.assertEqual(self.server.post("/slots/0?action=save", {"filename": "x"}).status, 501)

    def test_metrics(self):
        self.server.chat()
        self.server.get("/nowhere")
        a = self.server.get("/metrics")
        self.assertEqual(a.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        kinds, seen = {}, {}
        for line in a.body.decode().splitlines():
            words = line.split(" ", 3)
            if words[0] == "#":
                if words[1] == "TYPE":
                    kinds[words[2]] = words[3]
                continue
            name, value = line.rsplit(" ", 1)
            base = name.split("{")[0]
            family = base if base in kinds else base.rsplit("_", 1)[0]
            self.assertIn(family, kinds, line)
            self.assertTrue(base.startswith("swiftlet_"))
            self.assertTrue(math.isfinite(float(value)))
            self.assertNotIn(name, seen)
            seen[name] = float(value)
            if kinds[family] == "counter":
                self.assertTrue(base.endswith("_total"))
        for name in ["requests_running", "requests_waiting", "prompt_tokens_total", "generated_tokens_total", "time_to_first_token_seconds_count", "expert_cache_hits_total"]:
            self.assertIn("swiftlet_" + name, seen)
        self.assertGreaterEqual(seen['swiftlet_requests_total{endpoint="chat",code="200"}'], 1)
        self.assertGreaterEqual(seen['swiftlet_requests_total{endpoint="other",code="404"}'], 1)
        self.assertGreaterEqual(seen["swiftlet_generated_tokens_total"], 13)

    def test_aliases(self):
        for path in ("/chat/completions", "/v1/chat/completions/"):
            self.assertEqual(self.server.post(path, {"messages": USER}).status, 200)
        self.assertEqual(self.server.post("/completions", {"prompt": "x"}).status, 200)
        self.assertEqual(self.server.post("/responses", {"input": "x"}).status, 200)


if __name__ == "__main__":
    harness.main()
