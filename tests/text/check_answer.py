#!/usr/bin/env python3
"""Generates answers, parses them with the answer parser, and compares what comes out with where they came from.

Round trips: random assistant messages (reasoning, text, tool calls) are rendered by jinja2 with chat templates, cut into
random pieces and parsed: the message must come back. Damaged answers: renderings with tags dropped, doubled or cut off,
values of the wrong type, Python literals and broken JSON are compared with a second parser, below, which works on the
whole text with regular expressions, Python's json and ast.literal_eval. Stop strings are compared with str.find.

usage: check_answer.py [--seed N] [--answers N] [--fetch] PROGRAM [TEMPLATE ...]
  PROGRAM    tests/text/parse_answer.c, built
  TEMPLATE   more template files, of models that write calls in one of the two forms
  --answers  how many of each kind (default 600)
  --fetch    also the Qwen templates of the package that check_template.py --fetch loads
The last line says "N passed, N failed".
"""
import argparse
import ast
import functools
import json
import os
import random
import re
import subprocess
import sys

import check_template

HERE = os.path.dirname(os.path.abspath(__file__))
WHITE = " \t\n\r"
rng = random.Random()
passed = failed = 0

# ---- tools and values ------------------------------------------------------------------------------------------------

TYPES = {
    "text": {"type": "string"}, "count": {"type": "integer"}, "size": {"type": "number"}, "flag": {"type": "boolean"},
    "list": {"type": "array", "items": {}}, "map": {"type": "object"}, "unit": {"enum": ["celsius", "kelvin"]},
    "any": {}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "either": {"type": ["integer", "string"]},
    "deep": {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/Node"}, {"type": "null"}]}, "clé": {"type": "string"}}
TOOLS = [{"type": "function", "function": {"name": name, "description": "A tool.", "parameters": {
    "type": "object", "properties": {k: TYPES[k] for k in keys}, "required": [],
    "$defs": {"Node": {"type": "object"}}}}} for name, keys in (
        ("search", ["text", "count", "flag", "clé"]), ("all.of-it_2", list(TYPES)), ("none", []))]
WORDS = ["a", "Köln", "日本", "🦊", "if x < 3:", "</b>", "<parameter", "</parameter>", "<tool", "</tool_call>", "</function>",
         "<function=", "\"q\"", "'", "\\n", "\\", "\t", "{\"k\": 1}", "null", "  ", "<think>", "</think>", "<", "</", "e\u0301",
         "\u200d", "\x7f", "\x01", "<|im_start|>", "&lt;"]


def words(n, joins=(" ", "\n", "", "\n\n")):
    return "".join(rng.choice(WORDS) + rng.choice(joins) for _ in range(rng.randint(0, n)))


# Strings that the XML form cannot carry: they look like the end of the value, by the specification.
AMBIGUOUS = re.compile(r"(^|\n)(<parameter=|</function>)|</function>\s*</tool_call>|</tool_call>\s*<tool_call>"
                       r"|</parameter>\s*(</?tool_call>|</?function|<parameter=)"
                       r"|</parameter>(.|\n)*\n(</tool_call>|<tool_call>|<function=)")


def string():
    while True:
        s = words(6)
        if not AMBIGUOUS.search(s + "\n"):
            return s


def scalar():
    return rng.choice([True, False, None, rng.randint(-9, 99), 2.5, -1e-7, "x", string()])


def value(key):
    kind = TYPES[key].get("type", key)
    return {"string": string, "integer": lambda: rng.choice([0, -3, 7, 2**53]), "number": lambda: rng.choice([0.5, -2, 1e22, 3.0]),
            "boolean": lambda: rng.random() < 0.5, "array": lambda: [scalar() for _ in range(rng.randint(0, 3))],
            "object": lambda: {rng.choice(WORDS): scalar() for _ in range(rng.randint(0, 3))},
            "unit": lambda: "kelvin", "any": string, "maybe": lambda: rng.choice([None, string()]),
            "deep": lambda: rng.choice([None, [[], {"a": [1]}], {"n": {"n": None}}, {}]),
            }.get(kind if isinstance(kind, str) else "", lambda: rng.choice([5, -1, "five", "5 or 6"]))()


def call():
    f = rng.choice(TOOLS)["function"]
    keys = list(f["parameters"]["properties"])
    rng.shuffle(keys)
    return {"name": f["name"], "arguments": {k: value(k) for k in keys[:rng.randint(0, len(keys))]}}


def schema(name, key):
    for t in TOOLS:
        if t["function"]["name"] == name:
            return t["function"]["parameters"]["properties"].get(key)


# ---- the second parser -----------------------------------------------------------------------------------------------

def kinds(s):
    """The set of types that a schema allows, and whether it offers a choice."""
    s = s or {}
    if "$ref" in s:
        return {"object"}, False
    if isinstance(s.get("type"), list):
        return set(s["type"]), True
    if "anyOf" in s:
        return set().union(*(kinds(x)[0] for x in s["anyOf"])), True
    return {s.get("type", "string")}, False


def structure(text):
    for read in (lambda t: json.loads(t, strict=False), ast.literal_eval):
        try:
            v = read(text.strip(WHITE))
            json.dumps(v)
            return v
        except (ValueError, SyntaxError, TypeError, RecursionError):
            pass
    raise ValueError(text)


def typed(s, text):
    """Section 8.3, "Types"."""
    if text.lower() == "null":
        return None
    allowed, choice = kinds(s)
    bare = text.strip(WHITE)
    if "boolean" in allowed and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    if "integer" in allowed and re.fullmatch(r"[+-]?[0-9]+", bare):
        return int(bare)
    if "number" in allowed and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", bare):
        return float(bare) if re.search(r"[.eE]", bare) else int(bare)
    for kind, python in (("array", (list, tuple)), ("object", dict)):
        if kind in allowed:
            try:
                v = structure(text)
                if not choice or isinstance(v, python):
                    return v
            except ValueError:
                pass
    return text


TAGS = re.compile(r"</parameter>|<parameter=|</?function[=>]|</?tool_call>")


def value_end(s, start, line):
    """Where the value that starts there ends, and where to go on; `line`: it starts a line."""
    close = None
    for m in TAGS.finditer(s, start):
        tag, rest = m.group(), s[m.end():].lstrip(WHITE)
        if tag == "</parameter>":
            close = m
            continue
        if tag == "</function=" or tag == "<function>":
            continue
        own_line = s[m.start() - 1] == "\n" if m.start() > start else line
        clear = own_line or (close and not s[close.end():m.start()].strip(WHITE))
        if ((tag == "<parameter=" and clear) or
                (tag == "</function>" and (clear or not rest or rest.startswith("</tool_call>"))) or
                (tag == "</tool_call>" and ((clear and close) or not rest or rest.startswith("<tool_call>"))) or
                (tag in ("<tool_call>", "<function=") and clear and close)):
            return (close.start(), close.end(), m.start()) if close else (m.start(), m.start(), m.start())
    return (close.start(), close.end(), len(s)) if close else None


NAME = re.compile(r"\s*([^<>\n]*[^<>\s])\s*>")


def xml_call(s, at):
    """After "<function=": (name, arguments, stray text, where to go on), or None."""
    m = NAME.match(s, at)
    if not m:
        return None
    name, args, stray, at = m.group(1), {}, "", m.end()
    while True:
        m = re.compile(r"[%s]*(<parameter=|</function>|</?tool_call>|<function=|$(?![\n]))" % WHITE).match(s, at)
        if not m:
            stray += s[at]
            at += 1
            continue
        if m.group(1) != "<parameter=":
            return name, args, stray, m.end() if m.group(1) == "</function>" else m.start(1)
        at = m.end()
        m = NAME.match(s, at)
        if not m and re.fullmatch(r"[^<>]*", s[at:]):
            return None
        if not m or m.group(1) in args:
            stray += "<parameter="
            continue
        line = s[m.end():m.end() + 1] == "\n"
        start = m.end() + line
        end = value_end(s, start, line)
        if not end:
            return None
        text = s[start:end[0]]
        args[m.group(1)] = typed(schema(name, m.group(1)), text[:-1] if text.endswith("\n") else text)
        stray += s[end[1]:end[2]]
        at = end[2]


def json_call(s, at):
    """At "{": (name, arguments, where to go on), or None and where the text goes wrong."""
    decoder = json.JSONDecoder(strict=False)
    try:
        o, end = decoder.raw_decode(s, at)
    except ValueError as e:
        # the last brace is missing, no more
        cut = [m.start() for m in re.finditer(r"</?tool_call>|$(?!\n)", s[at:])]
        for c in cut:
            try:
                o, end = decoder.raw_decode(s[at:at + c].rstrip(WHITE) + "}")
                if end == len(s[at:at + c].rstrip(WHITE)) + 1 and "arguments" in o and isinstance(o.get("name"), str):
                    end = at + c
                    break
            except ValueError:
                pass
        else:
            return None, len(s) if e.msg.startswith("Unterminated") else e.pos
    args = o.get("arguments", {})
    if isinstance(args, str):
        try:
            args = json.loads(args, strict=False) if args.strip(WHITE) else {}
        except ValueError:
            return None, end
    args = {} if args is None else args
    if not isinstance(args, dict) or not isinstance(o.get("name"), str) or not o["name"]:
        return None, end
    return (o["name"], args), end


def parse_content(s):
    """The calls of an answer, and the rest of its text."""
    calls, text, at = [], "", 0
    names = "|".join(re.escape(t["function"]["name"]) for t in TOOLS)
    bare = r"<function=(?=(?:%s)>)" % names
    opener, directly = re.compile(r"<tool_call>|(?:^|(?<=\n))" + bare), re.compile(bare)
    after_call = False
    while True:
        m = (after_call and directly.match(s, at)) or opener.search(s, at)
        after_call = False
        if not m:
            return calls, text + s[at:]
        text += s[at:m.start()]
        at, tagged = m.end(), m.group() == "<tool_call>"
        begin = m.start()
        form = re.compile(r"\s*(\{|<function=)").match(s, at) if tagged else None
        if tagged and not form:
            text += "<tool_call>"
            continue
        xml = not tagged or form.group(1) == "<function="
        at = form.end() - (not xml) if tagged else at
        while True:
            if xml:
                found = xml_call(s, at)
                if not found:
                    named = NAME.match(s, at)
                    text += s[begin:] if named else s[begin:at]
                    at = len(s) if named else at
                    after_call = False
                    break
                calls.append(found[:2])
                after_call = True
                text += found[2]
                at = found[3]
            else:
                found, end = json_call(s, at)
                if not found:
                    m = re.compile(r"</tool_call>|(?=<tool_call>)|$(?!\n)").search(s, end)
                    text += s[begin:m.end()]
                    at = m.end()
                    after_call = False
                    break
                calls.append(found)
                after_call = True
                at = end
            m = re.compile(r"\s*(</tool_call>|<function=|\{)").match(s, at)
            if not m or (m.group(1) == "{" and not tagged):
                break
            begin, at = at, m.end()
            if m.group(1) == "</tool_call>":
                break
            xml = m.group(1) == "<function="
            at -= not xml


# ---- the engine ------------------------------------------------------------------------------------------------------

class Engine:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def parse(self, text, start, stop=(), token=False):
        n, cuts = len(text.encode()), []
        size = rng.choice([1, 2, 4, 9, 40, n + 1])
        while sum(cuts) < n:
            cuts.append(rng.randint(1, 2 * size))
        request = {"text": text, "cuts": cuts, "start": start, "tools": TOOLS, "stop": list(stop), "token": token}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return Answer(json.loads(self.process.stdout.readline()))


class Answer:
    """What a client makes of the events."""

    def __init__(self, reply):
        self.reasoning = self.text = self.raw = ""
        self.calls, self.stopped = [], reply["stopped"]
        self.good = True
        deltas = None
        for kind, index, text, *end in reply["events"]:
            if kind == "begin":
                self.good &= deltas is None
                name, deltas = text, ""
            elif kind == "args":
                deltas += text
            elif kind == "end":
                self.good &= deltas == text and isinstance(json.loads(text), dict)
                if end[0] != "broken":
                    self.calls.append((name, json.loads(text)))
                deltas = None
            elif kind == "reasoning":
                self.reasoning += text
            else:
                self.text += text


def report(ok, *what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok and failed < 10:
        print(*("  %r" % (w,) for w in what), sep="\n", end="\n\n")


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


# ---- round trips -----------------------------------------------------------------------------------------------------

def python_spelling(name, args):
    """What the 3.5 and Coder templates make of values that they print with Python's str."""
    return {k: v if isinstance(v, (dict, list)) else typed(schema(name, k), str(v)) for k, v in args.items()}


@functools.lru_cache
def spells_as_python(source, form):
    f = {"name": "all.of-it_2", "arguments": {"flag": True}}
    turn = rendered(source, form, {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": f}]})
    return turn and "True" in turn[1]


def carried(name, args, source, form):
    """What a rendering can carry of the arguments."""
    if "<function=" not in source:
        return args
    if spells_as_python(source, form):
        return python_spelling(name, args)
    return {k: None if isinstance(v, str) and v.lower() == "null" else v for k, v in args.items()}


def message():
    while True:
        text, thought = words(8).strip(), words(8).strip()
        looks_like_call = re.search(r"<tool_call>|<function=|^<think>", text)
        if not looks_like_call and "</think>" not in thought + text and not thought.startswith("<think>"):
            break
    return {"role": "assistant", "content": text, "reasoning_content": thought,
            "tool_calls": [{"type": "function", "function": call()} for _ in range(rng.randint(0, 3))]}


def rendered(source, form, msg):
    """(prompt, what the model would have generated after it) or None."""
    user = {"role": "user", "content": "Do it."}
    extra = {"tools": TOOLS, "form": form, "enable_thinking": True}
    prompt, why = check_template.reference(source, dict(extra, messages=[user], add_generation_prompt=True))
    whole, why2 = check_template.reference(source, dict(extra, messages=[user, msg]))
    if why or why2:
        return None
    if not whole.startswith(prompt):
        prompt = prompt[:prompt.rindex("<|im_start|>assistant")] + "<|im_start|>assistant\n"
    if not whole.startswith(prompt):
        return None
    end = whole.rindex("<|im_end|>")
    return prompt, whole[len(prompt):end]


def round_trip(engine, name, source, form):
    msg = message()
    turn = rendered(source, form, msg)
    if not turn:
        report(False, name, "does not render", msg)
        return
    prompt, text = turn
    got = engine.parse(text, prompt, token=True)
    want = [(c["function"]["name"], carried(c["function"]["name"], c["function"]["arguments"], source, form))
            for c in msg["tool_calls"]]
    thinks = text.startswith("<think>") or prompt.rfind("<think>") > max(prompt.rfind("</think>"), prompt.rfind("<|im_start|>"))
    thought = msg["reasoning_content"] if thinks else ""
    report(got.good and same(got.calls, want) and got.text.strip() == msg["content"] and got.reasoning == thought,
           name, text, want, got.__dict__)


# ---- damage ----------------------------------------------------------------------------------------------------------

def wild_text():
    """A value as models write it, not always of the right type."""
    return rng.choice(["5", " 5 ", "-07", "5.0", ".5", "1e5", "True", "FALSE", "None", "Null", "null", "[1, 2", "[1, 'a', None]",
                       "{'a': True, \"b\": (1, 2.5)}", "{\"a\": [1, {\"b\": null}]}", "\"quoted\"", "['it\\'s \\x41\\n']", "{}", "",
                       "(1,)", "{1: 2}", "+3", "a\nb", "{\"a\": \"x\ny\"}", string(), words(5)])


def wild_xml():
    f = rng.choice(TOOLS)["function"]
    keys = rng.sample(list(TYPES), rng.randint(0, 4)) + ["other"] * (rng.random() < 0.2)
    nl = rng.choice(["\n", "\n", "\n", ""])
    parts = ["<tool_call>" + nl, "<function=%s>" % f["name"] + nl]
    for k in keys:
        parts += ["<parameter=%s>" % k + nl, wild_text() + nl, "</parameter>" + nl]
    return parts + ["</function>" + nl, "</tool_call>"]


def wild_json():
    c = call()
    args = json.dumps(c["arguments"], ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))
    name = json.dumps(c["name"])
    parts = ["<tool_call>", rng.choice(["\n", "", " "]), "{", "\"name\": " + name, ", ", "\"arguments\": ",
             rng.choice([args, args, args, json.dumps(args), "null", "\"\"", "[1]", "7"]), "}", "\n", "</tool_call>"]
    if rng.random() < 0.2:
        parts[3], parts[5:7] = "\"arguments\": " + args, ["\"name\": ", name]
    return parts


def damaged():
    parts = []
    for _ in range(rng.randint(1, 3)):
        parts += [words(3)] if rng.random() < 0.5 else []
        parts += rng.choice([wild_xml, wild_json])() + ["\n"] * (rng.random() < 0.5)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        i = rng.randrange(len(parts))
        what = rng.random()
        if what < 0.6:
            del parts[i]
        elif what < 0.8:
            parts.insert(i, words(2))
        else:
            parts.insert(i, parts[i])
        if not parts:
            parts = ["x"]
    text = "".join(parts)
    return text[:rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text


def check_damaged(engine):
    text = damaged()
    if text.lstrip().startswith("<think>"):
        return
    got = engine.parse(text, "text")
    calls, rest = parse_content(text)
    report(got.good and same(got.calls, calls) and "".join(got.text.split()) == "".join(rest.split()),
           text, calls, rest, got.__dict__)


# ---- stop strings ----------------------------------------------------------------------------------------------------

def check_stop(engine):
    alphabet = rng.choice(["ab", "aä🦊", "a\n<"])
    text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 30)))
    stop = ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 4))]
    got = engine.parse(text, "text", stop)
    ends = [(text.find(s) + len(s), -len(s), i) for i, s in enumerate(stop) if s in text]
    end, n, which = min(ends) if ends else (len(text), 0, -1)
    report(got.text == text[:end + n] and got.stopped == which, text, stop, got.__dict__)


# ---- main ------------------------------------------------------------------------------------------------------------

def templates(args):
    out = []
    for name, forms in (("qwen3_5", ("3.5", "3.6", "3.8")), ("qwen3_next", ("instruct", "thinking")),
                        ("qwen3_coder", ("30b", "next"))):
        source = check_template.files([os.path.join(HERE, "templates", name + ".jinja")])[0][1]
        out += [(name + " " + form, source, form) for form in forms]
    out += [(name, source, "") for name, source in check_template.files(args.templates)]
    if args.fetch:
        out += [(name, source, "") for name, source in check_template.fetched()
                if re.search(r"qwen.?3", name, re.I) and "<tool_call>" in source]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--answers", type=int, default=600)
    parser.add_argument("--fetch", action="store_true")
    args = parser.parse_args()
    rng.seed(args.seed)
    engine, all_templates = Engine(args.program), templates(args)
    for i in range(args.answers):
        round_trip(engine, *all_templates[i % len(all_templates)])
        check_damaged(engine)
        check_stop(engine)
    engine.process.stdin.close()
    print("seed %d, %d templates" % (args.seed, len(all_templates)))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
