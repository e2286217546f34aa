#!/usr/bin/env python3
"""Converts checkpoints in FP8 with block scales and in MLX's modes without biases, and checks the containers.

fp8        An original in E4M3 with a scale per 128 x 128, experts one by one, becomes the very files that its weights in
           float32 (widened here, in numpy) become.
mxfp4 ...  The bytes of an MLX checkpoint are moved: the container (QPACK2) holds the same weights and passes `verify
           --exact` against numpy's float64 forward pass on the checkpoint, and so does the checkpoint itself. The default
           mode agrees with numpy's int8 activations in the first layer.

recipes    The bits of every module are mlx-lm's choice (the router keeps 8), and config.json says so; the quantiser that
           searches leaves a smaller error than MLX's.

usage: check_formats.py PROGRAM      The last line says "N passed, N failed".
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np

import check_gguf as cg
from check_gguf import CASES, check, nf, run

E4M3 = nf.e4m3(np.arange(256))
E4M3[[127, 255]] = np.inf  # not numbers


def raw_file(tensors):
    """A safetensors file; tensors: name to (dtype, shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(t[2] for t in tensors.values())


def write_raw(path, tensors):
    with open(path, "wb") as f:
        f.write(raw_file(tensors))


def bf16(x):
    """Cut to bfloat16: (bytes, the values)."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return (u >> 16).astype("<u2").tobytes(), u.view(np.float32)


def hf_tensors(W):
    """The Hugging Face names with experts one by one; float64 arrays."""
    out = {}
    for name, x in W.items():
        if isinstance(x, tuple):
            for e in range(len(x[0])):
                for k, p in zip(("gate", "up", "down"), x):
                    out[f"{name}.{e}.{k}_proj.weight"] = p[e]
        else:
            out[name] = x[:, None, :] if name.endswith("conv1d.weight") else x
    return out


def is_fp8(name, x):
    return x.ndim == 2 and not name.endswith((".gate.weight", "shared_expert_gate.weight", "in_proj_a.weight",
                                              "in_proj_b.weight", "embed_tokens.weight", "lm_head.weight"))


def to_fp8(x):
    """Codes and bfloat16 scales, and the float32 values that they stand for."""
    rows, cols = x.shape
    blocks = ((rows + 127) // 128, (cols + 127) // 128)
    scale = np.zeros(blocks, np.float32)
    for i in range(blocks[0]):
        for j in range(blocks[1]):
            scale[i, j] = np.abs(x[128 * i:128 * i + 128, 128 * j:128 * j + 128]).max() / 448
    raw, scale = bf16(scale)
    wide = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :cols]
    v = np.minimum(np.abs(x / wide), 448)
    at = np.searchsorted(E4M3[:127], v)  # they ascend
    low = np.maximum(at - 1, 0)
    codes = np.where(v - E4M3[low] < E4M3[at] - v, low, at).astype(np.uint8)
    codes |= np.where(x < 0, 128, 0).astype(np.uint8)
    return codes, (raw, blocks), (E4M3[codes].astype(np.float32) * wide)


def fp8_model():
    """The big model as an FP8 original, and with the values of its codes in float32: config, what it has more, two sets of
    tensors."""
    c, W = cg.big_model(np.random.default_rng(11))
    tensors = hf_tensors(W)
    rng = np.random.default_rng(12)
    tensors["model.layers.0.linear_attn.in_proj_z.weight"] = rng.standard_normal((512, 256)) / 16
    fp8, plain = {}, {}
    for name, x in tensors.items():
        if is_fp8(name, x):
            codes, (raw, blocks), value = to_fp8(x)
            fp8[name] = ("F8_E4M3", x.shape, codes.tobytes())
            fp8[name + "_scale_inv"] = ("BF16", blocks, raw)
            plain[name] = ("F32", x.shape, value.astype("<f4").tobytes())
        else:
            fp8[name] = plain[name] = ("BF16", x.shape, bf16(x)[0])
    quantised = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
    return c, quantised, fp8, plain


def check_fp8(program, tmp):
    c, quantised, fp8, plain = fp8_model()
    for d, t, more in (("fp8", fp8, quantised), ("plain", plain, {})):
        os.mkdir(os.path.join(tmp, d))
        write_raw(os.path.join(tmp, d, "model.safetensors"), t)
        with open(os.path.join(tmp, d, "config.json"), "w") as f:
            json.dump({**c, **more}, f)
        rc, said = run(program, "repack", "--source", os.path.join(tmp, d), "--output", os.path.join(tmp, d + ".qpack"))
        check("fp8 repack " + d, rc and said)
        if rc:
            return
    names = ["model.safetensors", "packed_experts/layout.json"] + ["packed_experts/layer_%02d.bin" % i for i in range(4)]
    for name in names:
        a, b = (open(os.path.join(tmp, d + ".qpack", name), "rb").read() for d in ("fp8", "plain"))
        check("fp8 " + name, a != b and "other bytes than from float32")
    with open(os.path.join(tmp, "fp8.qpack", "config.json")) as f:
        check("fp8 config", "fp8" in f.read() and "config.json still says fp8")
    broken = dict(fp8)
    name = "model.layers.0.linear_attn.out_proj.weight_scale_inv"
    broken[name] = ("BF16", (1, 4), fp8[name][2][:8])
    shutil.rmtree(os.path.join(tmp, "fp8.qpack"))
    write_raw(os.path.join(tmp, "fp8", "model.safetensors"), broken)
    rc, said = run(program, "repack", "--source", os.path.join(tmp, "fp8"), "--output", os.path.join(tmp, "fp8.qpack"))
    check("fp8 wrong blocks", (rc == 0 or "out_proj.weight" not in said or "128 x 128" not in said) and said)


MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def random_codes(shape, bits, group, rng):
    """Words and byte scales of a matrix with numbers of the size of weights."""
    per = 32 // bits
    codes = rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    if bits == 8:
        codes[codes % 128 > 110] = 3  # the largest ones are rare, and the last is no number
    words = (codes.reshape(*shape[:-1], -1, per) << (np.arange(per, dtype=np.uint64) * bits)).sum(-1).astype("<u4")
    scales = rng.integers(16, 33, (*shape[:-1], shape[-1] // group)) if group == 16 else \
        rng.integers(118, 122, (*shape[:-1], shape[-1] // group)) - (3 if bits == 8 else 0)
    return words, scales.astype(np.uint8)


def check_mode(program, tmp, mode):
    bits, group = MODES[mode]
    rng = np.random.default_rng(21)
    c, W = cg.big_model(rng)
    out = {}
    for name, x in W.items():
        if isinstance(x, tuple):
            stack = {name.replace("experts", f"switch_mlp.{k}_proj.weight"): p for k, p in zip(("gate", "up", "down"), x)}
        else:
            stack = {name: x}
        for n, p in stack.items():
            if n.endswith("conv1d.weight"):
                out[n] = ("BF16", (*p.shape, 1), bf16(p)[0])
            elif p.ndim == 1 or n.endswith((".gate.weight", "shared_expert_gate.weight")):
                shift = "norm" in n and "linear_attn" not in n
                out[n] = ("BF16", p.shape, bf16(p + shift)[0])
            else:
                words, scales = random_codes(p.shape, bits, group, rng)
                out[n] = ("U32", words.shape, words.tobytes())
                out[n[:-len("weight")] + "scales"] = ("U8", scales.shape, scales.tobytes())
    d, packed = os.path.join(tmp, mode), os.path.join(tmp, mode + ".qpack")
    os.mkdir(d)
    write_raw(os.path.join(d, "model.safetensors"), out)
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump({**c, "quantization": {"group_size": group, "bits": bits, "mode": mode}}, f)
    rc, said = run(program, "repack", "--source", d, "--output", packed)
    check(mode + " repack", rc and said)
    if rc:
        return
    with open(os.path.join(packed, "manifest.json")) as f:
        m = json.load(f)
    check(mode + " version", (m["magic"], m["version"]) != ("QPACK2", 2) and "%s %d" % (m["magic"], m["version"]))
    (_, a), (_, b) = nf.load(packed), nf.load(d)
    a, b = dict(cg.flatten(a)), dict(cg.flatten(b))
    other = [n for n in b if n not in a or not np.array_equal(np.asarray(a[n]), np.asarray(b[n]))]
    check(mode + " weights", (other or set(a) ^ set(b)) and "differ: %s" % (other or sorted(set(a) ^ set(b)))[:3])
    reference = os.path.join(tmp, mode + ".reference.safetensors")
    nf.write(d, reference, os.path.join(CASES, "golden-q35-moe", "reference.safetensors"))
    for what, path in (("container", packed), ("in place", d)):
        rc, said = run(program, "verify", "--exact", "--tolerance", "3e-3", path, reference)
        check("%s %s" % (mode, what), rc and said)
    # The default mode, as far as a rounding that falls the other way cannot have changed an expert.
    nf.write(packed, reference, os.path.join(CASES, "golden-q35-moe", "reference.safetensors"), int8=True)
    first = {k: v for k, v in nf.read_safetensors(reference).items() if k in ("input_ids", "embed", "layer_00")}
    nf.write_safetensors(reference, first)
    rc, said = run(program, "verify", "--tolerance", "0.12", packed, reference)
    check(mode + " default", rc and said)


def is_sensitive(name, n_layers):
    """mlx-lm's rule for its mixed recipes."""
    if "lm_head" in name:
        return True
    if "v_proj" not in name and "down_proj" not in name:
        return False
    i = int(name.split(".")[2])
    return i < n_layers // 8 or i >= 7 * n_layers // 8 or (i - n_layers // 8) % 3 == 2


def check_recipes(program, tmp):
    """Bits of every module, from shapes and as config.json says; weights nearer than MLX's quantiser leaves them."""
    source = os.path.join(CASES, "next-a")
    c = nf.text_config(source)
    (_, original) = nf.load(source)
    for recipe, low, high in (("mixed_2_6", 2, 6), ("mixed_3_4", 3, 4), ("mixed_3_6", 3, 6), ("mixed_4_6", 4, 6)):
        errors = {}
        for quantiser in ("search", "minmax"):
            out = os.path.join(tmp, recipe + quantiser + ".qpack")
            rc, said = run(program, "repack", "--source", source, "--output", out, "--recipe", recipe, "--quantiser",
                           quantiser)
            check("%s %s repack" % (recipe, quantiser), rc and said)
            if rc:
                return
            (_, W) = nf.load(out)
            a, b = dict(cg.flatten(W)), dict(cg.flatten(original))
            errors[quantiser] = sum(float(((np.asarray(a[n]) - b[n]) ** 2).sum()) for n in b if n.endswith("_proj.weight"))
        check(recipe + " error", errors["search"] > 0.9 * errors["minmax"] and "%s" % errors)
        with open(os.path.join(out, "config.json")) as f:
            q = json.load(f)["quantization"]
        with open(os.path.join(out, "packed_experts", "layout.json")) as f:
            layers = json.load(f)["layers"]
        dense = nf.read_safetensors(os.path.join(out, "model.safetensors"))
        bits = {n[:-len(".scales")]: dense[n[:-len("scales")] + "weight"].shape[-1] * 32 // nf.module_inputs(n[:-len(".scales")], c)
                for n in dense if n.endswith(".scales")}
        for i, l in enumerate(layers):
            for s in l["sections"]:
                if s["name"].endswith(".weight"):
                    n = f"model.layers.{i}.mlp.switch_mlp." + s["name"][:-len(".weight")]
                    bits[n] = s["shape"][1] * 32 // nf.module_inputs(n, c)
        want = {n: 8 if n.endswith((".mlp.gate", "shared_expert_gate")) else
                high if is_sensitive(n, c["num_hidden_layers"]) else low for n in bits}
        said = {n: q[n]["bits"] if n in q else q["bits"] for n in bits}
        check(recipe + " bits", bits != want and str([(n, bits[n], want[n]) for n in bits if bits[n] != want[n]][:3]))
        check(recipe + " config.json", said != want and str([n for n in bits if said[n] != want[n]][:3]))
    reference = os.path.join(tmp, "recipe.reference.safetensors")
    nf.write(out, reference, os.path.join(source, "reference.safetensors"))
    rc, said = run(program, "verify", "--exact", "--tolerance", "1e-3", out, reference)
    check("recipe forward", rc and said)


def main():
    program = os.path.abspath(sys.argv[1])
    tmp = tempfile.mkdtemp(prefix="swl_formats_")
    try:
        check_fp8(program, tmp)
        for mode in MODES:
            check_mode(program, tmp, mode)
        check_recipes(program, tmp)
    finally:
        shutil.rmtree(tmp)
    print("%d passed, %d failed" % (cg.passed, cg.failed))
    return cg.failed > 0


if __name__ == "__main__":
    sys.exit(main())
