#!/usr/bin/env python3
"""Converts GGUF files with the command line and checks the containers.

Files are written with the public `gguf` package from the reference models, in every type that is converted, in the
arrangement of llama.cpp's converter (gguf_files.py); types that the package cannot quantise to get random blocks. What
a file holds is what the package's own dequantiser makes of it. Checked per file:

  weights    every weight of the container, read by numpy_forward.py, equals it (types whose scales are products of two
             numbers: within the rounding of those products to float16)
  transformers   of whole models in Q8_0: the stored logits of transformers, within what the rounding of weights costs
  forward    `verify --exact` of the container against numpy's float64 forward pass on those weights (on the container's
             own where they were rounded)
  text       the tokenizer that comes out gives the ids of the one that went in (package `tokenizers`), and the template
             is the same text

usage: check_gguf.py PROGRAM [NAME ...]      The last line says "N passed, N failed".
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))
import numpy_forward as nf  # noqa: E402

import gguf_files as gf  # noqa: E402
from gguf_files import T  # noqa: E402

CASES = os.path.join(ROOT, "tests", "oracle", "cases")
DEMO = os.path.join(ROOT, "models", "demo.qpack")
PRODUCTS = {T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS}
passed = failed = 0


def check(name, trouble):
    """trouble: nothing, or what is wrong."""
    global passed, failed
    if trouble:
        failed += 1
        print("FAIL %s: %s" % (name, trouble), flush=True)
    else:
        passed += 1


def run(*args):
    p = subprocess.run(args, capture_output=True, text=True, timeout=600)
    said = [x for x in (p.stdout + "\n" + p.stderr).splitlines() if x.strip()]
    return p.returncode, " | ".join(said[-3:])[-600:]


def big_model(rng):
    """Rows of 256 and 512 numbers, which blocks of 256 need; two value heads per key head."""
    c = {"model_type": "qwen3_5_moe_text", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 128, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
         "linear_key_head_dim": 32, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 6,
         "num_experts_per_tok": 2, "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
         "norm_topk_prob": True, "vocab_size": 160, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": False, "hidden_act": "silu", "full_attention_interval": 4,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}}
    m = lambda *shape: rng.standard_normal(shape) * shape[-1] ** -0.5
    near_0 = lambda n: rng.standard_normal(n) * 0.1
    W = {"model.embed_tokens.weight": m(160, 256), "lm_head.weight": m(160, 256), "model.norm.weight": near_0(256)}
    for i in range(4):
        P = f"model.layers.{i}."
        W[P + "input_layernorm.weight"], W[P + "post_attention_layernorm.weight"] = near_0(256), near_0(256)
        if i % 4 == 3:
            for n, rows in (("q_proj", 1024), ("k_proj", 256), ("v_proj", 256)):
                W[P + f"self_attn.{n}.weight"] = m(rows, 256)
            W[P + "self_attn.o_proj.weight"] = m(256, 512)
            W[P + "self_attn.q_norm.weight"], W[P + "self_attn.k_norm.weight"] = near_0(128), near_0(128)
        else:
            A = P + "linear_attn."
            W[A + "in_proj_qkv.weight"], W[A + "in_proj_z.weight"] = m(768, 256), m(512, 256)
            W[A + "in_proj_b.weight"], W[A + "in_proj_a.weight"] = m(8, 256), m(8, 256)
            W[A + "conv1d.weight"] = rng.standard_normal((768, 4)) * 0.4
            W[A + "A_log"], W[A + "dt_bias"] = rng.uniform(-1, 1, 8), rng.uniform(-1, 1, 8)
            W[A + "norm.weight"], W[A + "out_proj.weight"] = 1 + near_0(64), m(256, 512)
        W[P + "mlp.gate.weight"], W[P + "mlp.shared_expert_gate.weight"] = m(6, 256) * 3, m(1, 256)
        for n in ("gate", "up", "down"):
            W[P + f"mlp.shared_expert.{n}_proj.weight"] = m(256, 256)
        W[P + "mlp.experts"] = (m(6, 256, 256), m(6, 256, 256), m(6, 256, 256))
    return c, W


def by_layer(kinds):
    """Another type for every matrix, by turns."""
    at = [0]

    def kind(_):
        at[0] += 1
        return kinds[at[0] % len(kinds)]
    return kind


def one(kind):
    return lambda _: kind


def q4_k_m(name):
    """As llama.cpp mixes them: six bits for the head and for every other value and down projection."""
    if name == "output.weight" or (name.endswith(("attn_v.weight", "ffn_down_exps.weight")) and int(name.split(".")[1]) % 2):
        return T.Q6_K
    return T.Q4_K


def q8_or_f16(name):
    return T.F16 if name == "output.weight" else T.Q8_0


# name, case (None: the big model), types, more for gguf_files.write
FILES = [
    ("f32", "golden-q35-moe", one(T.F32), {"draft": True}),
    ("f16", "golden-next-moe", one(T.F16), {"draft": True}),
    ("bf16", "q35dense-b", one(T.BF16), {}),
    ("f32-yarn", "q35moe-c", one(T.F32), {"fused": True}),
    ("q8_0", "next-a", one(T.Q8_0), {}),
    ("q8_0-split", "q35moe-a", one(T.Q8_0), {"split": 20}),
    ("q8_0-dense", "q35dense-a", one(T.Q8_0), {}),
    ("q4_0", "q35moe-a", one(T.Q4_0), {"fused": True}),
    ("q4_1", "q35dense-a", one(T.Q4_1), {}),
    ("q5_0", "q35dense-b", one(T.Q5_0), {}),
    ("q5_1", "q35moe-b", one(T.Q5_1), {}),
    ("mxfp4", "q35moe-a", one(T.MXFP4), {}),
    ("iq4_nl", "next-a", one(T.IQ4_NL), {}),
    ("nvfp4", None, one(T.NVFP4), {}),
    ("q2_k", None, one(T.Q2_K), {}),
    ("q3_k", None, one(T.Q3_K), {}),
    ("q4_k", None, one(T.Q4_K), {}),
    ("q5_k", None, one(T.Q5_K), {"fused": True}),
    ("q6_k", None, one(T.Q6_K), {}),
    ("iq4_xs", None, one(T.IQ4_XS), {}),
    ("q4_k_m", None, q4_k_m, {}),
    ("mixed", None, by_layer([T.Q4_K, T.Q6_K, T.IQ4_XS, T.Q8_0, T.Q5_1, T.BF16, T.Q3_K]), {}),
]


def tokenizer_of(d):
    """Metadata as llama.cpp's converter writes it from a tokenizer.json; ids without a token are padding."""
    with open(os.path.join(d, "tokenizer.json")) as f:
        t = json.load(f)
    with open(os.path.join(d, "chat_template.jinja")) as f:
        template = f.read()
    with open(os.path.join(d, "config.json")) as f:
        n = json.load(f)["vocab_size"]
    special = {a["content"]: a["id"] for a in t["added_tokens"]}
    tokens, types = ["[PAD%d]" % i for i in range(n)], [gguf.TokenType.UNUSED] * n
    for text, i in t["model"]["vocab"].items():
        tokens[i], types[i] = text, gguf.TokenType.NORMAL
    for a in t["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = gguf.TokenType.CONTROL if a["special"] else gguf.TokenType.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]

    def add(w):
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen35")
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges(merges)
        w.add_eos_token_id(special["<|im_end|>"])
        w.add_pad_token_id(special["<|endoftext|>"])
        w.add_add_bos_token(False)
        w.add_chat_template(template)
    return add


def write_hf(d, c, weights):
    os.mkdir(d)
    config = {k: v for k, v in c.items() if k not in ("quantization", "quantization_config")}
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(config, f)
    nf.write_safetensors(os.path.join(d, "model.safetensors"), {k: v.astype(np.float32) for k, v in weights.items()})


def flatten(W):
    """(name, array) with the experts' three as three."""
    for name, v in sorted(W.items()):
        if isinstance(v, tuple):
            yield from ((name + ".%d" % i, x) for i, x in enumerate(v))
        else:
            yield name, v


def bound_of(name, x, products, plain):
    if name.endswith("A_log") or "norm" in name:
        return 4e-7 * np.maximum(1, np.abs(x))  # stored as its exponential, or with one added
    if x.ndim > 1 and plain:
        return (x.max() - x.min()) / 64  # eight bits, by the whole matrix's range; scales in bfloat16
    if products:  # two roundings to 11 bits, of terms that are at most a few times the largest weight
        return np.abs(x).max(-1, keepdims=True) * 2.0 ** -11 * 4
    return 1e-7 * np.abs(x) + 1e-12


def compare_weights(container, hf, products, plain):
    (_, got), (_, want) = nf.load(container), nf.load(hf)
    want = {k: v for k, v in want.items() if not k.startswith("mtp.layers.0.mlp.experts")}  # in a file of slots of its own
    got, want, worst = dict(flatten(got)), dict(flatten(want)), 0
    if set(got) != set(want):
        return "names differ: %s" % sorted(set(got) ^ set(want))[:5]
    for name, x in want.items():
        y = np.asarray(got[name]).reshape(x.shape)
        bad = np.abs(y - x) > bound_of(name, x, products, plain)
        if bad.any():
            i = tuple(int(v) for v in np.argwhere(bad)[0])
            return "%s%s is %.9g, expected %.9g" % (name, i, y[i], x[i])
        if products and "weight" in name and x.ndim > 1:
            worst = max(worst, float(np.sqrt(((y - x) ** 2).mean() / (x ** 2).mean())))
    if worst:
        print("%s: scales rounded to float16 move weights by at most %.2g of their root mean square" % (
            os.path.basename(container), worst), flush=True)
    return None


def check_text(name, container):
    import tokenizers
    made, original = (tokenizers.Tokenizer.from_file(os.path.join(d, "tokenizer.json")) for d in (container, DEMO))
    rng = np.random.default_rng(5)
    texts = ["Hello, world! 12345 it's\n\n  <|im_start|>user\nna\u00efve caf\u00e9 e\u0301 \u4f60\u597d \U0001f600<|im_end|><think>"]
    texts += ["".join(chr(rng.integers(32, 0x500)) for _ in range(40)) for _ in range(200)]
    wrong = [t for t in texts if made.encode(t).ids != original.encode(t).ids]
    check(name + " tokenizer", wrong and "other ids for %r" % wrong[0][:60])
    ids = list(range(5120))
    check(name + " decoding", made.decode(ids) != original.decode(ids) and "other text")
    same = all(open(os.path.join(d, "chat_template.jinja")).read() == open(os.path.join(DEMO, "chat_template.jinja")).read()
               for d in (container,))
    check(name + " template", not same and "another text")


def check_file(program, tmp, name, case, kind, more):
    rng = np.random.default_rng(20250101)
    c, W = big_model(rng) if case is None else nf.load(os.path.join(CASES, case))
    path, out, hf = (os.path.join(tmp, name + end) for end in (".gguf", ".qpack", ".hf"))
    kinds = set()

    def counted(tensor):
        kinds.add(kind(tensor))
        return kind(tensor)

    weights = gf.write(path, c, W, counted, rng, **more)
    plain = not kinds - {T.F32, T.F16, T.BF16}  # quantised here, not by the file's writer
    products = bool(kinds & PRODUCTS)
    source = next(os.path.join(tmp, x) for x in sorted(os.listdir(tmp)) if x.startswith(name) and x.endswith(".gguf"))
    rc, said = run(program, "repack", "--source", source, "--output", out, *(("--bits", "8", "--group", "32") * plain))
    check(name + " repack", rc and said)
    if rc:
        return
    write_hf(hf, c, weights)
    check(name + " weights", compare_weights(out, hf, products, plain))
    reference = os.path.join(tmp, name + ".reference.safetensors")
    ids = os.path.join(CASES, case or "golden-q35-moe", "reference.safetensors")
    nf.write(out if plain or products else hf, reference, ids)
    rc, said = run(program, "verify", "--exact", "--tolerance", "1e-3" if case else "3e-3", out, reference)
    check(name + " forward", rc and said)
    if case and kinds == {T.Q8_0}:
        compare_with_transformers(program, tmp, name, out, reference, ids)
    for p in (out, hf):
        shutil.rmtree(p)


def compare_with_transformers(program, tmp, name, out, rounded, original):
    """The stored logits of transformers, for weights that were not rounded: no further away than numpy on the rounded ones is."""
    original, near = nf.read_safetensors(original), nf.read_safetensors(rounded)["logits"]
    error = np.abs(near - original["logits"])
    same = float((near.argmax(-1) == original["logits"].argmax(-1)).mean())
    print("%s: rounding to Q8_0 moves logits by at most %.2g (mean %.2g, deviation %.2g); best token the same at %.0f %%" % (
        name, error.max(), error.mean(), original["logits"].std(), 100 * same), flush=True)
    path = os.path.join(tmp, name + ".transformers.safetensors")
    nf.write_safetensors(path, {k: original[k] for k in ("input_ids", "logits")})
    rc, said = run(program, "verify", "--exact", "--tolerance", "%g" % (error.max() + 2e-3), out, path)
    check(name + " transformers", rc and said)


def check_tokenizer(program, tmp):
    rng = np.random.default_rng(7)
    c, W = big_model(rng)
    c["vocab_size"] = 5120
    W["model.embed_tokens.weight"], W["lm_head.weight"] = (rng.standard_normal((5120, 256)) / 16 for _ in range(2))
    path, out = os.path.join(tmp, "text.gguf"), os.path.join(tmp, "text.qpack")
    gf.write(path, c, W, one(T.Q8_0), rng, tokenizer=tokenizer_of(DEMO))
    rc, said = run(program, "repack", "--source", path, "--output", out)
    check("text repack", rc and said)
    if not rc:
        check_text("text", out)
        rc, said = run(program, "generate", "--model", out, "--prompt", "Once", "--max-tokens", "4")
        check("text generate", rc and said)


def check_refusals(program, tmp):
    rng = np.random.default_rng(9)
    c, W = big_model(rng)
    path, out = os.path.join(tmp, "bad.gguf"), os.path.join(tmp, "bad.qpack")
    for what, kind in (("IQ3_S", T.IQ3_S), ("TQ2_0", T.TQ2_0)):
        f = gf.File(path, "qwen35", one(T.F32), rng)
        gf.add_metadata(f, {**c, "intermediate_size": 256}, 0, None)
        f.matrix("token_embd.weight", W["model.embed_tokens.weight"])
        n, size = gguf.GGML_QUANT_SIZES[kind]
        f.w.add_tensor("blk.0.attn_qkv.weight", np.zeros((768, 256 // n * size), np.uint8), raw_dtype=kind)
        f.close()
        rc, said = run(program, "repack", "--source", path, "--output", out)
        check("refuses " + what, (rc == 0 or what not in said or "blk.0.attn_qkv" not in said) and said)
    f = gf.File(path, "llama", one(T.F32), rng)
    f.close()
    rc, said = run(program, "repack", "--source", path, "--output", out)
    check("refuses llama", (rc == 0 or "general.architecture" not in said) and said)
    check("leaves nothing", any(x.startswith("bad.qpack") for x in os.listdir(tmp)) and "a container is left")


def main():
    program, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    tmp = tempfile.mkdtemp(prefix="swl_gguf_")
    try:
        for name, case, kind, more in FILES:
            if not names or name in names:
                check_file(program, tmp, name, case, kind, more)
        if not names or "text" in names:
            check_tokenizer(program, tmp)
        if not names or "refusals" in names:
            check_refusals(program, tmp)
    finally:
        shutil.rmtree(tmp)
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
