"""What the checks of downloads share: a scratch room with runs of the program, what there is to pull, and the runner.

A check is a function under @check, called after what it shows; main() runs those whose names hold --only.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_gguf  # noqa: E402
import fake_hub  # noqa: E402
from fake_hub import read_dir  # noqa: E402

CASES = os.path.join(os.path.dirname(HERE), "oracle", "cases")
TOKEN = "hf_TheTokenOfTheTests0123456789"
QUICK = ["--retry-wait", "10ms", "--stall", "500ms"]
PROGRAM = None  # set by main
passed = failed = skipped = 0
checks, alone = [], set()
lock, making = threading.Lock(), threading.RLock()


class Skip(Exception):
    pass


def check(f):
    checks.append(f)
    return f


def by_itself(f):
    """A check that measures time or memory, so that no other runs beside it."""
    alone.add(f)
    return check(f)


def must(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w)[-1500:] for w in what) or "condition")


def same(what, found, want):
    must(found == want, what, "is", found, "instead of", want)


def wait_for(condition, seconds=60):
    end = time.time() + seconds
    while not condition():
        must(time.time() < end, "waited in vain")
        time.sleep(0.01)


def tree(d):
    """What a container holds, without the record of the installation."""
    return {k: v for k, v in read_dir(d).items()}


def listing(d):
    return sorted(os.path.relpath(os.path.join(at, f), d) for at, ds, fs in os.walk(d) for f in fs + ds)


# ---- the program ------------------------------------------------------------------------------------------------------------------

class Room:
    """A scratch folder, and runs of the program in it."""

    def __init__(self, at=None):
        self.dir = tempfile.mkdtemp(prefix="swiftlet-pull-", dir=at or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.out = os.path.join(self.dir, "out.qpack")
        self.said = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self, hub, **more):
        others = ("HF_", "SWIFTLET_", "SSL_CERT", "CURL_CA")
        env = {k: v for k, v in os.environ.items() if not k.startswith(others) and "proxy" not in k.lower()}
        env.update(HOME=self.dir + "/home", HF_HOME=self.dir + "/hf", XDG_DATA_HOME=self.dir + "/data", HF_TOKEN=TOKEN,
                   SWIFTLET_HOME="", XDG_CONFIG_HOME=self.dir + "/config")
        if hub:
            env["HF_ENDPOINT"] = hub.url
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def start(self, hub, *arguments, source="org/name", command="pull", **more):
        target = ["--local-dir", self.out] if command == "pull" else ["--output", self.out]
        return subprocess.Popen([PROGRAM, command, source, *target, *QUICK, *arguments], env=self.environment(hub, **more),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir)

    def run(self, hub, *arguments, expect=0, **more):
        p = self.start(hub, *arguments, **more)
        try:
            out, err = p.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        self.said += [out, err]
        must(expect is None or p.returncode == expect, "exit", p.returncode, "instead of", expect, err.decode(), out.decode())
        return p.returncode, out.decode(), err.decode()

    def complete(self, want):
        same("files", sorted(tree(self.out)), sorted(want))
        for name, data in tree(self.out).items():
            must(data == want[name], name, "differs")
        must(not os.path.exists(self.out + ".partial"), "a partial directory is left")

    def nothing(self):
        must(not os.path.exists(self.out), "there is a result")


def swiftlet(r, hub, *arguments, expect=0, **more):
    p = subprocess.run([PROGRAM, *arguments], env=r.environment(hub, **more), stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=60)
    must(expect is None or p.returncode == expect, arguments, "exit", p.returncode, p.stderr.decode(), p.stdout.decode())
    return p.stdout.decode(), p.stderr.decode()


def plan_of(r, hub, *options, **more):
    """What --dry-run says."""
    lines = [json.loads(x) for x in r.run(hub, "--dry-run", "--json", *options, **more)[1].splitlines()]
    return [x for x in lines if x["event"] == "plan"][0]


def sanitized():
    return b"libasan" in subprocess.run(["ldd", PROGRAM], capture_output=True).stdout


def peak_of(r, hub, *arguments, **more):
    """By a small process in between: the peak of a child counts from the fork, when it still is as large as we are."""
    script = ("import resource, subprocess, sys\nsubprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    p = subprocess.run([sys.executable, "-c", script, PROGRAM, "pull", "org/name", "--local-dir", r.out, "-q", *QUICK, *arguments],
                       env=r.environment(hub, **more), capture_output=True, timeout=300)
    same("exit", (p.returncode, p.stderr), (0, b""))
    return int(p.stdout) >> 10


def spoil(r, path, offset=100, data=b"spoiled"):
    with open(os.path.join(r.out, path), "r+b") as f:
        f.seek(offset)
        f.write(data)


def make_dir(r, files, name="made"):
    d = os.path.join(r.dir, name)
    for path, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(d, path)), exist_ok=True)
        with open(os.path.join(d, path), "wb") as f:
            f.write(data)
    return d


def fill_cache(r, files, where="hf/hub"):
    base = os.path.join(r.dir, where, "models--org--name")
    snapshot = os.path.join(base, "snapshots", fake_hub.COMMIT)
    for name, data in files.items():
        oid = hashlib.sha256(data).hexdigest()
        for path in (os.path.join(base, "blobs", oid), os.path.join(snapshot, name), os.path.join(base, "refs", "main")):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.path.join(base, "blobs", oid), "wb") as f:
            f.write(data)
        os.symlink(os.path.relpath(os.path.join(base, "blobs", oid), os.path.dirname(os.path.join(snapshot, name))),
                   os.path.join(snapshot, name))
    with open(os.path.join(base, "refs", "main"), "w") as f:
        f.write(fake_hub.COMMIT)


def holders(hub):
    return {name for name, _, _, headers in hub.requests if any(TOKEN in str(v) for v in headers.values())}


# ---- what there is to pull --------------------------------------------------------------------------------------------------------

_made = {}


def packed(case="q35moe-a"):
    """A container, made by a conversion from disk."""
    with making:
        return dict(_made[case] if case in _made else make_packed(case))


def make_packed(case):
    if case not in _made:
        with Room() as r:
            subprocess.run([PROGRAM, "repack", os.path.join(CASES, case), "--output", r.out, "-q"], check=True)
            files = tree(r.out)
            files["tokenizer_config.json"] = b'{"chat_template": "x"}\n'
            hashes = json.loads(files["hashes.json"])
            hashes["files"]["tokenizer_config.json"] = hashlib.sha256(files["tokenizer_config.json"]).hexdigest()
            files["hashes.json"] = json.dumps(hashes).encode()
            _made[case] = files
    return _made[case]


def raw(case="q35moe-a"):
    return read_dir(os.path.join(CASES, case))


def converted(files, *options, source=""):
    """What a conversion of these files from a hub's cache, or of a file of it, gives."""
    with Room() as r:
        snapshot = os.path.join(r.dir, "models--org--name", "snapshots", fake_hub.COMMIT)
        for name, data in files.items():
            path = os.path.join(snapshot, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data)
        subprocess.run([PROGRAM, "repack", os.path.join(snapshot, source), "--output", r.out, "-q", *options], check=True)
        return tree(r.out)


def big_source(mib):
    """A dense model with an embedding of so many MiB."""
    files = raw("q35dense-a")
    config = json.loads(files["config.json"])
    c = config.get("text_config", config)
    c["vocab_size"], c["tie_word_embeddings"] = mib * 2 ** 20 // (2 * c["hidden_size"]), True
    config["tie_word_embeddings"] = True
    old = files["model.safetensors"]
    n = int.from_bytes(old[:8], "little")
    header = {k: v for k, v in json.loads(old[8:8 + n]).items() if "lm_head" not in k and k != "__metadata__"}
    data, out, at = old[8 + n:], {}, 0
    chunks = []
    for name, t in header.items():
        part = data[t["data_offsets"][0]:t["data_offsets"][1]]
        if "embed_tokens" in name:
            t = {"dtype": "BF16", "shape": [c["vocab_size"], c["hidden_size"]]}
            part = bytes(2 * c["vocab_size"] * c["hidden_size"])
        out[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [at, at + len(part)]}
        at += len(part)
        chunks.append(part)
    text = json.dumps(out).encode()
    files["model.safetensors"] = b"".join([len(text).to_bytes(8, "little"), text, *chunks])
    files["config.json"] = json.dumps(config).encode()
    files.pop("model.safetensors.index.json", None)
    return files


def with_extra(mib):
    """A container with a file besides that is as large."""
    files = packed()
    files["extra.bin"] = bytes(mib << 20)
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["extra.bin"] = len(files["extra.bin"])
    files["manifest.json"] = json.dumps(manifest).encode()
    del files["hashes.json"]
    return files


_ggufs = {}
AHEAD = (4 << 20) // 4  # floats in the first piece of a GGUF file that is fetched as its header, so that no weight is


def gguf_file(split=0):
    """A model of four layers in a GGUF file, or in parts of so many tensors: names and bytes."""
    if split not in _ggufs:
        c, W = check_gguf.big_model(np.random.default_rng(3))
        with tempfile.TemporaryDirectory() as d:
            check_gguf.gf.write(os.path.join(d, "Big-Q8_0.gguf"), c, W, check_gguf.q8_or_f16, np.random.default_rng(4), split=split,
                                ahead=AHEAD)
            _ggufs[split] = read_dir(d)
    return dict(_ggufs[split])


# ---- the runner -------------------------------------------------------------------------------------------------------------------

def run_check(f, times):
    global passed, failed, skipped
    name, said, begin = f.__name__.replace("_", " "), None, time.time()
    try:
        f()
    except Skip as e:
        said = "skipped: %s: %s" % (name, e)
    except Exception as e:  # whatever it is, the others are to run
        said = "FAILED %s: %s: %s" % (name, type(e).__name__, e)
    with lock:
        passed += not said
        failed += bool(said and said.startswith("FAILED"))
        skipped += bool(said and said.startswith("skipped"))
        if said:
            print(said, flush=True)
        if times:
            print("%6.1f s  %s" % (time.time() - begin, name), flush=True)


def run_checks(only, times):
    """Most of them wait most of the time, so a few run side by side; then those that want the machine for themselves."""
    chosen = [f for f in checks if only in f.__name__.replace("_", " ")]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda f: run_check(f, times), [f for f in chosen if f not in alone]))
    for f in chosen:
        if f in alone:
            run_check(f, times)


def main(more=None, prepare=None):
    """more: {option: number}, further options; prepare(arguments) is called before the checks. Gives the exit status."""
    global PROGRAM
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    for option, number in (more or {}).items():
        parser.add_argument("--" + option, type=int, default=number)
    parser.add_argument("--only", default="")
    parser.add_argument("--times", action="store_true")
    a = parser.parse_args()
    PROGRAM = os.path.abspath(a.program)
    if prepare:
        prepare(a)
    run_checks(a.only, a.times)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return failed != 0
