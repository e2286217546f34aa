#!/usr/bin/env python3
"""Writes a checkpoint with the shapes of Qwen3-Next-80B-A3B and made-up weights, so that conversions can be measured:
bench/run_repack.sh. As MLX has it, 4 bits in groups of 64 (0.9 GB a layer), or as Hugging Face has it, bfloat16 (3.3 GB a layer).

usage: make_checkpoint.py DIR mlx|bf16 LAYERS [--holes]
  --holes  the data are holes in the files, which take no room and read as zeros: for memory, not for speed
Needs numpy.
"""
import argparse
import json
import os

import numpy as np

HIDDEN, VOCAB, EXPERTS, WIDTH = 2048, 151936, 512, 512
HEADS, KV_HEADS, HEAD = 16, 2, 256
K_HEADS, V_HEADS, STATE = 16, 32, 128
GROUP, TILE = 64, 1 << 20
KEY, VALUE = K_HEADS * STATE, V_HEADS * STATE
SIZE = {"BF16": 2, "F32": 4, "U32": 4}
rng = np.random.default_rng(7)


def bf16(x):
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


# A megabyte or two of each kind of data, over and over.
TILES = {"BF16": bf16(rng.normal(0, 0.02, TILE)), "F32": rng.normal(0, 0.02, TILE // 4).astype("<f4").tobytes(),
         "U32": rng.bytes(TILE), "scales": bf16(rng.uniform(0.001, 0.01, TILE // 2))}


def matrix(name, rows, cols, mlx, bits=4, lead=()):
    """(name, dtype, shape, kind of data)"""
    if not mlx:
        yield name + ".weight", "BF16", [*lead, rows, cols], "BF16"
        return
    yield name + ".weight", "U32", [*lead, rows, cols * bits // 32], "U32"
    for part in "scales", "biases":
        yield "%s.%s" % (name, part), "BF16", [*lead, rows, cols // GROUP], "scales"


def vector(name, n, dtype="BF16"):
    yield name, dtype, [n] if isinstance(n, int) else n, dtype


def experts(b, mlx):
    for proj, rows, cols in ("gate_proj", WIDTH, HIDDEN), ("up_proj", WIDTH, HIDDEN), ("down_proj", HIDDEN, WIDTH):
        if mlx:
            yield from matrix(b + "mlp.switch_mlp." + proj, rows, cols, True, lead=(EXPERTS,))
        else:
            for e in range(EXPERTS):
                yield from matrix("%smlp.experts.%d.%s" % (b, e, proj), rows, cols, False)


def layer(i, mlx):
    b = "model.layers.%d." % i
    yield from vector(b + "input_layernorm.weight", HIDDEN)
    yield from vector(b + "post_attention_layernorm.weight", HIDDEN)
    if i % 4 == 3:
        for name, rows, cols in (("q_proj", 2 * HEADS * HEAD, HIDDEN), ("k_proj", KV_HEADS * HEAD, HIDDEN),
                                 ("v_proj", KV_HEADS * HEAD, HIDDEN), ("o_proj", HIDDEN, HEADS * HEAD)):
            yield from matrix(b + "self_attn." + name, rows, cols, mlx)
        for name in "q_norm", "k_norm":
            yield from vector(b + "self_attn.%s.weight" % name, HEAD)
    else:
        a = b + "linear_attn."
        yield from matrix(a + "in_proj_qkvz", 2 * KEY + 2 * VALUE, HIDDEN, mlx)
        yield from matrix(a + "in_proj_ba", 2 * V_HEADS, HIDDEN, mlx)
        yield from matrix(a + "out_proj", HIDDEN, VALUE, mlx)
        yield from vector(a + "conv1d.weight", [2 * KEY + VALUE, 4, 1] if mlx else [2 * KEY + VALUE, 1, 4])
        yield from vector(a + "dt_bias", V_HEADS)
        yield from vector(a + "A_log", V_HEADS, "F32")
        yield from vector(a + "norm.weight", STATE)
    yield from matrix(b + "mlp.gate", EXPERTS, HIDDEN, mlx, 8)
    yield from matrix(b + "mlp.shared_expert_gate", 1, HIDDEN, mlx, 8)
    for name, rows, cols in ("gate_proj", WIDTH, HIDDEN), ("up_proj", WIDTH, HIDDEN), ("down_proj", HIDDEN, WIDTH):
        yield from matrix(b + "mlp.shared_expert." + name, rows, cols, mlx)
    yield from experts(b, mlx)


def outside(mlx):
    yield from matrix("model.embed_tokens", VOCAB, HIDDEN, mlx)
    yield from matrix("lm_head", VOCAB, HIDDEN, mlx)
    yield from vector("model.norm.weight", HIDDEN)


def write_data(f, kind, n, holes):
    if holes:
        f.seek(n, os.SEEK_CUR)
        return
    tile = TILES[kind]
    for at in range(0, n, len(tile)):
        f.write(tile[:n - at])


def write_shard(path, tensors, holes):
    header, at = {}, 0
    for name, dtype, shape, _ in tensors:
        n = SIZE[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, _, _, kind in tensors:
            begin, end = header[name]["data_offsets"]
            write_data(f, kind, end - begin, holes)
        f.truncate(8 + len(text) + at)
    return at


def config(n_layers, mlx):
    c = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "vocab_size": VOCAB, "hidden_size": HIDDEN,
         "intermediate_size": 5120, "num_hidden_layers": n_layers, "num_attention_heads": HEADS,
         "num_key_value_heads": KV_HEADS, "hidden_act": "silu", "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": False, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "attention_bias": False,
         "head_dim": HEAD, "linear_conv_kernel_dim": 4, "linear_key_head_dim": STATE, "linear_value_head_dim": STATE,
         "linear_num_key_heads": K_HEADS, "linear_num_value_heads": V_HEADS, "decoder_sparse_step": 1,
         "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH, "num_experts_per_tok": 10,
         "num_experts": EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [], "full_attention_interval": 4}
    if mlx:
        q = {"group_size": GROUP, "bits": 4}
        for i in range(n_layers):
            for name in "gate", "shared_expert_gate":
                q["model.layers.%d.mlp.%s" % (i, name)] = {"group_size": GROUP, "bits": 8}
        c["quantization"] = c["quantization_config"] = q
    return c


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("form", choices=("mlx", "bf16"))
    parser.add_argument("layers", type=int)
    parser.add_argument("--holes", action="store_true")
    a = parser.parse_args()
    mlx = a.form == "mlx"
    os.makedirs(a.dir)
    shards = [list(outside(mlx))] + [list(layer(i, mlx)) for i in range(a.layers)]
    where, total = {}, 0
    for i, tensors in enumerate(shards):
        name = "model-%05d-of-%05d.safetensors" % (i + 1, len(shards))
        total += write_shard(os.path.join(a.dir, name), tensors, a.holes)
        where.update((t[0], name) for t in tensors)
    with open(os.path.join(a.dir, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)
    with open(os.path.join(a.dir, "config.json"), "w") as f:
        json.dump(config(a.layers, mlx), f, indent=1)


main()
