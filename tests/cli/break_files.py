#!/usr/bin/env python3
"""The commands on damaged files: containers of which every region was flipped, cut or exchanged, checkpoints, GGUF files, schemas,
configuration files; and a drive that is full. A command ends in time with a documented exit status, and says so in one sentence or
works; nothing crashes, nothing of a sanitizer is heard, and a container in which weights changed does not pass "verify".

usage: break_files.py PROGRAM [--count N] [--seed S] [--gguf FILE]     (a build with sanitizers)
"""
import argparse
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASE = os.path.join(ROOT, "tests", "oracle", "cases")
TIME = 120
PROGRAM = None
passed = failed = 0


def environment(home):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SWIFTLET_", "HF_", "XDG_"))}
    return {**env, "LC_ALL": "C.UTF-8", "HOME": home, "SWIFTLET_HOME": os.path.join(home, "swiftlet"), "XDG_CONFIG_HOME": os.path.join(home, "config"), "NO_COLOR": "1",
            "UBSAN_OPTIONS": "print_stacktrace=1"}


def command(home, *arguments, stdin="", limit=None):
    def limits():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        p = subprocess.run([PROGRAM, *arguments], input=stdin if isinstance(stdin, bytes) else stdin.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME, env=environment(home),
                           cwd=home, preexec_fn=limits)
        return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        return "timeout", "", (e.stderr or b"").decode(errors="replace")


def expect(what, result, statuses=range(0, 10)):
    """True if it ended as it should."""
    global passed, failed
    rc, out, err = result
    wrong = None
    if rc == "timeout":
        wrong = "does not end"
    elif rc < 0 or rc >= 10 and rc != 130 or "Sanitizer" in err or "runtime error" in err or "Sanitizer" in out:
        wrong = "crashed"
    elif rc not in statuses:
        wrong = "status not expected"
    elif rc and not err.strip():
        wrong = "fails without a word"
    passed, failed = passed + (not wrong), failed + bool(wrong)
    if wrong:
        print("%s: %s, status %s\n    %s" % (what, wrong, rc, (err or out)[-4000:].replace("\n", "\n    ")), flush=True)
    return not wrong


def files_of(folder):
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(at, n), folder) for n in names]
    return sorted(found)


JSON_VALUES = ["null", "true", "-1", "0", "1", "1e999", "2147483648", "9223372036854775807", "18446744073709551616", "1" * 400, '""', '"x"', "[]", "{}", "[[]]", "[null]", "[1,2,3]", '{"a":1}',
               '"../../etc/passwd"', '"\\u0000"', '"\\ud800"', "[" * 3000 + "]" * 3000, "0.5", "3", "64", "1000000", '"' + "x" * 100000 + '"', '"/dev/zero"']


def change_json(r, data):
    """One value or name exchanged, with the rest as it was."""
    try:
        tree = json.loads(data)
    except ValueError:
        return data
    spots = []

    def walk(value, depth):
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
        if len(items) > 400:
            items = r.sample(items, 400)
        for k, v in items:
            spots.append((depth, value, k))
            walk(v, depth + 1)
    walk(tree, 0)
    if not spots:
        return data
    depth = r.choice(sorted({s[0] for s in spots}))  # the few above are as likely as the many below
    _, at, k = r.choice([s for s in spots if s[0] == depth])
    what = r.randrange(8)
    if what == 0:
        del at[k]
    elif what == 1 and isinstance(at, dict):
        at[r.choice(["x", "", "__proto__", k + "x"])] = at.pop(k)
    elif what == 2 and isinstance(at, list):
        at.append(at[k])
    elif what == 3 and isinstance(at[k], int):
        at[k] = r.choice([at[k] + 1, at[k] - 1, at[k] * 2, at[k] << 30, -at[k], at[k] // 2])
    else:
        at[k] = "\1here\1"
    return json.dumps(tree).replace('"\\u0001here\\u0001"', r.choice(JSON_VALUES)).encode()


def change_bytes(r, data):
    data = bytearray(data)
    what = r.randrange(7)
    at = r.randrange(r.choice([min(len(data), 64), min(len(data), 4096), len(data)])) if data else 0
    if what <= 1 and data:
        data[at] ^= 1 << r.randrange(8)
    elif what == 2:
        del data[at:]
    elif what == 3:
        data[at:at + 8] = r.choice([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", struct.pack("<q", len(data)), struct.pack("<Q", 1 << 40)])
    elif what == 4:
        data[at:at] = r.choice([b"\0", b"\xff", b"{", b"]", b'"', b"\x80" * 9])
    elif what == 5:
        del data[at:at + r.choice([1, 4, 100])]
    else:
        data += b"x" * r.choice([1, 4096])
    return bytes(data)


def header_of(data):
    n = struct.unpack("<Q", data[:8])[0]
    return data[8:8 + n], data[8 + n:]


def change(r, name, data):
    if name.endswith(".safetensors") and r.random() < 0.6:
        header, rest = header_of(data)
        header = r.choice([change_json, change_bytes])(r, header)
        return struct.pack("<Q", len(header)) + header + rest
    if name.endswith(".json") and r.random() < 0.7:
        return change_json(r, data)
    if name.endswith(".jinja") and r.random() < 0.5:
        return r.choice([b"{% for m in messages %}", b"{{ messages * 9 }}", b"{% for i in range(999999) %}{% for j in range(999999) %}x{% endfor %}{% endfor %}", b"{{ '%9999999d' % 1 }}",
                         b"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", b"{{ raise_exception('no') }}", b"{" * 9999, b"{{ " + b"(" * 9999 + b" }}", b"{{ 'a' * 99999999 }}", b"", b"\xff\xfe{{ 1 }}", b"{{ 1 // 0 }}"])
    return change_bytes(r, data)


def spoil(r, folder):
    """One file of a folder changed; which, and whether it is another file now."""
    name = r.choice(files_of(folder) + ["manifest.json", "model.safetensors", "config.json", "tokenizer.json"])
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return "%s (is not there)" % name, False
    own(path)
    what = r.random()
    if what < 0.05:
        os.remove(path)
    elif what < 0.08:
        os.remove(path)
        os.mkdir(path)
    elif what < 0.1:
        os.remove(path)
        os.symlink(r.choice(["/dev/zero", "/nowhere", path]), path)
    elif what < 0.12:
        os.truncate(path, os.path.getsize(path) + (1 << 33))
    else:
        with open(path, "rb") as f:
            data = f.read()
        new = change(r, name, data)
        with open(path, "wb") as f:
            f.write(new)
        return name, new != data
    return name, True


def link_copy(source, to):
    """A copy that shares its files with the source until spoil() changes one."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to, copy_function=os.link)


def own(path):
    shutil.copyfile(path, path + ".own")
    os.replace(path + ".own", path)


def containers(r, home, count, source):
    good, bad = os.path.join(home, "good.qpack"), os.path.join(home, "bad.qpack")
    expect("repack", command(home, "repack", "--source", source, "--output", good), [0])
    expect("verify", command(home, "verify", good), [0])
    demo = os.path.join(home, "demo.qpack")
    shutil.copytree(os.path.join(ROOT, "models", "demo.qpack"), demo)
    for n in range(count):
        link_copy(demo if n % 2 else good, bad)
        name, changed = spoil(r, bad)
        what = "container %d, %s" % (n, name)
        verify = command(home, "verify", bad)
        expect(what + ": verify", verify)
        if changed and verify[0] == 0 and name.endswith((".bin", ".safetensors")):
            expect(what + ": verify says that all is well", (verify[0], verify[1], verify[1] + verify[2]), [])
        expect(what + ": info", command(home, "info", bad))
        expect(what + ": generate", command(home, "generate", bad, "--ids", "1,2,3", "-n", "3", "-c", "64"))
        if n % 3 == 0:
            expect(what + ": chat", command(home, "chat", bad, "-p", "hi", "-n", "3", "-c", "512"))


def checkpoints(r, home, count, source):
    bad, out = os.path.join(home, "bad"), os.path.join(home, "out.qpack")
    shutil.copytree(source, os.path.join(home, "checkpoint"))
    for n in range(count):
        link_copy(os.path.join(home, "checkpoint"), bad)
        name, _ = spoil(r, bad)
        shutil.rmtree(out, ignore_errors=True)
        result = command(home, *(["repack", "--source", bad, "--output", out] if n % 2 else ["pull", bad, "--local-dir", out]))
        expect("checkpoint %d, %s: repack" % (n, name), result)
        if result[0] and os.path.exists(out):
            expect("checkpoint %d, %s: leaves a container" % (n, name), (result[0], "", "left"), [])
        if result[0] == 0 and n % 4 == 0:
            expect("checkpoint %d, %s: generate" % (n, name), command(home, "generate", out, "--ids", "1,2,3", "-n", "2", "-c", "64"))


def gguf_file(home):
    """A reference model as GGUF, small enough to be converted many times."""
    sys.path += [os.path.join(ROOT, "tests", d) for d in ("install", "oracle")]
    import gguf_files
    import numpy
    import numpy_forward
    path = os.path.join(home, "source.gguf")
    config, weights = numpy_forward.load(os.path.join(CASE, "q35dense-a"))
    gguf_files.write(path, config, weights, lambda name: gguf_files.T.Q8_0, numpy.random.default_rng(1))
    return path


def ggufs(r, home, count, source):
    with open(source, "rb") as f:
        good = f.read()
    bad, out = os.path.join(home, "bad.gguf"), os.path.join(home, "g.qpack")
    for n in range(count):
        data = good
        for _ in range(r.choice([1, 1, 2])):
            data = change_bytes(r, data)
        with open(bad, "wb") as f:
            f.write(data)
        shutil.rmtree(out, ignore_errors=True)
        result = command(home, "repack", "--source", bad, "--output", out)
        expect("gguf %d: repack" % n, result)
        if result[0] and os.path.exists(out):
            expect("gguf %d: leaves a container" % n, (result[0], "", "left"), [])


SCHEMAS = [b"", b"null", b"[]", b"5", b"\xff", b"{", b"[" * 100000, b"{}", b"true", b"false", b'{"$ref":"#"}', b'{"$ref":"http://x/y"}', b'{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}',
           b'{"type":"string","pattern":"(a{1,9999}){1,9999}"}', b'{"type":"string","pattern":"' + b"(" * 5000 + b'"}', b'{"type":"string","maxLength":1000000000}', b'{"enum":[]}',
           b'{"enum":[' + b",".join(b'"v%d"' % i for i in range(20000)) + b"]}", b'{"type":"integer","minimum":1e400}', b'{"type":"number","multipleOf":1e-300}', b'{"required":["a"]}',
           b'{"type":"object","properties":{' + b",".join(b'"p%d":{}' % i for i in range(3000)) + b'},"additionalProperties":false}', b'{"type":"array","minItems":100000000,"items":{}}',
           b'{"allOf":[' * 200 + b"{}" + b"]}" * 200, b'{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}', b'{"type":"x"}', b'{"not":{"not":{"not":{}}}}',
           b'{"patternProperties":{"(":{}}}', b'{"type":"string","pattern":"\\\\p{L}*\\\\b(?=a)"}', b'{"const":' + b"[" * 100 + b"]" * 100 + b"}", b'{"type":"string","minLength":5,"maxLength":2}', b"\0" * 100]
SETTINGS = [b"", b"\0\0\0", b"\xff\xfe", b"=", b"ctx", b"ctx=", b"ctx = x", b"ctx = 99999999999999999999", b"[x]\n[y", b"memory = -1", b"nonsense = 1", b"x" * 100000, b"a = b\n" * 20000, b"temp = nan", b"model = \x1b[31m",
            b"#\n" * 10, b"ctx = 5 = 6", b"= 5", b"{}", b"threads = 0", b"seed = 1e9", b"ctx = 64\r\nctx = 65\r\n", b"top-p = 1e400"]


def small_files(home, model):
    path = os.path.join(home, "schema.json")
    for schema in SCHEMAS:
        with open(path, "wb") as f:
            f.write(schema)
        expect("schema %.60r" % schema, command(home, "generate", model, "-p", "x", "-n", "4", "-c", "256", "--json-schema", path))
    for path in ("/dev/null", "/nowhere", home):
        expect("schema " + path, command(home, "generate", model, "-p", "x", "-n", "4", "-c", "256", "--json-schema", path), range(1, 10) if path != "/dev/null" else range(10))
    for folder in ("config/swiftlet", "swiftlet"):
        os.makedirs(os.path.join(home, folder), exist_ok=True)
        for text in SETTINGS:
            for name in ("config", "swiftlet.conf", "config.toml", "config.ini"):
                with open(os.path.join(home, folder, name), "wb") as f:
                    f.write(text)
            expect("settings %.40r" % text, command(home, "info", model))
        shutil.rmtree(os.path.join(home, folder))


def no_room(home, model, source):
    """Writing that stops: files cannot become larger than some size, or the drive itself is full."""
    for limit in (0, 1, 4096, 100000, 1000000):
        out = os.path.join(home, "limit.qpack")
        for name, arguments in (("repack", ["repack", "--source", source, "--output", out]), ("pull", ["pull", source, "--local-dir", out]),
                                ("generate --save-state", ["generate", model, "-p", "x", "-n", "2", "-c", "256", "--save-state", os.path.join(home, "state")]),
                                ("chat --save", ["chat", model, "-p", "hi", "-n", "2", "-c", "256", "--save", "kept%d" % limit])):
            shutil.rmtree(out, ignore_errors=True)
            result = command(home, *arguments, limit=limit)
            expect("%s, no file above %d bytes" % (name, limit), result)
            if result[0] and os.path.exists(out):
                expect("%s, no file above %d bytes: leaves a container" % (name, limit), (result[0], "", "left"), [])


def full_drive(home, source):
    """A drive of its own in a namespace; --force is what gets past the question whether there is room."""
    drive = os.path.join(home, "drive")
    os.mkdir(drive)
    inside = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && "$@"; rc=$?; ls -A "$HOME/drive" >&2; exit $rc', "sh"]
    if not shutil.which("unshare") or subprocess.run([*inside, "1m", drive, "true"], env=environment(home), stderr=subprocess.DEVNULL).returncode:
        print("no namespaces here: no full drive")
        return
    for size in ("64k", "300k", "1m", "3m"):
        for arguments in (["repack", "--source", source, "--output", drive + "/a.qpack"], ["pull", source, "--local-dir", drive + "/a.qpack"]):
            for force in ([], ["--force"]):
                p = subprocess.run([*inside, size, drive, PROGRAM, *arguments, *force], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIME,
                                   env=environment(home))
                err = p.stderr.decode(errors="replace")
                what = "a drive of %s: %s%s" % (size, arguments[0], " --force" if force else "")
                expect(what, (p.returncode, "", err), range(1, 10) if not force or size == "64k" else range(10))
                if p.returncode and "a.qpack" in err.split("\n"):
                    expect(what + ": leaves a container", (p.returncode, "", "left"), [])


def main():
    global PROGRAM
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--count", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gguf")
    p.add_argument("--only")
    a = p.parse_args()
    PROGRAM = os.path.abspath(a.program)
    demo = os.path.join(ROOT, "models", "demo.qpack")
    cases = sorted(d for d in os.listdir(CASE) if os.path.exists(os.path.join(CASE, d, "config.json")))
    parts = a.only.split(",") if a.only else ["containers", "checkpoints", "gguf", "small", "room"]
    with tempfile.TemporaryDirectory(prefix="swiftlet-break-") as home:
        r = random.Random(a.seed)
        source = os.path.join(CASE, r.choice(cases))
        print(os.path.basename(source), "of", len(cases))
        if "containers" in parts:
            containers(r, home, a.count, source)
        if "checkpoints" in parts:
            checkpoints(r, home, a.count, source)
        if "gguf" in parts:
            ggufs(r, home, a.count if a.gguf else a.count // 2, a.gguf or gguf_file(home))
        if "small" in parts:
            small_files(home, demo)
        if "room" in parts:
            no_room(home, demo, source)
            full_drive(home, source)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
