#!/usr/bin/env python3
"""Compares the chat engine's prompts with transformers' way: jinja2 renders, the `tokenizers` package encodes.

Random conversations (tests/text/check_template.py makes them, with tags that somebody typed) go through swl_request_create. With
parse_special the ids are those of the whole rendered text. Without it the text is the same, the ids spell it, and none of them
is an added token that stands in what a user, a tool or a system message said. The complete renderings of the families
(tests/text/renderings.json) are among the cases.

usage: check_requests.py [--seed N] [--conversations N] PROGRAM MODEL
  PROGRAM  tests/chat/render_requests.c, built
The last line says "N passed, N failed".
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(os.path.dirname(HERE), "text")
sys.path.insert(0, TEXT)
import check_template as ct  # noqa: E402

passed = failed = refused = 0
FORMS = [("qwen3_5", "3.5"), ("qwen3_5", "3.6"), ("qwen3_5", "3.8"), ("qwen3_next", "instruct"), ("qwen3_next", "thinking"),
         ("qwen3_coder", "30b"), ("qwen3_coder", "next")]


class Engine:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, messages, tools, variables, parse_special):
        request = {"template": template, "messages": messages, "vars": variables, "parse_special": parse_special}
        if tools is not None:
            request["tools"] = tools
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the engine died on %r" % request)
        return json.loads(line)


def note(ok, name, *what):
    global passed, failed
    passed += ok
    failed += not ok
    if not ok and failed <= 20:
        print("%s: differs" % name)
        for w in what:
            print("    %s" % str(w)[-700:])


def normal(m, xml):
    """What the engine makes of a message that is well-formed already."""
    m = dict(m)
    if m.get("content") is None:
        m["content"] = ""
    if "tool_calls" in m and not m["tool_calls"]:
        del m["tool_calls"]
    for call in m.get("tool_calls", []):
        a = call["function"].get("arguments")
        if isinstance(a, str) and xml:
            call["function"]["arguments"] = json.loads(a)
        elif a is None:
            call["function"]["arguments"] = {}
    return m


def typed_tags(tokenizer, special_only):
    return [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special or not special_only]


def harmless(value, tags):
    """The same with every typed tag replaced by something as long that is no tag."""
    if isinstance(value, str):
        for t in tags:
            value = value.replace(t, "#" * len(t))
        return value
    if isinstance(value, list):
        return [harmless(v, tags) for v in value]
    if isinstance(value, dict):
        return {k: harmless(v, tags) for k, v in value.items()}
    return value


def wholly_response(m):
    t = m["content"].strip() if isinstance(m.get("content"), str) else ""
    return m["role"] == "user" and t.startswith("<tool_response>") and t.endswith("</tool_response>")


def check(engine, name, path, source, tokenizer, v):
    global refused
    v = dict(v)
    messages, tools = v.pop("messages"), v.pop("tools", None)
    variables = {k: x for k, x in v.items() if k != "form"}
    full = dict(v, messages=[normal(m, "<function=" in source) for m in messages])
    if tools:
        full["tools"] = tools
    if "preserve_thinking" in source and "preserve_thinking" not in full:
        full["preserve_thinking"] = True
    want, why = ct.reference(source, full)
    for parse_special in (True, False):
        got = engine.render(path, messages, tools, variables, parse_special)
        if want is None:
            refused += 1
            raised = why[len("TemplateError: "):] if why.startswith("TemplateError: ") else ""
            note("error" in got and got["error"].endswith(raised), name, why, got)
            continue
        if got.get("text") != want:
            note(False, name, "jinja2: %r" % want, "engine: %r" % got, "variables: %r" % full)
            continue
        if parse_special:
            note(got["ids"] == tokenizer.encode(want, add_special_tokens=False).ids, name, want, got["ids"])
            continue
        spelled = tokenizer.decode(got["ids"], skip_special_tokens=False)
        note(spelled == tokenizer.decode(tokenizer.encode(want, add_special_tokens=False).ids, skip_special_tokens=False), name,
             "spelled %r" % spelled, "wanted %r" % want)
        if any(wholly_response(m) for m in messages):
            continue
        special, every = typed_tags(tokenizer, True), typed_tags(tokenizer, False)
        tame = dict(full, messages=[harmless(m, special if m["role"] == "assistant" else every) for m in full["messages"]])
        if tools:
            tame["tools"] = harmless(tools, every)
        plain, _ = ct.reference(source, tame)
        added = set(tokenizer.get_added_tokens_decoder())
        expected = [i for i in tokenizer.encode(plain, add_special_tokens=False).ids if i in added]
        note([i for i in got["ids"] if i in added] == expected, name, "typed tags became tokens", want)


def write_templates(folder):
    out = {}
    for name, form in FORMS:
        with open(os.path.join(TEXT, "templates", name + ".jinja"), encoding="utf-8", newline="") as f:
            source = "{%%- set form = '%s' %%}" % form + f.read()
        path = os.path.join(folder, "%s-%s.jinja" % (name, form))
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(source)
        out[name, form] = (path, source)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=1500)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    ct.rng.seed(args.seed)
    random.seed(args.seed)
    ct.WORDS[:] = [w.replace("\0", "\1") for w in ct.WORDS]  # swl_request_text ends at a NUL
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    engine = Engine(args.program, args.model)
    with tempfile.TemporaryDirectory() as folder:
        templates = write_templates(folder)
        for case in ct.load("renderings.json"):
            variables = dict(case["vars"])
            variables.setdefault("add_generation_prompt", False)
            if any(not isinstance(m.get("content", ""), (str, type(None))) for m in variables["messages"]):
                continue  # images: refused, see the unit test
            if any(m["role"] not in ("system", "user", "assistant", "tool") for m in variables["messages"]):
                continue
            if not variables["messages"] or not any(m["role"] == "user" for m in variables["messages"]) or any(
                    m["role"] == "system" for m in variables["messages"][1:]):
                continue  # the engine helps such requests along
            for form in case["templates"]:
                check(engine, case["name"], *templates[tuple(form)], tokenizer, variables)
        for i in range(args.conversations):
            ct.odd = False
            v = conversation()
            form = FORMS[i % len(FORMS)]
            check(engine, "conversation %d, %s" % (i, form), *templates[form], tokenizer, v)
    engine.process.stdin.close()
    print("seed %d; %d of the checks are errors on both sides" % (args.seed, refused))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


def conversation():
    while True:
        v = ct.conversation()
        if all(isinstance(m.get("content", ""), str) for m in v["messages"]) and not ct.odd:
            return v


if __name__ == "__main__":
    main()
