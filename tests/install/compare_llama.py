#!/usr/bin/env python3
"""Whole tiny models through GGUF: logits of Swiftlet, of llama.cpp and of transformers, side by side.

The reference models are written as GGUF with the public `gguf` package (gguf_files.py): in float32, in Q8_0, and in float32 with the
values of the Q8_0 file. llama.cpp runs them all. Swiftlet runs the container that it makes of the Q8_0 file. The logits of transformers
for the original weights are stored with the models (tests/oracle). That llama.cpp gives them from the float32 file shows that the
files are arranged as llama.cpp has them; that Swiftlet with exact activations gives the logits of llama.cpp for the same values shows
that it reads them so. What else is printed is what rounding costs: of weights (Q8_0), and of activations (both programs).

usage: compare_llama.py SWIFTLET SCORE_IDS [--demo DIR] [NAME ...]
  SCORE_IDS   tests/model/score_ids of the build         --demo DIR   the demo model in bfloat16, too
Needs the package llama-cpp-python (LLAMA_CPP_LIB_PATH for libraries that were built by hand), which has to be compiled, so ./check
does without this; check_gguf.py compares with transformers there. The last line says "N passed, N failed".
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import check_gguf as cg
import gguf_files as gf
from check_gguf import CASES, ROOT, T, nf

NAMES = ["next-a", "q35moe-a", "q35dense-a"]
# Largest difference of a logit, as a part of the standard deviation of all logits, and the least agreement of the best token.
# Rounding of weights or activations may change an expert, which in models of random weights changes everything after it; in the
# demo model it does not.
SAME = (0.02, 0.98)
ROUNDED = (1.0, 0.9)


def no_tokenizer(c, arch):
    def add(w):
        w.add_tokenizer_model("none")
        w.add_vocab_size(c["vocab_size"])
        if arch != "qwen3next":
            w.add_rope_dimension_sections([11, 11, 10, 0])
    return add


def llama_logits(path, lists):
    """Logits at the end of every prefix of every list of ids: a list of arrays [n, vocabulary]."""
    import llama_cpp as lc
    lc.llama_log_set(QUIET, ctypes.c_void_p(0))
    lc.llama_backend_init()
    mp = lc.llama_model_default_params()
    mp.n_gpu_layers = 0
    model = lc.llama_model_load_from_file(path.encode(), mp)
    if not model:
        raise RuntimeError("llama.cpp does not load " + path)
    cp = lc.llama_context_default_params()
    cp.n_ctx = cp.n_batch = cp.n_ubatch = 512
    cp.n_threads = cp.n_threads_batch = 2
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    found = []
    for ids in lists:
        context = lc.llama_init_from_model(model, cp)
        batch = lc.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = t, i, 1, 1
            batch.seq_id[i][0] = 0
        if lc.llama_decode(context, batch):
            raise RuntimeError("llama.cpp does not decode " + path)
        rows = [np.ctypeslib.as_array(lc.llama_get_logits_ith(context, i), (n_vocab,)).copy() for i in range(len(ids))]
        found.append(np.array(rows))
        lc.llama_batch_free(batch)
        lc.llama_free(context)
    lc.llama_model_free(model)
    return found


def quiet():
    import llama_cpp as lc
    return lc.llama_log_callback(lambda *_: None)


def swiftlet_logits(score, container, ids, positions, *mode):
    text = "".join(",".join(map(str, ids[:i + 1])) + "\n" for i in positions)
    p = subprocess.run([score, container, "--last", *mode], input=text, capture_output=True, text=True, timeout=1800)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return np.array([json.loads(line)["last"] for line in p.stdout.splitlines()])


def compare(model, what, found, want, bounds):
    """bounds: None where the difference is only told."""
    diff, spread = np.abs(found - want), want.std()
    largest, same = diff.max() / spread, float((found.argmax(-1) == want.argmax(-1)).mean())
    print("%-11s %-58s largest %8.2g, mean %8.2g, of a deviation of %.3g; best token the same at %5.1f %% of %d" % (
        model, what, diff.max(), diff.mean(), spread, 100 * same, len(want)), flush=True)
    if bounds:
        cg.check("%s %s" % (model, what), (largest > bounds[0] or same < bounds[1]) and "%.3g deviations, %.3g the same" % (largest, same))


def run_model(opt, tmp, name, source, lists, positions, wanted, trained):
    """lists: of ids; positions: of each, where logits are compared; wanted: the logits of transformers there."""
    c, W = nf.load(source)
    arch = "qwen3next" if c["model_type"] == "qwen3_next" else "qwen35moe" if c.get("num_experts") else "qwen35"
    path = lambda kind: os.path.join(tmp, "%s-%s.gguf" % (name, kind))
    rng = lambda: np.random.default_rng(1)
    rounded = gf.write(path("Q8_0"), c, W, cg.one(T.Q8_0), rng())  # the same without a tokenizer, which Swiftlet does without
    container, hf = os.path.join(tmp, name + ".qpack"), os.path.join(tmp, name + ".hf")
    rc, said = cg.run(opt.swiftlet, "repack", "--source", path("Q8_0"), "--output", container)
    cg.check(name + " repack", rc and said)
    cg.write_hf(hf, c, rounded)
    files = {"float32": (W, T.F32), "Q8_0": (W, T.Q8_0), "float32 of Q8_0": (nf.load(hf)[1], T.F32)}
    llama = {}
    for kind, (weights, t) in files.items():
        gf.write(path(kind), c, weights, cg.one(t), rng(), tokenizer=no_tokenizer(c, arch))
        llama[kind] = np.concatenate([x[p] for x, p in zip(llama_logits(path(kind), lists), positions)])
    exact, usual = (np.concatenate([swiftlet_logits(opt.score, container, ids, p, *mode) for ids, p in zip(lists, positions)])
                    for mode in (["--exact"], []))
    want, loose = np.concatenate(wanted), ROUNDED if trained else None
    compare(name, "llama.cpp, float32, and transformers", llama["float32"], want, SAME)
    compare(name, "Swiftlet --exact from Q8_0, and llama.cpp, its float32", exact, llama["float32 of Q8_0"], SAME)
    compare(name, "Swiftlet from Q8_0, and llama.cpp, Q8_0", usual, llama["Q8_0"], loose)
    compare(name, "llama.cpp, Q8_0, and transformers, unquantised", llama["Q8_0"], want, loose)
    compare(name, "Swiftlet --exact from Q8_0, and transformers, unquantised", exact, want, loose)
    compare(name, "Swiftlet from Q8_0, and transformers, unquantised", usual, want, loose)


def run_case(opt, tmp, name):
    reference = nf.read_safetensors(os.path.join(CASES, name, "reference.safetensors"))
    ids = reference["input_ids"][0].tolist()
    run_model(opt, tmp, name, os.path.join(CASES, name), [ids], [list(range(len(ids)))], [reference["logits"][0]], False)


def run_demo(opt, tmp):
    stored = nf.read_safetensors(os.path.join(ROOT, "tests", "oracle", "demo_logits.safetensors"))
    names = sorted(k[:-len(".ids")] for k in stored if k.endswith(".ids"))
    lists = [stored[k + ".ids"].reshape(-1).tolist() for k in names]
    run_model(opt, tmp, "demo", opt.demo, lists, [[len(x) - 1] for x in lists],
              [stored[k + ".logits"].reshape(1, -1) for k in names], True)


def main():
    global QUIET
    ap = argparse.ArgumentParser()
    ap.add_argument("swiftlet", type=os.path.abspath)
    ap.add_argument("score", type=os.path.abspath)
    ap.add_argument("--demo")
    ap.add_argument("names", nargs="*")
    opt = ap.parse_args()
    try:
        QUIET = quiet()
    except ImportError:
        print("skipped: llama-cpp-python is not installed\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        for name in opt.names or NAMES:
            run_case(opt, tmp, name)
        if opt.demo:
            run_demo(opt, tmp)
    print("%d passed, %d failed" % (cg.passed, cg.failed))
    return cg.failed > 0


if __name__ == "__main__":
    sys.exit(main())
