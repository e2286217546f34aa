#!/usr/bin/env python3
"""Run the built programs over every reference here.

usage: check_oracle.py SWIFTLET [NAME ...] [--score SCORE_IDS] [--qpack DIR] [--demo DIR] [--tolerance X]
  SWIFTLET     the command line program        --score    tests/model/score_ids, for logits and prose
  --qpack DIR  the demo model as a container
  --demo DIR   the demo model in bfloat16, which is not part of the repository; its checks are skipped without it
  NAME         only these cases

Per case:
  direct       `verify --exact` of the checkpoint against its reference
  default      the same without --exact, against numpy with int8 activations and attention over integers: the first layer
               only where matrices are quantised, because a rounding that falls the other way soon changes an expert
  repack       the .qpack made of it holds the right weights: the same values, or, where they were quantised, values
               within a step (read with numpy_forward.py, which shares no code with the project)
  container    `verify --exact` of the .qpack: MLX cases against the same reference, others against numpy's forward pass
               on the container's own weights
Demo model in bfloat16: greedy tokens, last logits, negative log-likelihood and argmax in float32.
Demo container: a chat, layer by layer and 12 tokens on, against numpy's forward pass on its own weights; its weights
against the bfloat16 ones; and prose in the default mode, whose perplexity may leave that of --exact by 2 %.
The last line is "N passed, N failed, N skipped"; the exit status is 1 if anything failed.
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
import numpy_forward as nf

HERE = os.path.dirname(os.path.abspath(__file__))
HF_FORMATS = ((4, 32), (8, 64))      # bits and group for cases that are not quantised yet
# Names of matrices that a conversion may quantise.
MATRICES = ("_proj.weight", "embed_tokens.weight", "lm_head.weight", "mlp.gate.weight", "shared_expert_gate.weight",
            "in_proj_qkvz.weight", "in_proj_ba.weight", "in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight",
            "in_proj_b.weight")


class Counts:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, what, trouble):
        if trouble:
            self.failed += 1
            print(f"FAIL {what}: {trouble}", flush=True)
        else:
            self.passed += 1

    def skip(self, what, n, why):
        self.skipped += n
        print(f"skip {what}: {why}", flush=True)


def call(args, **more):
    """(exit status, stdout, a line for a message)."""
    try:
        p = subprocess.run(args, capture_output=True, text=True, timeout=3600, **more)
    except (OSError, subprocess.TimeoutExpired) as e:
        return 1, "", str(e)
    said = [x for x in (p.stdout + "\n" + p.stderr).splitlines() if x.strip()]
    return p.returncode, p.stdout, f"exit {p.returncode}: " + " | ".join(said[-3:])[-600:]


def verify(opt, model, reference, mode=("--exact",), tolerance=None):
    rc, _, said = call([opt.swiftlet, "verify", *mode, "--tolerance", str(tolerance or opt.tolerance), model, reference])
    return said if rc else None


def check_default(opt, n, case, d, tmp):
    """Tolerances: perturbing numpy's activations by 1e-6 moves the first layer by up to 0.08 (and nothing else by more
    than 0.001); leaving int8 out moves it by up to 0.7."""
    path = os.path.join(tmp, "default.reference")
    nf.write(d, path, os.path.join(d, "reference.safetensors"), int8=True)
    ref = nf.read_safetensors(path)
    quantised = is_quantised(d)
    kept = ("input_ids", "embed", "layer_00") if quantised else [k for k in ref if k != "greedy"]
    nf.write_safetensors(path, {k: ref[k] for k in kept})
    n.add("default " + case, verify(opt, d, path, (), 0.12 if quantised else 0.01))


def is_quantised(d):
    with open(os.path.join(d, "config.json")) as f:
        return "quantization" in json.load(f)


def steps(w, bits):
    """An upper bound for the error of affine quantisation, per row: a step, and rounding of scale and bias to bfloat16."""
    spread = (w.max(-1) - w.min(-1)) / (2 ** bits - 1)
    return (spread + np.abs(w).max(-1) * 2.0 ** -7)[..., None]


def weights_differ(source, container, bits):
    """None, or what is wrong with the container's weights. bits None: nothing may have changed."""
    (_, want), (_, got) = nf.load(source), nf.load(container)
    lost = sorted(n for n in want if n not in got and not n.startswith("mtp."))
    if lost:
        return f"tensors are missing: {lost[:3]}"
    for name, w in want.items():
        if name.startswith("mtp."):
            continue                     # kept elsewhere in a container
        pairs = zip(w, got[name]) if isinstance(w, tuple) else [(w, got[name])]
        for a, b in pairs:
            quantised = bits is not None and (isinstance(w, tuple) or name.endswith(MATRICES))
            limit = steps(a, bits) if quantised else 1e-7 * np.abs(a) + 1e-7
            if a.shape != b.shape or not np.all(np.abs(a - b) <= limit):
                return f"{name} differs by {np.abs(a - b).max() if a.shape == b.shape else b.shape}"
    return None


def check_container(opt, n, case, d, tmp, fmt):
    """fmt: None for a source that is quantised already, else (bits, group)."""
    name = case + (f" ({fmt[0]} bits, group {fmt[1]})" if fmt else "")
    out = os.path.join(tmp, case + (f"-{fmt[0]}g{fmt[1]}" if fmt else "") + ".qpack")
    more = ["--bits", str(fmt[0]), "--group", str(fmt[1])] if fmt else []
    rc, _, said = call([opt.swiftlet, "repack", d, "--output", out, *more])
    if rc:
        n.add("repack " + name, said)
        n.add("container " + name, "there is none")
        return
    try:
        n.add("repack " + name, weights_differ(d, out, fmt and fmt[0]))
        reference = os.path.join(d, "reference.safetensors")
        if fmt:
            nf.write(out, os.path.join(tmp, case + ".reference"), reference)
            reference = os.path.join(tmp, case + ".reference")
        # Other weights than the fixture's may let float32's rounding grow: 1.4e-3 of 16 was seen after seven layers.
        n.add("container " + name, verify(opt, out, reference, tolerance=(2 if fmt else 1) * opt.tolerance))
    except Exception as e:               # a container that numpy cannot read is a failure, not the end
        n.add("container " + name, f"reading it: {type(e).__name__}: {e}")


def check_cases(opt, n, tmp):
    for case in opt.names or sorted(os.listdir(os.path.join(HERE, "cases"))):
        d = os.path.join(HERE, "cases", case)
        n.add("direct " + case, verify(opt, d, os.path.join(d, "reference.safetensors")))
        check_default(opt, n, case, d, tmp)
        for fmt in (None,) if is_quantised(d) else HF_FORMATS:
            check_container(opt, n, case, d, tmp, fmt)


# ---- demo model ------------------------------------------------------------------------------------------------------

def check_greedy(opt, n):
    with open(os.path.join(HERE, "demo_greedy.json")) as f:
        fixture = json.load(f)
    if not opt.demo:
        return n.skip("greedy tokens of the demo model", len(fixture["prompts"]), "no --demo")
    for p in fixture["prompts"]:
        want = p["float32"][:p["n_before_stop"]]
        rc, out, said = call([opt.swiftlet, "generate", opt.demo, "--ids", ",".join(map(str, p["prompt_ids"])), "-n",
                              str(len(p["float32"])), "--exact", "--greedy", "--json"])
        try:
            got = json.loads(out)["ids"] if rc == 0 else None
        except (ValueError, KeyError) as e:
            got, said = None, f"no ids in the answer: {e}"
        if got is not None and got[-1:] and got[-1] in fixture["stop_ids"]:
            got = got[:-1]
        first = next((i for i, (a, b) in enumerate(zip(want, got or [])) if a != b), min(len(want), len(got or [])))
        n.add("greedy " + p["name"], None if got == want else said if got is None else
              f"differs at token {first}: expected {want[first:first + 4]}, found {got[first:first + 4]}")


def score(opt, model, lists, *more):
    text = "".join(",".join(map(str, ids)) + "\n" for ids in lists)
    rc, out, said = call([opt.score, model, *more], input=text)
    return ([json.loads(x) for x in out.splitlines()], None) if rc == 0 else (None, said)


def check_scores(opt, n):
    with open(os.path.join(HERE, "demo_ppl.json")) as f:
        fixture = json.load(f)
    if not (opt.demo and opt.score):
        return n.skip("logits and prose of the demo model", 3 + len(fixture["texts"]) + 1, "no --demo or no --score")
    logits = nf.read_safetensors(os.path.join(HERE, "demo_logits.safetensors"))
    names = sorted(k[:-len(".ids")] for k in logits if k.endswith(".ids"))
    rows, trouble = score(opt, opt.demo, [logits[k + ".ids"].tolist() for k in names], "--exact", "--last")
    for k, row in zip(names, rows or [None] * len(names)):
        diff = trouble or float(np.abs(np.array(row["last"]) - logits[k + ".logits"]).max())
        n.add("logits " + k, trouble or (None if diff <= opt.tolerance else f"differ by {diff:.2e}"))
    joined = {"ids": sum((t["ids"] for t in fixture["texts"]), []), **fixture["joined"]}
    texts = fixture["texts"] + [joined]
    rows, trouble = score(opt, opt.demo, [t["ids"] for t in texts], "--exact")
    for i, t in enumerate(texts):
        n.add(f"prose {i}", trouble or compare_score(t, rows[i]))


def compare_score(want, got):
    if abs(want["nll"] - got["nll"]) > 1e-4 * len(want["ids"]) ** 0.5:
        return f"negative log-likelihood: expected {want['nll']:.6f}, found {got['nll']:.6f}"
    differ = sum(a != b for a, b in zip(want["argmax"], got["argmax"]))
    return f"{differ} of {len(want['argmax'])} argmax differ" if differ else None


def perplexity(rows):
    return float(np.exp(sum(r["nll"] for r in rows) / sum(len(r["argmax"]) - 1 for r in rows)))


def check_qpack_prose(opt, n):
    with open(os.path.join(HERE, "demo_ppl.json")) as f:
        fixture = json.load(f)
    texts = fixture["texts"][:None if opt.demo else 3]     # all of them take a while in a debug build
    lists = [t["ids"] for t in texts]
    exact, trouble = score(opt, opt.qpack, lists, "--exact")
    usual, trouble2 = score(opt, opt.qpack, lists)
    if trouble or trouble2:
        return n.add("prose, demo container", trouble or trouble2)
    p, q = perplexity(exact), perplexity(usual)
    same = np.mean([a == b for r, s in zip(exact, usual) for a, b in zip(r["argmax"], s["argmax"])])
    bf16 = np.exp(sum(t["nll"] for t in texts) / sum(len(x) - 1 for x in lists))
    print(f"demo container: perplexity {p:.4f} exact, {q:.4f} default (bfloat16 weights: {bf16:.4f}), argmax equal in both "
          f"modes at {100 * same:.2f} %", flush=True)
    n.add("prose, demo container", None if abs(q / p - 1) < 0.02 else f"perplexity {p:.4f} exact, {q:.4f} default")


def check_qpack(opt, n, tmp):
    if not opt.qpack:
        return n.skip("demo container", 3, "no --qpack")
    with open(os.path.join(HERE, "demo_greedy.json")) as f:
        prompt = next(p for p in json.load(f)["prompts"] if p["name"] == "chat-capital")
    path = os.path.join(tmp, "demo.reference")
    nf.write_safetensors(path, {"input_ids": np.array([prompt["prompt_ids"]], np.int32),
                                "greedy": np.zeros((1, 12), np.int32)})
    nf.write(opt.qpack, path, path)
    n.add("layers, demo container", verify(opt, opt.qpack, path))
    if opt.demo:
        n.add("weights, demo container", weights_differ(opt.demo, opt.qpack, 4))
    else:
        n.skip("weights of the demo container", 1, "no --demo")
    if opt.score:
        check_qpack_prose(opt, n)
    else:
        n.skip("prose on the demo container", 1, "no --score")


def main():
    ap = argparse.ArgumentParser(description="run the built programs over every reference")
    ap.add_argument("swiftlet")
    ap.add_argument("--score")
    ap.add_argument("--qpack")
    ap.add_argument("--demo")
    ap.add_argument("--tolerance", type=float, default=1e-3)
    ap.add_argument("names", nargs="*")
    opt, n = ap.parse_args(), Counts()
    if opt.demo and not os.path.isdir(opt.demo):
        opt.demo = None
    with tempfile.TemporaryDirectory() as tmp:
        check_cases(opt, n, tmp)
        if not opt.names:
            check_qpack(opt, n, tmp)
    if not opt.names:
        check_greedy(opt, n)
        check_scores(opt, n)
    print(f"{n.passed} passed, {n.failed} failed, {n.skipped} skipped")
    sys.exit(1 if n.failed else 0)


if __name__ == "__main__":
    main()
