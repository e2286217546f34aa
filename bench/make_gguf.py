#!/usr/bin/env python3
"""Writes a GGUF with the shapes of Qwen3.6-35B-A3B and random weights in Q4_0 (4.5 bits, as the synthetic container), so
that llama.cpp can be measured beside swiftlet: llama-bench -m FILE -t 2 -p 512 -n 64. About 19.5 GB; needs the packages
gguf and numpy. The numbers it gives are of synthetic weights and of whatever routes these produce.

usage: make_gguf.py FILE [LAYERS]
"""
import sys

import gguf
import numpy as np

Q4_0 = gguf.GGMLQuantizationType.Q4_0
F32 = gguf.GGMLQuantizationType.F32
HIDDEN, VOCAB, EXPERTS, USED, WIDTH = 2048, 248320, 256, 8, 512
HEADS, KV_HEADS, HEAD = 16, 2, 256
K_HEADS, V_HEADS, STATE = 16, 32, 128
rng = np.random.default_rng(7)


def q4_0(n_values, scale):
    """Blocks of 32 values: a float16 scale and 16 bytes of codes. One megabyte of them, over and over."""
    n = n_values // 32
    part = np.empty((min(n, 1 << 16), 18), np.uint8)
    part[:, 2:] = rng.integers(0, 256, (len(part), 16), np.uint8)
    part[:, :2] = (scale * rng.uniform(0.5, 1.5, len(part))).astype(np.float16)[:, None].view(np.uint8)
    for begin in range(0, n, len(part)):
        yield part[: n - begin]


def tensors(n_layers):
    """(name, shape with rows first, type, scale)"""
    # Large, so that each token keeps its own direction and random tokens are routed nearly evenly.
    yield "token_embd.weight", (VOCAB, HIDDEN), Q4_0, 1
    yield "output_norm.weight", (HIDDEN,), F32, 1
    yield "output.weight", (VOCAB, HIDDEN), Q4_0, 0.003
    key, value = K_HEADS * STATE, V_HEADS * STATE
    for i in range(n_layers):
        b = "blk.%d." % i
        yield b + "attn_norm.weight", (HIDDEN,), F32, 1
        yield b + "post_attention_norm.weight", (HIDDEN,), F32, 1
        if i % 4 == 3:
            yield b + "attn_q.weight", (HEADS * HEAD * 2, HIDDEN), Q4_0, 0.003
            yield b + "attn_k.weight", (KV_HEADS * HEAD, HIDDEN), Q4_0, 0.003
            yield b + "attn_v.weight", (KV_HEADS * HEAD, HIDDEN), Q4_0, 0.003
            yield b + "attn_output.weight", (HIDDEN, HEADS * HEAD), Q4_0, 0.003
            yield b + "attn_q_norm.weight", (HEAD,), F32, 1
            yield b + "attn_k_norm.weight", (HEAD,), F32, 1
        else:
            yield b + "attn_qkv.weight", (2 * key + value, HIDDEN), Q4_0, 0.003
            yield b + "attn_gate.weight", (value, HIDDEN), Q4_0, 0.003
            yield b + "ssm_conv1d.weight", (2 * key + value, 4), F32, 0.3
            yield b + "ssm_dt.bias", (V_HEADS,), F32, 0.1
            yield b + "ssm_a", (V_HEADS,), F32, -1
            yield b + "ssm_beta.weight", (V_HEADS, HIDDEN), Q4_0, 0.003
            yield b + "ssm_alpha.weight", (V_HEADS, HIDDEN), Q4_0, 0.003
            yield b + "ssm_norm.weight", (STATE,), F32, 1
            yield b + "ssm_out.weight", (HIDDEN, value), Q4_0, 0.003
        yield b + "ffn_gate_inp.weight", (EXPERTS, HIDDEN), F32, 0.05
        yield b + "ffn_gate_exps.weight", (EXPERTS, WIDTH, HIDDEN), Q4_0, 0.003
        yield b + "ffn_up_exps.weight", (EXPERTS, WIDTH, HIDDEN), Q4_0, 0.003
        yield b + "ffn_down_exps.weight", (EXPERTS, HIDDEN, WIDTH), Q4_0, 0.003
        yield b + "ffn_gate_inp_shexp.weight", (HIDDEN,), F32, 0.05
        yield b + "ffn_gate_shexp.weight", (WIDTH, HIDDEN), Q4_0, 0.003
        yield b + "ffn_up_shexp.weight", (WIDTH, HIDDEN), Q4_0, 0.003
        yield b + "ffn_down_shexp.weight", (HIDDEN, WIDTH), Q4_0, 0.003


def float_data(name, shape, scale):
    n = int(np.prod(shape))
    if name.endswith("norm.weight"):
        return np.ones(n, np.float32)
    if name.endswith("ssm_a"):
        return np.full(n, scale, np.float32)
    return rng.normal(0, abs(scale), n).astype(np.float32)


def main():
    path, n_layers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
    w = gguf.GGUFWriter(path, "qwen35moe")
    w.add_name("synthetic qwen3.6-35b")
    w.add_block_count(n_layers)
    w.add_context_length(262144)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(WIDTH)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_freq_base(1e7)
    w.add_rope_dimension_count(HEAD // 4)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(USED)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_expert_shared_feed_forward_length(WIDTH)
    w.add_ssm_conv_kernel(4)
    w.add_ssm_inner_size(V_HEADS * STATE)
    w.add_ssm_state_size(STATE)
    w.add_ssm_time_step_rank(V_HEADS)
    w.add_ssm_group_count(K_HEADS)
    w.add_uint32("qwen35moe.full_attention_interval", 4)
    w.add_tokenizer_model("no_vocab")
    w.add_vocab_size(VOCAB)
    rows = list(tensors(n_layers))
    for name, shape, kind, _ in rows:
        n = int(np.prod(shape))
        size = n // 32 * 18 if kind == Q4_0 else 4 * n
        w.add_tensor_info(name, shape, np.dtype(np.float32), size, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    out = w.fout[0]
    out.write(b"\0" * (-out.tell() % w.data_alignment))
    for name, shape, kind, scale in rows:
        begin = out.tell()
        if kind == Q4_0:
            for part in q4_0(int(np.prod(shape)), scale):
                out.write(part.data)
        else:
            out.write(float_data(name, shape, scale).data)
        out.write(b"\0" * (-(out.tell() - begin) % w.data_alignment))
    w.close()


main()
