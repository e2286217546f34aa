"""Writes GGUF files of this model family with the public `gguf` package, as llama.cpp's converter arranges them, and says
which weights they hold. Nothing of the project's own code takes part."""
import gguf
import numpy as np

T = gguf.GGMLQuantizationType
BYTES = {T.Q2_K: (80, 82, 1.5), T.Q3_K: (108, None, 0), T.Q4_K: (0, 2, 7.5), T.Q5_K: (0, 2, 15.5), T.Q6_K: (208, None, 0),
         T.IQ4_NL: (0, None, 0), T.IQ4_XS: (0, None, 0)}


def random_rows(rows, cols, kind, rng):
    """Random blocks of a type that the package cannot quantise to, with numbers of the size of weights."""
    n, size = gguf.GGML_QUANT_SIZES[kind]
    b = rng.integers(0, 256, (rows, cols // n, size), dtype=np.uint8)
    if kind == T.NVFP4:
        b[:, :, :4] = rng.integers(0x08, 0x20, (rows, cols // n, 4))
        return b.reshape(rows, -1)
    d, m, ratio = BYTES[kind]

    def put(scale):
        b[:, :, d:d + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        if m is not None:
            b[:, :, m:m + 2] = np.frombuffer(np.float16(scale * ratio).tobytes(), np.uint8)

    put(1)
    put(cols ** -0.5 / gguf.quants.dequantize(b.reshape(rows, -1), kind).std())
    return b.reshape(rows, -1)


class File:
    """One file to be. kind(name) gives the type of a matrix; weights[name] is what the file says about a tensor, in the
    Hugging Face conventions."""

    def __init__(self, path, arch, kind, rng, split=0):
        self.w = gguf.GGUFWriter(path, arch, split_max_tensors=split)
        self.arch, self.kind, self.rng, self.weights = arch, kind, rng, {}

    def vector(self, name, x):
        self.w.add_tensor(name, np.ascontiguousarray(x, dtype=np.float32))

    def matrix(self, name, x, kind=None):
        """Adds it, and gives back the values that it has there."""
        kind = kind or self.kind(name)
        rows, cols = int(np.prod(x.shape[:-1])), x.shape[-1]
        n = gguf.GGML_QUANT_SIZES[kind][0]
        if cols % n:
            kind = T.F32
        if kind in BYTES or kind == T.NVFP4:
            q = random_rows(rows, cols, kind, self.rng)
        else:
            q = gguf.quants.quantize(np.ascontiguousarray(x, dtype=np.float32).reshape(rows, cols), kind)
        value = gguf.quants.dequantize(q, kind).reshape(x.shape)
        if kind in (T.F32, T.F16):
            self.w.add_tensor(name, q.reshape(x.shape))
        else:
            self.w.add_tensor(name, q.reshape(*x.shape[:-1], -1), raw_dtype=kind)
        return value

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def tile(x, hk, r, axis=0):
    """Value heads from grouped order (k*r + j) to the order of the file (j*hk + k), along an axis."""
    x = np.moveaxis(x, axis, 0)
    y = x.reshape(hk, r, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
    return np.moveaxis(y, 0, axis)


def untile(x, hk, r, axis=0):
    x = np.moveaxis(x, axis, 0)
    y = x.reshape(r, hk, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
    return np.moveaxis(y, 0, axis)


def add_metadata(f, c, n_draft, recurrent):
    w, a = f.w, f.arch
    rope = {**{k: c[k] for k in ("rope_theta", "partial_rotary_factor") if k in c}, **(c.get("rope_scaling") or {}),
            **(c.get("rope_parameters") or {})}
    w.add_block_count(c["num_hidden_layers"] + n_draft)
    if n_draft:
        w.add_uint32(f"{a}.nextn_predict_layers", n_draft)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    if c.get("intermediate_size"):
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(c["head_dim"] * rope.get("partial_rotary_factor", 0.25)))
    if rope.get("rope_type", rope.get("type")) == "yarn":
        w.add_string(f"{a}.rope.scaling.type", "yarn")
        w.add_float32(f"{a}.rope.scaling.factor", rope["factor"])
        w.add_uint32(f"{a}.rope.scaling.original_context_length", rope["original_max_position_embeddings"])
    if c.get("num_experts"):
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    w.add_uint32(f"{a}.ssm.conv_kernel", c["linear_conv_kernel_dim"])
    w.add_uint32(f"{a}.ssm.state_size", c["linear_key_head_dim"])
    w.add_uint32(f"{a}.ssm.group_count", c["linear_num_key_heads"])
    w.add_uint32(f"{a}.ssm.time_step_rank", c["linear_num_value_heads"])
    w.add_uint32(f"{a}.ssm.inner_size", c["linear_num_value_heads"] * c["linear_value_head_dim"])
    w.add_uint32(f"{a}.full_attention_interval", c.get("full_attention_interval") or 4)
    if recurrent is not None:
        w.add_array(f"{a}.attention.recurrent_layers", recurrent)


def add_delta_net(f, c, W, P, B, out):
    """W: weights by Hugging Face names under P; B: the block's prefix in the file; out: what was stored."""
    hk, hv, dk, dv = (c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"],
                      c["linear_value_head_dim"])
    r, nk = hv // hk, hk * dk
    order = (lambda x, axis=0: x) if f.arch == "qwen3next" else (lambda x, axis=0: tile(x, hk, r, axis))
    back = (lambda x, axis=0: x) if f.arch == "qwen3next" else (lambda x, axis=0: untile(x, hk, r, axis))
    P, n = P + "linear_attn.", P + "linear_attn."
    grouped = P + "in_proj_qkvz.weight" in W
    if grouped:
        qkvz = W[P + "in_proj_qkvz.weight"].reshape(hk, 2 * dk + 2 * r * dv, -1)
        q, k, v, z = (x.reshape(-1, x.shape[-1]) for x in np.split(qkvz, [dk, 2 * dk, 2 * dk + r * dv], 1))
        qkv = np.concatenate([q, k, v])
    else:
        qkv, z = W[P + "in_proj_qkv.weight"], W[P + "in_proj_z.weight"]
    qkv = f.matrix(B + "attn_qkv.weight", np.concatenate([qkv[:2 * nk], order(qkv[2 * nk:])]))
    z = back(f.matrix(B + "attn_gate.weight", order(z)))
    qkv = np.concatenate([qkv[:2 * nk], back(qkv[2 * nk:])])
    if f.arch == "qwen3next":
        ba = W[P + "in_proj_ba.weight"] if grouped else np.stack(
            [W[P + x].reshape(hk, r, -1) for x in ("in_proj_b.weight", "in_proj_a.weight")], 1).reshape(2 * hv, -1)
        ba = f.matrix(B + "ssm_ba.weight", ba).reshape(hk, 2, r, -1)
        b, a = (ba[:, i].reshape(hv, -1) for i in (0, 1))
    else:
        b = back(f.matrix(B + "ssm_beta.weight", order(W[P + "in_proj_b.weight"])))
        a = back(f.matrix(B + "ssm_alpha.weight", order(W[P + "in_proj_a.weight"])))
    out[n + "in_proj_qkv.weight"], out[n + "in_proj_z.weight"] = qkv, z
    out[n + "in_proj_b.weight"], out[n + "in_proj_a.weight"] = b, a
    conv, a_log, dt = W[P + "conv1d.weight"], W[P + "A_log"], W[P + "dt_bias"]
    f.vector(B + "ssm_conv1d.weight", np.concatenate([conv[:2 * nk], order(conv[2 * nk:])]))
    f.vector(B + "ssm_a", order(-np.exp(a_log)))
    f.vector(B + "ssm_dt.bias", order(dt))
    f.vector(B + "ssm_norm.weight", W[P + "norm.weight"])
    out[n + "conv1d.weight"], out[n + "A_log"], out[n + "dt_bias"] = conv[:, None, :], a_log, dt
    out[n + "norm.weight"] = W[P + "norm.weight"]
    out[n + "out_proj.weight"] = back(f.matrix(B + "ssm_out.weight", order(W[P + "out_proj.weight"], 1)), 1)


def add_attention(f, W, P, B, out):
    for a, b in (("attn_q", "q_proj"), ("attn_k", "k_proj"), ("attn_v", "v_proj"), ("attn_output", "o_proj")):
        out[P + f"self_attn.{b}.weight"] = f.matrix(B + a + ".weight", W[P + f"self_attn.{b}.weight"])
    for a in ("q_norm", "k_norm"):
        f.vector(B + f"attn_{a}.weight", 1 + W[P + f"self_attn.{a}.weight"])
        out[P + f"self_attn.{a}.weight"] = W[P + f"self_attn.{a}.weight"]


def add_ffn(f, W, P, B, out, fused):
    P += "mlp."
    if P + "gate.weight" not in W:
        for k in ("gate", "up", "down"):
            out[P + f"{k}_proj.weight"] = f.matrix(B + f"ffn_{k}.weight", W[P + f"{k}_proj.weight"])
        return
    out[P + "gate.weight"] = f.matrix(B + "ffn_gate_inp.weight", W[P + "gate.weight"], T.F32)
    f.vector(B + "ffn_gate_inp_shexp.weight", W[P + "shared_expert_gate.weight"].reshape(-1))
    out[P + "shared_expert_gate.weight"] = W[P + "shared_expert_gate.weight"]
    for k in ("gate", "up", "down"):
        out[P + f"shared_expert.{k}_proj.weight"] = f.matrix(B + f"ffn_{k}_shexp.weight",
                                                             W[P + f"shared_expert.{k}_proj.weight"])
    gate, up, down = W[P + "experts"]
    if fused:
        both = f.matrix(B + "ffn_gate_up_exps.weight", np.concatenate([gate, up], 1))
    else:
        both = np.concatenate([f.matrix(B + "ffn_gate_exps.weight", gate), f.matrix(B + "ffn_up_exps.weight", up)], 1)
    out[P + "experts.gate_up_proj"] = both
    out[P + "experts.down_proj"] = f.matrix(B + "ffn_down_exps.weight", down)


def write(path, c, W, kind, rng, fused=False, split=0, draft=None, tokenizer=None, ahead=0):
    """c: config; W: weights as numpy_forward.load gives them; kind(name): type of a matrix. Returns the weights that the
    file holds, by Hugging Face names (experts fused). ahead: floats of a tensor that no model has, before all others."""
    arch = "qwen3next" if c["model_type"] == "qwen3_next" else "qwen35moe" if c.get("num_experts") else "qwen35"
    f, out = File(path, arch, kind, rng, split), {}
    L, every = c["num_hidden_layers"], c.get("full_attention_interval") or 4
    attends = [k == "full_attention" for k in c["layer_types"]] if c.get("layer_types") else \
        [(i + 1) % every == 0 for i in range(L)]
    regular = attends == [(i + 1) % every == 0 for i in range(L)]
    draft = draft and "mtp.fc.weight" in W
    add_metadata(f, c, int(bool(draft)), None if regular else [not x for x in attends])
    if tokenizer:
        tokenizer(f.w)
    if ahead:
        f.vector("rope_freqs.weight", np.zeros(ahead))
    out["model.embed_tokens.weight"] = f.matrix("token_embd.weight", W["model.embed_tokens.weight"])
    if "lm_head.weight" in W:
        out["lm_head.weight"] = f.matrix("output.weight", W["lm_head.weight"])
    f.vector("output_norm.weight", 1 + W["model.norm.weight"])
    out["model.norm.weight"] = W["model.norm.weight"]
    layers = [(f"model.layers.{i}.", i, attends[i]) for i in range(L)] + ([("mtp.layers.0.", L, True)] if draft else [])
    for P, i, attention in layers:
        B = f"blk.{i}."
        for a, b in (("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")):
            f.vector(B + a + ".weight", 1 + W[P + b + ".weight"])
            out[P + b + ".weight"] = W[P + b + ".weight"]
        if attention:
            add_attention(f, W, P, B, out)
        else:
            add_delta_net(f, c, W, P, B, out)
        add_ffn(f, W, P, B, out, fused)
    if draft:
        B = f"blk.{L}.nextn."
        out["mtp.fc.weight"] = f.matrix(B + "eh_proj.weight", W["mtp.fc.weight"], T.F32)
        for a, b in (("enorm", "pre_fc_norm_embedding"), ("hnorm", "pre_fc_norm_hidden"), ("shared_head_norm", "norm")):
            f.vector(B + a + ".weight", 1 + W[f"mtp.{b}.weight"])
            out[f"mtp.{b}.weight"] = W[f"mtp.{b}.weight"]
    f.close()
    return out
