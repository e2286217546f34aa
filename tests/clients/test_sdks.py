#!/usr/bin/env python3
"""The SDKs that people use, against swiftlet serve on a scripted engine: what they accept, and what they make of it.

usage: test_sdks.py SWIFTLET_SCRIPTED
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
import anthropic  # noqa: E402
import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from harness import Server, main  # noqa: E402

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "K\u00f6ln", "days": 2}}</tool_call>'
SECOND = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rom"}}</tool_call>'
HI = [{"role": "user", "content": "hi"}]


class Person(BaseModel):
    name: str
    age: int


class Served(unittest.TestCase):
    """A server for each test, closed with it."""

    def serve(self, *options, **script):
        server = Server(*options, **script)
        self.addCleanup(server.stop)
        return server

    def openai(self, **script):
        self.server = self.serve(**script)
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        return client

    def anthropic(self, **script):
        self.server = self.serve(**script)
        client = anthropic.Anthropic(base_url=self.server.url, api_key="none", max_retries=0)
        self.addCleanup(client.close)
        return client


class ChatCompletions(Served):
    def test_an_answer(self):
        got = self.openai(SCRIPT_TEXT="Hello, you.").chat.completions.create(model="m", messages=HI)
        self.assertEqual(got.choices[0].message.content, "Hello, you.")
        self.assertEqual(got.choices[0].finish_reason, "stop")
        self.assertEqual(got.usage.total_tokens, got.usage.prompt_tokens + got.usage.completion_tokens)
        self.assertEqual(got.usage.completion_tokens, len("Hello, you."))

    def test_a_stream(self):
        client = self.openai(SCRIPT_TEXT="Zeichen: \u00e9\u4e2d\U0001f98a.")
        chunks = list(client.chat.completions.create(model="m", messages=HI, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), "Zeichen: \u00e9\u4e2d\U0001f98a.")
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        self.assertFalse(chunks[-1].choices)
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_the_streaming_helper(self):
        with self.openai(SCRIPT_TEXT="One two.").chat.completions.stream(model="m", messages=HI) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertEqual(final.choices[0].message.content, "One two.")

    def test_parallel_calls_at_once(self):
        got = self.openai(SCRIPT_TEXT="Let me see." + CALL + SECOND).chat.completions.create(model="m", messages=HI, tools=[TOOL])
        calls = got.choices[0].message.tool_calls
        self.assertEqual([json.loads(c.function.arguments) for c in calls], [{"city": "K\u00f6ln", "days": 2}, {"city": "Rom"}])
        self.assertEqual(len({c.id for c in calls}), 2)
        self.assertEqual(got.choices[0].finish_reason, "tool_calls")

    def test_parallel_calls_streamed(self):
        with self.openai(SCRIPT_TEXT=CALL + SECOND).chat.completions.stream(model="m", messages=HI, tools=[TOOL]) as stream:
            for _ in stream:
                pass
            calls = stream.get_final_completion().choices[0].message.tool_calls
        self.assertEqual([c.function.name for c in calls], ["get_weather"] * 2)
        self.assertEqual([json.loads(c.function.arguments) for c in calls], [{"city": "K\u00f6ln", "days": 2}, {"city": "Rom"}])

    def test_a_tool_loop(self):
        client = self.openai(SCRIPT_TEXT=CALL + "\n---\nIt rains.")
        first = client.chat.completions.create(model="m", messages=HI, tools=[TOOL]).choices[0].message
        history = HI + [first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "rain"}]
        got = client.chat.completions.create(model="m", messages=history, tools=[TOOL])
        self.assertEqual(got.choices[0].message.content, "It rains.")

    def test_structured_output(self):
        client = self.openai(SCRIPT_JSON='{"name": "Ada", "age": 36}')
        got = client.chat.completions.parse(model="m", messages=HI, response_format=Person)
        self.assertEqual(got.choices[0].message.parsed, Person(name="Ada", age=36))

    def test_logprobs(self):
        got = self.openai(SCRIPT_TEXT="abc").chat.completions.create(model="m", messages=HI, logprobs=True, top_logprobs=2)
        tokens = got.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), "abc")
        self.assertEqual([len(t.top_logprobs) for t in tokens], [2, 2, 2])

    def test_reasoning_is_a_field_of_its_own(self):
        got = self.openai(SCRIPT_TEXT="<think>hm</think>Yes.").chat.completions.create(model="m", messages=HI)
        self.assertEqual(got.choices[0].message.content, "Yes.")
        self.assertEqual(got.choices[0].message.model_extra["reasoning_content"], "hm")

    def test_faults_are_raised_as_what_they_are(self):
        client = self.openai()
        with self.assertRaises(openai.BadRequestError) as e:
            client.chat.completions.create(model="m", messages=HI, temperature="hot")
        self.assertEqual(e.exception.param, "temperature")
        with self.assertRaises(openai.InternalServerError):
            client.embeddings.create(model="m", input="x")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("nothing/there")

    def test_a_fault_in_mid_stream_is_raised(self):
        client = self.openai(SCRIPT_FAIL_AT="3")
        with self.assertRaises(openai.APIError):
            list(client.chat.completions.create(model="m", messages=HI, stream=True))

    def test_models(self):
        models = list(self.openai().models.list())
        self.assertEqual([m.id for m in models], ["tiny"])

    def test_legacy_completions(self):
        client = self.openai(SCRIPT_TEXT="went home.")
        got = client.completions.create(model="m", prompt="She ", max_tokens=50)
        self.assertEqual(got.choices[0].text, "went home.")
        self.assertEqual("".join(c.choices[0].text for c in client.completions.create(model="m", prompt="She ", max_tokens=50,
                                                                                       stream=True) if c.choices), "went home.")


class Responses(Served):
    def test_an_answer(self):
        got = self.openai(SCRIPT_TEXT="Hello, you.").responses.create(model="m", input="hi", instructions="Be brief.")
        self.assertEqual(got.output_text, "Hello, you.")
        self.assertEqual(got.status, "completed")

    def test_the_strict_stream(self):
        client = self.openai(SCRIPT_TEXT="<think>hm</think>Look: " + CALL)
        tool = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
        with client.responses.stream(model="m", input="hi", tools=[tool]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(kinds[0], "response.created")
        self.assertEqual(kinds[-1], "response.completed")
        self.assertEqual([item.type for item in final.output], ["reasoning", "message", "function_call"])
        self.assertEqual(json.loads(final.output[2].arguments), {"city": "K\u00f6ln", "days": 2})
        self.assertEqual(final.output_text.strip(), "Look:")

    def test_a_tool_loop(self):
        client = self.openai(SCRIPT_TEXT=CALL + "\n---\nIt rains.")
        tool = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
        first = client.responses.create(model="m", input="hi", tools=[tool])
        call = next(item for item in first.output if item.type == "function_call")
        items = [{"role": "user", "content": "hi"}, *first.output,
                 {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        self.assertEqual(client.responses.create(model="m", input=items, tools=[tool]).output_text, "It rains.")

    def test_structured_output(self):
        client = self.openai(SCRIPT_JSON='{"name": "Ada", "age": 36}')
        self.assertEqual(client.responses.parse(model="m", input="hi", text_format=Person).output_parsed, Person(name="Ada", age=36))


class Messages(Served):
    def test_an_answer(self):
        got = self.anthropic(SCRIPT_TEXT="Hello, you.").messages.create(model="m", max_tokens=100, messages=HI, system="Be brief.")
        self.assertEqual(got.content[0].text, "Hello, you.")
        self.assertEqual(got.stop_reason, "end_turn")

    def test_a_stream_with_thinking_and_a_call(self):
        client = self.anthropic(SCRIPT_TEXT="<think>hm</think>Look: " + CALL)
        tool = {"name": "get_weather", "description": "The weather.", "input_schema": PARAMETERS}
        with client.messages.stream(model="m", max_tokens=2000, messages=HI, tools=[tool],
                                    thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
            for _ in stream:
                pass
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], ["thinking", "text", "tool_use"])
        self.assertEqual(final.content[0].thinking, "hm")
        self.assertTrue(final.content[0].signature)
        self.assertEqual(final.content[2].input, {"city": "K\u00f6ln", "days": 2})
        self.assertEqual(final.stop_reason, "tool_use")

    def test_a_tool_loop(self):
        client = self.anthropic(SCRIPT_TEXT=CALL + SECOND + "\n---\nIt rains.")
        tool = {"name": "get_weather", "input_schema": PARAMETERS}
        first = client.messages.create(model="m", max_tokens=1000, messages=HI, tools=[tool])
        calls = [block for block in first.content if block.type == "tool_use"]
        self.assertEqual(len(calls), 2)
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": [{"type": "text", "text": "rain"}]} for c in calls]
        got = client.messages.create(model="m", max_tokens=1000, tools=[tool],
                                     messages=HI + [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}])
        self.assertEqual(got.content[0].text, "It rains.")

    def test_tokens_are_counted(self):
        client = self.anthropic()
        count = client.messages.count_tokens(model="m", messages=HI).input_tokens
        used = client.messages.create(model="m", max_tokens=10, messages=HI).usage
        self.assertEqual(count, used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens)

    def test_faults_are_raised_as_what_they_are(self):
        client = self.anthropic()
        with self.assertRaises(anthropic.BadRequestError):
            client.messages.create(model="m", max_tokens=10, messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}])

    def test_models(self):
        self.assertEqual([m.id for m in self.anthropic().models.list()], ["tiny"])


class Tools(Served):
    """Programs and frameworks on top."""

    def test_llm(self):
        server = self.serve(SCRIPT_TEXT="Hello, you.")
        folder = server.folder.name
        with open(os.path.join(folder, "extra-openai-models.yaml"), "w") as f:
            f.write("- model_id: m\n  model_name: m\n  api_base: %s/v1\n" % server.url)
        env = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
        for more in ([], ["--no-stream"]):
            got = subprocess.run([sys.executable, "-m", "llm", "-m", "m", "hi", "-n", *more], env=env, capture_output=True, text=True,
                                 timeout=120)
            self.assertEqual((got.returncode, got.stdout.strip()), (0, "Hello, you."), got.stderr)

    def test_langchain_calls_tools(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI

        @tool
        def get_weather(city: str, days: int = 1) -> str:
            """The weather."""
            return "rain in " + city

        server = self.serve(SCRIPT_TEXT=CALL + "\n---\nIt rains.")
        model = ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="m", max_retries=0).bind_tools([get_weather])
        history = [HumanMessage("hi")]
        first = model.invoke(history)
        self.assertEqual(first.tool_calls[0]["args"], {"city": "K\u00f6ln", "days": 2})
        history += [first, ToolMessage(get_weather.invoke(first.tool_calls[0]["args"]), tool_call_id=first.tool_calls[0]["id"])]
        self.assertEqual(model.invoke(history).content, "It rains.")
        whole = None
        for chunk in model.stream([HumanMessage("hi")]):
            whole = chunk if whole is None else whole + chunk
        self.assertEqual(whole.tool_calls[0]["args"], {"city": "K\u00f6ln", "days": 2})

    def test_langchain_structured_output(self):
        from langchain_openai import ChatOpenAI

        server = self.serve(SCRIPT_JSON='{"name": "Ada", "age": 36}')
        model = ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="m", max_retries=0)
        self.assertEqual(model.with_structured_output(Person, method="json_schema").invoke("hi"), Person(name="Ada", age=36))


if __name__ == "__main__":
    main()
