#!/usr/bin/env python3
"""docs/openapi.yaml against swiftlet serve on a scripted engine: requests made from it, good ones and bad ones, are answered
with what it says, and never by a fault of the server. And /metrics as a Prometheus client reads it.

usage: test_openapi.py SWIFTLET_SCRIPTED
"""
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
import hypothesis  # noqa: E402
import jsonschema  # noqa: E402
import schemathesis  # noqa: E402
import yaml  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

from harness import Server, frames, main  # noqa: E402

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "openapi.yaml")
EXAMPLES = 10  # of each operation, good and bad each
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "K\u00f6ln"}}</tool_call>'
TEXTS = ("Hello, \u4e16\u754c.", "<think>\nHm.\n</think>\n\nYes." + CALL)
SETTINGS = hypothesis.settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
                               phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
                               suppress_health_check=list(hypothesis.HealthCheck))


def close(document, node, seen):
    """Objects of answers have the members that are written down, and no others."""
    if isinstance(node, list):
        for item in node:
            close(document, item, seen)
    if not isinstance(node, dict) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node.get("$ref"), str):
        target = document
        for name in node["$ref"].split("/")[1:]:
            target = target[name]
        close(document, target, seen)
    if isinstance(node.get("properties"), dict):
        node.setdefault("additionalProperties", False)
    for value in node.values():
        close(document, value, seen)


def narrow(node):
    """Token ids that the script's vocabulary has, so that not every request with some is refused."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        narrow(value)
    if isinstance(node, dict) and node.get("propertyNames"):
        node["propertyNames"]["pattern"] = "^[0-9]{1,2}$"
    for name in ("prompt", "tokens", "prefixItems"):
        for inner in find_ids(node.get(name)) if isinstance(node, dict) else ():
            inner["maximum"] = 255


def find_ids(node):
    if isinstance(node, dict) and node.get("type") == "integer" and node.get("minimum") == 0:
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from find_ids(value)


def load():
    with open(DOCUMENT, encoding="utf-8") as f:
        document = yaml.safe_load(f)
    narrow(document["components"]["schemas"])
    seen = set()
    for path in document["paths"].values():
        for operation in path.values():
            close(document, operation["responses"], seen)
    return document


def check_stream(case, response, kind):
    """What schemas do not tell of streams: they are framed, every piece is JSON, and no piece is an error."""
    if kind == "text/event-stream":
        pieces = [data for _, data in frames(response.content)]
    else:
        pieces = response.content.decode().splitlines()
    assert pieces, "an empty stream"
    for piece in pieces:
        data = {} if piece == "[DONE]" else json.loads(piece)
        assert isinstance(data, dict) and not data.get("error"), piece


class Conforms(unittest.TestCase):
    """One test for each operation, made below."""

    @classmethod
    def setUpClass(cls):
        cls.servers = [Server("--ollama-api", SCRIPT_TEXT=text, SCRIPT_JSON='{"a": 1}') for text in TEXTS]
        cls.n = 0

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            rc = server.stop(15)
            assert rc == 0, "the server ended with %d" % rc

    def send(self, case):
        type(self).n += 1
        response = case.call(base_url=self.servers[self.n % len(self.servers)].url, timeout=20)
        kind = response.headers.get("content-type", [""])[0].split(";")[0]
        assert response.status_code < 500 or response.status_code in (501, 503), "%d %r" % (response.status_code, response.content)
        context = [checks.status_code_conformance, checks.content_type_conformance]
        if kind in ("text/event-stream", "application/x-ndjson"):
            check_stream(case, response, kind)
        else:
            context.append(checks.response_schema_conformance)
        case.validate_response(response, checks=context)

    def explore(self, operation, mode):
        @hypothesis.seed(1)
        @SETTINGS
        @hypothesis.given(operation.as_strategy(generation_mode=mode))
        def one(case):
            self.send(case)
        one()


def add_tests():
    schema = schemathesis.openapi.from_dict(load())
    for result in schema.get_all_operations():
        operation = result.ok()
        name = re.sub("[^a-z0-9]+", "_", operation.path.lower()).strip("_") or "root"
        modes = [schemathesis.GenerationMode.POSITIVE]
        if list(operation.body):
            modes.append(schemathesis.GenerationMode.NEGATIVE)
        for mode in modes:
            def test(self, operation=operation, mode=mode):
                self.explore(operation, mode)
            setattr(Conforms, "test_%s_%s_%s" % (operation.method, name, mode.value), test)


WRONG = (None, True, False, 0, -1, 2.5, 1e300, "", "x", "\u0000", [], [None], [0], [[]], ["x"], [{}], {}, {"type": None}, {"type": 0})
HI = {"messages": [{"role": "user", "content": "hi"}]}
MINIMAL = {"ChatRequest": HI, "PromptRequest": HI, "MessagesRequest": HI, "CompletionsRequest": {"prompt": "hi"},
           "ResponsesRequest": {"input": "hi"},
           "TokenizeRequest": {"content": "hi"}, "DetokenizeRequest": {"tokens": [65]},
           "ControlRequest": {"id": "x", "action": "reasoning_end"}, "OllamaGenerateRequest": {"prompt": "hi", "stream": False},
           "OllamaChatRequest": {**HI, "stream": False}}


class Fields(unittest.TestCase):
    """Every field with values of every type. What the document says is wrong is an error."""

    def setUp(self):
        self.server = Server("--ollama-api", SCRIPT_TEXT="Hello.")
        self.addCleanup(self.server.stop)
        self.document = load()

    def validator(self, schema):
        return jsonschema.Draft202012Validator({**schema, "components": self.document["components"]})

    def fields(self, schema):
        found = {}
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].split("/")[-1]]
        for part in schema.get("allOf", ()):
            found.update(self.fields(part))
        return {**found, **schema.get("properties", {})}

    def expected(self, operation, answer):
        response = operation["responses"][str(answer.status)]
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].split("/")[-1]]
        return response["content"][answer.headers["content-type"]].get("schema", {})

    def check(self, path, operation, name, field, body):
        answer = self.server.post(path, body)
        said = "%s %s %r" % (path, json.dumps(body)[:300], answer)
        self.assertTrue(answer.status < 500, said)
        if answer.headers["content-type"] == "application/json":
            self.validator(self.expected(operation, answer)).validate(answer.json)
        value = body[name]
        if isinstance(value, dict):  # null is the same as absent
            value = {k: v for k, v in value.items() if v is not None}
        if value is not None and not self.validator(field).is_valid(value):
            self.assertEqual(answer.status, 400, said)

    def test_every_field_with_every_type(self):
        for path, item in self.document["paths"].items():
            operation = item.get("post", {})
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            minimal = MINIMAL.get(schema.get("$ref", "").split("/")[-1])
            for name, field in self.fields(schema).items() if minimal else ():
                for value in WRONG:
                    with self.subTest(path=path, name=name, value=value):
                        self.check(path, operation, name, field, {**minimal, name: value})


class Metrics(unittest.TestCase):
    def test_the_text_is_prometheus_own(self):
        with Server(SCRIPT_TEXT="Hello.") as server:
            server.chat()
            server.get("/nowhere")
            answer = server.get("/metrics")
        self.assertEqual(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        families = list(text_string_to_metric_families(answer.body.decode()))
        names = [f.name for f in families]
        self.assertEqual(len(names), len(set(names)), "a family stands in two places")
        for family in families:
            self.assertRegex(family.name, "^swiftlet_[a-z_]+$")
            self.assertTrue(family.documentation, family.name)
            self.assertIn(family.type, ("counter", "gauge", "histogram"))
            self.assertTrue(family.samples, family.name)
            keys = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
            self.assertEqual(len(keys), len(set(keys)), family.name)
            if family.type == "histogram":
                self.check_histogram(family)
        samples = {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}
        self.assertEqual(samples["swiftlet_requests_total", "chat", "200"], 1)
        self.assertEqual(samples["swiftlet_requests_total", "other", "404"], 1)
        self.assertEqual(samples["swiftlet_generated_tokens_total",], len("Hello."))

    def check_histogram(self, family):
        buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
        count = [s.value for s in family.samples if s.name.endswith("_count")]
        self.assertEqual(buckets, sorted(buckets))
        self.assertEqual([n for _, n in buckets], sorted(n for _, n in buckets))
        self.assertEqual((buckets[-1][0], [buckets[-1][1]]), (float("inf"), count))


if __name__ == "__main__":
    add_tests()
    main()
