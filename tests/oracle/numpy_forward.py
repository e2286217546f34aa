#!/usr/bin/env python3
"""An independent forward pass in plain numpy: float64, token by token; slow, short, for checking.

Reads a model directory in the Hugging Face layout (fused or per-expert), the MLX layouts (affine with 2, 3, 4, 5, 6, 8
bits, mxfp4, mxfp8, nvfp4) or a .qpack container; qwen3_next, qwen3_5 and qwen3_5_moe; one file or shards. It shares no code with the project.

usage: numpy_forward.py DIR [DIR ...]              compare DIR/reference.safetensors; exit 1 if one disagrees
       numpy_forward.py --write DIR REF [FROM]     write a reference for DIR, input_ids from FROM (default: REF itself)
"""
import json, os, struct, sys
import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32, "U32": np.uint32, "I64": np.int64,
          "U8": np.uint8}


# ---- files -----------------------------------------------------------------------------------------------------------

def from_bytes(raw, dtype, shape):
    if dtype == "BF16":
        t = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        t = np.frombuffer(raw, DTYPES[dtype])
    return t.reshape(shape)


def read_safetensors(path):
    out = {}
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(n))
        for name, v in head.items():
            if name != "__metadata__":
                begin, end = v["data_offsets"]
                f.seek(8 + n + begin)
                out[name] = from_bytes(f.read(end - begin), v["dtype"], v["shape"])
    return out


def write_safetensors(path, tensors):
    """tensors: {name: float32 or int32 array}."""
    head, parts, at = {}, [], 0
    for name, t in tensors.items():
        raw = np.ascontiguousarray(t).tobytes()
        head[name] = {"dtype": {"float32": "F32", "int32": "I32"}[str(t.dtype)], "shape": list(t.shape),
                      "data_offsets": [at, at + len(raw)]}
        parts.append(raw)
        at += len(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def unpack_bits(words, bits):
    """[..., words] uint32 -> [..., n] integers: element i sits in bits [i*bits, (i+1)*bits) of the row's bytes."""
    raw = np.ascontiguousarray(words.view(np.uint32)).view(np.uint8)
    stream = np.unpackbits(raw, axis=-1, bitorder="little")
    stream = stream.reshape(*words.shape[:-1], -1, bits).astype(np.float64)
    return stream @ (2.0 ** np.arange(bits))


def dequantise(words, scales, biases, n_in):
    """MLX affine: value = scale * q + bias, one scale and bias per group; bits and group follow from the shapes."""
    bits, rest = divmod(words.shape[-1] * 32, n_in)
    group, rest2 = divmod(n_in, scales.shape[-1])
    assert rest == 0 and rest2 == 0, (words.shape, scales.shape, n_in)
    spread = lambda t: np.repeat(t.astype(np.float64), group, -1)
    return unpack_bits(words, bits) * spread(scales) + spread(biases)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6])
NL4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], float)


def e4m3(b):
    b = b.astype(int)
    e, m = b >> 3 & 15, b & 7
    return np.where(b & 128, -1, 1) * np.where(e > 0, (1 + m / 8) * 2.0 ** (e - 7), m / 8 * 2.0 ** -6)


def dequantise_codes(words, scales, n_in):
    """Scales without biases: mxfp4, mxfp8 (bytes 2^(b-127), groups of 32), nvfp4 (bytes in E4M3, groups of 16), and GGUF's
    non-linear four bits (floating scales, groups of 32)."""
    bits, group = words.shape[-1] * 32 // n_in, n_in // scales.shape[-1]
    q = unpack_bits(words, bits).astype(int)
    if scales.dtype != np.uint8:
        book, s = NL4, scales.astype(np.float64)
    else:
        book = E2M1 if bits == 4 else e4m3(np.arange(256))
        s = e4m3(scales) if group == 16 else 2.0 ** (scales.astype(int) - 127)
    return book[q] * np.repeat(s, group, -1)


# ---- weights in one form ---------------------------------------------------------------------------------------------

def text_config(d):
    conf = json.load(open(os.path.join(d, "config.json")))
    return conf.get("text_config") or conf


def module_inputs(path, c):
    """The number of inputs of a module, from its name and the config."""
    leaf, H = path.rsplit(".", 1)[-1], c["hidden_size"]
    if leaf == "o_proj":
        return c["num_attention_heads"] * c["head_dim"]
    if leaf == "out_proj":
        return c["linear_num_value_heads"] * c["linear_value_head_dim"]
    if leaf == "fc":
        return 2 * H
    if leaf == "down_proj":
        kind = ("moe_intermediate_size" if "switch_mlp" in path or "experts." in path else
                "shared_expert_intermediate_size" if "shared_expert" in path else "intermediate_size")
        return c[kind]
    return H


def canonical(name):
    for prefix in ("model.language_model.", "language_model.model."):
        if name.startswith(prefix):
            return "model." + name[len(prefix):]
    return name[len("language_model."):] if name.startswith("language_model.") else name


def ignored(name):
    return "visual" in name or name.startswith("vision_tower.")


class Quantised(np.ndarray):
    """The dequantised values of an affine module; marks where int8 activations are used."""


def plain(raw, c):
    """Every quantised module becomes one float64 array; everything else is widened."""
    out = {}
    for name, v in raw.items():
        path = name[:-len(".weight")] if name.endswith(".weight") else name
        if name.endswith((".scales", ".biases")):
            continue
        if path + ".scales" in raw:
            scales, biases, n_in = raw[path + ".scales"], raw.get(path + ".biases"), module_inputs(path, c)
            deq = dequantise_codes(v, scales, n_in) if biases is None else dequantise(v, scales, biases, n_in)
            out[name] = deq.view(Quantised)
        else:
            out[name] = v.astype(np.float64)
    return out


def hf_norms(W):
    """MLX stores 1 + w for every norm but the gated one, and conv1d as [C, 4, 1]; bring both to w and [C, 4]."""
    mlx = any("conv1d.weight" in n and v.ndim == 3 and v.shape[-1] == 1 for n, v in W.items())
    for name, v in W.items():
        if "conv1d" in name:
            W[name] = v.reshape(v.shape[0], -1)
        elif mlx and name.endswith(".weight") and "norm" in name and "linear_attn.norm" not in name:
            W[name] = v - 1.0


def gather_experts(W):
    """W[P + "experts"] = (gate [E,I,H], up [E,I,H], down [E,H,I]) from any of the three layouts."""
    for name in [n for n in W if n.endswith("mlp.experts.gate_up_proj")]:
        P = name[:-len(".gate_up_proj")]
        gate, up = np.split(W.pop(name), 2, 1)
        W[P] = (gate, up, W.pop(P + ".down_proj"))
    for name in [n for n in W if n.endswith("mlp.switch_mlp.gate_proj.weight")]:
        P = name[:-len("gate_proj.weight")]
        W[P.replace("switch_mlp.", "experts")] = tuple(W.pop(P + f"{k}_proj.weight") for k in ("gate", "up", "down"))
    for name in [n for n in W if n.endswith("mlp.experts.0.gate_proj.weight")]:
        P = name[:-len(".0.gate_proj.weight")]
        n = sum(1 for k in W if k.startswith(P + ".") and k.endswith(".gate_proj.weight"))
        W[P] = tuple(np.stack([W.pop(f"{P}.{e}.{k}_proj.weight") for e in range(n)]) for k in ("gate", "up", "down"))


def read_qpack_experts(d, c, W, layers):
    """packed_experts/layer_NN.bin: expert e starts at e * expertStride; sections as layout.json says (per layer in
    version 2)."""
    with open(os.path.join(d, "packed_experts", "layout.json")) as f:
        lay = json.load(f)
    for i in layers:
        geometry = lay["layers"][i] if "layers" in lay else lay
        stride, path = geometry["expertStride"], os.path.join(d, "packed_experts", f"layer_{i:02d}.bin")
        with open(path, "rb") as f:
            blob = f.read()
        assert len(blob) == lay["expertCount"] * stride, path
        stack = {}
        for s in geometry["sections"]:
            at = [e * stride + s["offset"] for e in range(lay["expertCount"])]
            stack[f"switch_mlp.{s['name']}"] = np.stack([from_bytes(blob[a:a + s["size"]], s["dtype"], s["shape"])
                                                         for a in at])
        for name, v in plain(stack, c).items():
            W[f"model.layers.{i}.mlp.{name}"] = v


def is_moe(c, i):
    return (c.get("num_experts") or 0) > 0 and i not in (c.get("mlp_only_layers") or []) and \
        (i + 1) % c.get("decoder_sparse_step", 1) == 0


def load(d):
    """(config, weights in the Hugging Face conventions, with experts gathered)."""
    c, raw = text_config(d), {}
    for fn in sorted(os.listdir(d)):
        if fn.endswith(".safetensors") and not fn.startswith("reference"):
            raw.update({canonical(k): v for k, v in read_safetensors(os.path.join(d, fn)).items() if not ignored(k)})
    W = plain(raw, c)
    if os.path.isdir(os.path.join(d, "packed_experts")):
        read_qpack_experts(d, c, W, [i for i in range(c["num_hidden_layers"]) if is_moe(c, i)])
    hf_norms(W)
    gather_experts(W)
    return c, W


# ---- the model -------------------------------------------------------------------------------------------------------

def sig(x): return 1 / (1 + np.exp(-x))
def silu(x): return x * sig(x)
def rms(x, w, eps): return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 + w)


def rope_table(c):
    """Inverse frequencies of the rotary dimensions, and the factor on cos and sin."""
    rp = {k: c[k] for k in ("rope_theta", "partial_rotary_factor") if k in c}
    rp.update(c.get("rope_scaling") or {})
    rp.update(c.get("rope_parameters") or {})
    R = int(c["head_dim"] * rp.get("partial_rotary_factor", 0.25))
    theta = rp["rope_theta"]
    inv = 1.0 / theta ** (np.arange(0, R, 2) / R)
    if rp.get("rope_type", rp.get("type", "default")) != "yarn":
        return inv, 1.0
    s, n = rp["factor"], rp["original_max_position_embeddings"]
    turn = lambda b: R * np.log(n / (2 * np.pi * b)) / (2 * np.log(theta))
    lo, hi = max(np.floor(turn(rp.get("beta_fast", 32))), 0), min(np.ceil(turn(rp.get("beta_slow", 1))), R - 1)
    ramp = np.clip((np.arange(R // 2) - lo) / ((hi - lo) or 0.001), 0, 1)
    return inv / s * ramp + inv * (1 - ramp), rp.get("attention_factor") or 0.1 * np.log(s) + 1


def int8_activation(x):
    """What is left of x after symmetric int8 in groups of 64: scale = max|x| / 127, round half to even."""
    g = np.pad(x, (0, -x.size % 64)).reshape(-1, 64)
    scale = np.abs(g).max(-1, keepdims=True) / 127
    return (np.rint(g / np.where(scale > 0, scale, 1)) * scale).ravel()[:x.size]


def int12(x):
    """Vectors (last axis) as integers of -2047 to 2047 and what one of these counts."""
    scale = np.abs(x).max(-1) / 2047
    return np.rint(x / np.where(scale > 0, scale, 1)[..., None]), scale


def attend(q, K, V):
    """Softmax attention of one query, scaled already."""
    w = K @ q
    w = np.exp(w - w.max())
    return (w / w.sum()) @ V


def attend_integers(q, K, V):
    """The same as the engine's default mode has it: vectors of 12 bits; of each 64 keys probabilities against the largest,
    as integers of 14 bits that carry the values' scales."""
    (q, q_scale), (K, k_scale), (V, v_scale) = int12(q), int12(K), int12(V)
    s = (K @ q) * k_scale * q_scale
    total, out = 0.0, 0.0
    for i in range(0, s.size, 64):
        top, unit = s[i:i + 64].max(), v_scale[i:i + 64].max() / 16383
        p = np.exp(s[i:i + 64] - top)
        w = np.rint(p * (v_scale[i:i + 64] / unit if unit > 0 else 0))
        total += np.exp(top - s.max()) * p.sum()
        out += np.exp(top - s.max()) * unit * (w @ V[i:i + 64])
    return out / total


class Model:
    """step(token) -> (logits, trace); trace = embedding, output of each layer, final norm.

    int8: the engine's default mode. Activations that meet a quantised matrix are int8, except for the router and the
    shared expert's gate; attention is over integers.
    """

    def __init__(self, d, l2_eps=1e-6, int8=False):
        self.c, self.W = load(d)
        self.int8 = int8
        c = self.c
        self.L, self.eps, self.l2_eps = c["num_hidden_layers"], c.get("rms_norm_eps", 1e-6), l2_eps
        every = c.get("full_attention_interval", 4)
        self.attends = ([k == "full_attention" for k in c["layer_types"]] if c.get("layer_types") else
                        [(i + 1) % every == 0 for i in range(self.L)])
        self.inv, self.rope_factor = rope_table(c)
        self.head = self.W.get("lm_head.weight", self.W["model.embed_tokens.weight"])
        self.reset()

    def reset(self):
        self.state, self.mtp_state, self.pos = [dict() for _ in range(self.L)], {}, 0
        self.route_gap = np.inf              # smallest distance between the last chosen expert and the next, in logits

    def step(self, tok):
        x = np.array(self.W["model.embed_tokens.weight"][tok])
        trace = [x]
        for i in range(self.L):
            x = self.layer(x, f"model.layers.{i}.", self.attends[i], self.state[i], self.pos)
            trace.append(x)
        self.pos += 1
        n = rms(x, self.W["model.norm.weight"], self.eps)
        trace.append(n)
        return self.mul(self.head, n), trace

    def mul(self, w, x):
        if self.int8 and isinstance(w, Quantised):
            x = int8_activation(x)
        return np.asarray(w) @ x

    def proj(self, P, name, x):
        return self.mul(self.W[P + name + ".weight"], x)

    def layer(self, x, P, attends, st, pos):
        W = self.W
        h = rms(x, W[P + "input_layernorm.weight"], self.eps)
        x = x + (self.attention(h, P + "self_attn.", st, pos) if attends else self.delta_net(h, P + "linear_attn.", st))
        h = rms(x, W[P + "post_attention_layernorm.weight"], self.eps)
        return x + (self.moe(h, P + "mlp.") if P + "mlp.gate.weight" in W else self.mlp(P + "mlp.", h))

    def mtp(self, hidden, tok, pos):
        """The draft head on (hidden of position t after the final norm, token t+1): (logits, its own hidden)."""
        W = self.W
        e = rms(np.array(W["model.embed_tokens.weight"][tok]), W["mtp.pre_fc_norm_embedding.weight"], self.eps)
        h = rms(hidden, W["mtp.pre_fc_norm_hidden.weight"], self.eps)
        z = self.layer(self.mul(W["mtp.fc.weight"], np.r_[e, h]), "mtp.layers.0.", True, self.mtp_state, pos)
        m = rms(z, W["mtp.norm.weight"], self.eps)
        return self.mul(self.head, m), m

    def delta_net_inputs(self, h, P):
        """The convolution's input [q | k | v], the gate z [Hv, dv], and b and a [Hv]."""
        W, c = self.W, self.c
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        r = hv // hk
        if P + "in_proj_qkvz.weight" not in W:
            return (self.proj(P, "in_proj_qkv", h), self.proj(P, "in_proj_z", h).reshape(hv, dv),
                    self.proj(P, "in_proj_b", h), self.proj(P, "in_proj_a", h))
        by_head = self.proj(P, "in_proj_qkvz", h).reshape(hk, -1)     # Qwen3-Next: grouped by key head
        q, k, v, z = np.split(by_head, [dk, 2 * dk, 2 * dk + r * dv], 1)
        ba = self.proj(P, "in_proj_ba", h).reshape(hk, 2 * r)
        return np.concatenate([q.ravel(), k.ravel(), v.ravel()]), z.reshape(hv, dv), ba[:, :r].ravel(), ba[:, r:].ravel()

    def delta_net(self, h, P, st):
        W, c = self.W, self.c
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        u, z, b, a = self.delta_net_inputs(h, P)
        buf = st.setdefault("conv", np.zeros((c["linear_conv_kernel_dim"], u.size)))
        buf[:-1] = buf[1:].copy()
        buf[-1] = u
        y = silu((W[P + "conv1d.weight"].T * buf).sum(0))
        q, k, v = np.split(y, [hk * dk, 2 * hk * dk])
        q, k, v = q.reshape(hk, dk), k.reshape(hk, dk), v.reshape(hv, dv)
        l2 = lambda t: t / np.sqrt((t * t).sum(-1, keepdims=True) + self.l2_eps)
        q, k = np.repeat(l2(q) * dk ** -0.5, hv // hk, 0), np.repeat(l2(k), hv // hk, 0)
        g = -np.exp(W[P + "A_log"]) * np.logaddexp(0, a + W[P + "dt_bias"])
        S = st.setdefault("S", np.zeros((hv, dk, dv))) * np.exp(g)[:, None, None]
        S = S + k[:, :, None] * ((v - np.einsum("hkv,hk->hv", S, k)) * sig(b)[:, None])[:, None, :]
        st["S"] = S
        o = np.einsum("hkv,hk->hv", S, q)
        o = W[P + "norm.weight"] * o / np.sqrt((o * o).mean(-1, keepdims=True) + self.eps) * silu(z)
        return self.proj(P, "out_proj", o.ravel())

    def attention(self, h, P, st, pos):
        W, c = self.W, self.c
        nh, nk, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        qg = self.proj(P, "q_proj", h).reshape(nh, 2 * d)
        q, gate = rms(qg[:, :d], W[P + "q_norm.weight"], self.eps), qg[:, d:]
        k = rms(self.proj(P, "k_proj", h).reshape(nk, d), W[P + "k_norm.weight"], self.eps)
        k, v = self.rope(k, pos), self.proj(P, "v_proj", h).reshape(nk, d)
        st.setdefault("k", []).append(k)
        st.setdefault("v", []).append(v)
        q, K, V = self.rope(q, pos) * d ** -0.5, np.stack(st["k"]), np.stack(st["v"])
        one = attend_integers if self.int8 else attend
        o = [one(q[i], K[:, i // (nh // nk)], V[:, i // (nh // nk)]) for i in range(nh)]
        return self.proj(P, "o_proj", np.concatenate(o) * sig(gate.ravel()))

    def rope(self, t, pos):
        a = pos * self.inv
        cs, sn, n = np.cos(a) * self.rope_factor, np.sin(a) * self.rope_factor, a.size
        x, y = t[:, :n], t[:, n:2 * n]
        return np.concatenate([x * cs - y * sn, y * cs + x * sn, t[:, 2 * n:]], 1)

    def moe(self, h, P):
        W, c = self.W, self.c
        logits = np.asarray(W[P + "gate.weight"]) @ h
        p = np.exp(logits - logits.max())
        p /= p.sum()
        order = np.argsort(-p, kind="stable")
        n = c["num_experts_per_tok"]
        top, w = order[:n], p[order[:n]]
        if n < p.size:
            self.route_gap = min(self.route_gap, logits[order[n - 1]] - logits[order[n]])
        if c.get("norm_topk_prob", True):
            w = w / w.sum()
        gate, up, down = W[P + "experts"]
        y = sum(we * self.mul(down[e], silu(self.mul(gate[e], h)) * self.mul(up[e], h)) for e, we in zip(top, w))
        return y + sig(np.asarray(W[P + "shared_expert_gate.weight"]) @ h) * self.mlp(P + "shared_expert.", h)

    def mlp(self, P, h):
        W = self.W
        return self.proj(P, "down_proj", silu(self.proj(P, "gate_proj", h)) * self.proj(P, "up_proj", h))


# ---- references ------------------------------------------------------------------------------------------------------

def run(m, ids, n_greedy):
    """All tensors of a reference in float64, in the order of the layers."""
    m.reset()
    names = ["embed"] + [f"layer_{i:02d}" for i in range(m.L)] + ["final_norm"]
    rows, logits = {n: [] for n in names}, []
    for tok in ids:
        lg, trace = m.step(int(tok))
        logits.append(lg)
        for n, x in zip(names, trace):
            rows[n].append(x)
    out = {n: np.stack(x)[None] for n, x in rows.items()}
    out["logits"] = np.stack(logits)[None]
    greedy = [int(logits[-1].argmax())]
    while len(greedy) < n_greedy:
        greedy.append(int(m.step(greedy[-1])[0].argmax()))
    out["greedy"] = np.array([greedy[:n_greedy]], np.int32)
    return out


def write(d, path, ids_from, int8=False):
    ref = read_safetensors(ids_from)
    ids, n = ref["input_ids"], ref["greedy"].shape[1] if "greedy" in ref else 0
    out = run(Model(d, int8=int8), ids[0], n)
    write_safetensors(path, {"input_ids": ids.astype(np.int32),
                             **{k: v if v.dtype == np.int32 else v.astype(np.float32) for k, v in out.items()}})


def compare(d, tolerance=1e-3):
    m, ref = Model(d), read_safetensors(os.path.join(d, "reference.safetensors"))
    out = run(m, ref["input_ids"][0], ref["greedy"].shape[1])
    worst = {n: float(np.abs(x - ref[n]).max()) for n, x in out.items() if n != "greedy"}
    same = out["greedy"].tolist() == ref["greedy"].tolist()
    bad = [n for n, x in worst.items() if not x <= tolerance] + ([] if same else ["greedy"])
    layers = max(x for n, x in worst.items() if n != "logits")
    print(f"{os.path.basename(os.path.normpath(d)):22s} {'BAD' if bad else 'ok '} worst layer {layers:.1e} logits "
          f"{worst['logits']:.1e} (up to {np.abs(ref['logits']).max():.1f}), greedy {'same' if same else 'DIFFERS'}, "
          f"closest route {m.route_gap:.1e}" + (f", first bad: {bad[0]}" if bad else ""), flush=True)
    return not bad


def main():
    args = sys.argv[1:]
    if args and args[0] == "--write":
        return write(args[1], args[2], args[3] if len(args) > 3 else args[2])
    sys.exit(0 if args and all([compare(d) for d in args]) else 1)


if __name__ == "__main__":
    main()
