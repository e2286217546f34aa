#!/usr/bin/env python3
"""Make the tiny reference models in cases/ with the public `transformers` package.

Every case is a folder:
  config.json, *.safetensors          the checkpoint, in a Hugging Face or MLX layout
  reference.safetensors               input_ids [1,T]; embed, layer_00..layer_NN (after each decoder layer),
                                      final_norm [1,T,H]; logits [1,T,V]; greedy [1,G] (G tokens after the prompt)
  reference.json                      how it was made
A folder NAME-mlxTAG holds the model NAME in the MLX layout; its reference is that of the *dequantised* weights.

usage: make_cases.py OUT [NAME ...]        all cases, or those models that are named
Runs on the CPU in float32; needs torch, transformers >= 5, safetensors, numpy. Check the result with numpy_forward.py.
The folders *-a* came first and hold 83 tokens; they are made by the same functions with other seeds (see README.md).
"""
import json, os, shutil, sys
import numpy as np
import torch
from safetensors.torch import save_file

torch.set_grad_enabled(False)
torch.set_num_threads(1)
N_GREEDY = 12
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

# ---- the models ------------------------------------------------------------------------------------------------------

BASE = dict(rms_norm_eps=1e-6, linear_conv_kernel_dim=4, max_position_embeddings=4096, tie_word_embeddings=False)


def rope(theta=1e7, part=0.25, **more):
    return dict(rope_type="default", rope_theta=theta, partial_rotary_factor=part) | more


def yarn(theta=1e4, part=0.5, **more):
    return rope(theta, part, rope_type="yarn", factor=4.0, original_max_position_embeddings=1024, **more)


def attn(q, kv, d):
    return dict(num_attention_heads=q, num_key_value_heads=kv, head_dim=d)


def delta(hk, hv, dk, dv):
    return dict(linear_num_key_heads=hk, linear_num_value_heads=hv, linear_key_head_dim=dk, linear_value_head_dim=dv)


def moe(n, k, width, shared):
    return dict(num_experts=n, num_experts_per_tok=k, moe_intermediate_size=width, shared_expert_intermediate_size=shared)


def layers(text):
    """"llfl": l is a linear (delta-net) layer, f full attention."""
    kinds = {"l": "linear_attention", "f": "full_attention"}
    return dict(num_hidden_layers=len(text), layer_types=[kinds[x] for x in text])


# name: (class, config, seed, tokens, how it is stored, [MLX variants]).
# Storage: dtype; f32 (names that stay float32); split (one tensor per expert); prefix; shards; flat (the field style of
# the first Qwen3-Next releases: rope_theta and rope_scaling at the top, no layer_types); nested (text_config, as in the
# multimodal releases, with a vision tensor to ignore).
# MLX variants: tag, bits, group, options: bits_of / group_of {part of a module's name: value}, scales (dtype).
CASES = {
    # Three value heads per key head; a dense layer in the middle; probabilities not renormalised; odd vocabulary.
    "next-b": ("qwen3_next", BASE | layers("lllf") | attn(4, 2, 16) | delta(2, 6, 16, 16) | moe(10, 3, 32, 48) | dict(
        vocab_size=101, hidden_size=64, intermediate_size=80, norm_topk_prob=False, mlp_only_layers=[1],
        rope_parameters=rope(5e6, 0.5)), 11, 33, dict(dtype=BF16, split=True, shards=3, flat=True),
        [("4", 4, 64, dict(router=8, group_of={"down_proj": 32, "out_proj": 32})), ("3g32", 3, 32, {})]),
    # Every second layer is attention, every second is sparse; YaRN in the old rope_scaling style; float16 file.
    "next-c": ("qwen3_next", BASE | layers("lflf") | attn(2, 1, 32) | delta(2, 4, 16, 32) | moe(6, 2, 32, 32) | dict(
        vocab_size=97, hidden_size=32, intermediate_size=48, norm_topk_prob=True, decoder_sparse_step=2,
        rope_parameters=yarn(1e5, 0.5)), 12, 40, dict(dtype=F16, split=True, flat=True),
        [("8g32", 8, 32, dict(scales=F16))]),
    # Irregular layer pattern that starts and ends with attention; as many key as query heads and as many value as key
    # heads; wide values; hidden size 96; float32 file.
    "q35moe-b": ("qwen3_5_moe", BASE | layers("fllf") | attn(3, 3, 16) | delta(2, 2, 16, 32) | moe(4, 2, 32, 32) | dict(
        vocab_size=131, hidden_size=96, rope_parameters=rope(1e6, 0.5)), 13, 24, dict(dtype=F32),
        [("mixed", 4, 32, dict(router=8, bits_of={"down_proj": 6, "lm_head": 8, "v_proj": 5, "up_proj": 3, "embed": 2})),
         ("2g32", 2, 32, dict(router=8, scales=F32))]),
    # The multimodal layout of the releases, one tensor per expert as the FP8 exports have, shards, YaRN; A_log and the
    # gated norm in float32 as in 3.5.
    "q35moe-c": ("qwen3_5_moe", BASE | layers("lllf") | attn(4, 1, 32) | delta(1, 4, 32, 16) | moe(12, 4, 32, 32) | dict(
        vocab_size=113, hidden_size=64, rope_parameters=yarn(1e4, 0.5, mrope_section=[2, 3, 3], mrope_interleaved=True)),
        14, 37, dict(dtype=BF16, f32=("A_log", "linear_attn.norm"), split=True, nested=True, shards=2),
        [("6", 6, 64, dict(group_of={"down_proj": 32})), ("5g32s", 5, 32, dict(shards=2))]),
    # Groups of 128.
    "q35moe-d": ("qwen3_5_moe", BASE | layers("lf") | attn(4, 2, 32) | delta(2, 4, 32, 32) | moe(6, 2, 128, 128) | dict(
        vocab_size=103, hidden_size=128, rope_parameters=rope()), 15, 31, None, [("4g128", 4, 128, dict(router=8))]),
    # Tied embeddings, dense, YaRN.
    "q35dense-b": ("qwen3_5", BASE | layers("lllfl") | attn(2, 1, 32) | delta(1, 3, 32, 32) | dict(
        tie_word_embeddings=True, vocab_size=257, hidden_size=64, intermediate_size=96, rope_parameters=yarn(1e6)),
        16, 35, dict(dtype=BF16, nested=True), [("4g32", 4, 32, {}), ("bf16", None, 0, {})]),
    # Hidden size 96 with groups of 64: the matrices with 96 inputs stay unquantised, as mlx-lm leaves them.
    "q35dense-c": ("qwen3_5", BASE | layers("llf") | attn(4, 1, 16) | delta(2, 4, 16, 16) | dict(
        vocab_size=97, hidden_size=96, intermediate_size=64, rope_parameters=rope(1e4, 1.0)), 17, 24, dict(dtype=F16),
        [("8", 8, 64, {})]),
}


def build(kind, cfg):
    if kind == "qwen3_next":
        from transformers import Qwen3NextConfig as C, Qwen3NextForCausalLM as M
    elif kind == "qwen3_5_moe":
        from transformers import Qwen3_5MoeTextConfig as C, Qwen3_5MoeForCausalLM as M
    else:
        from transformers import Qwen3_5TextConfig as C, Qwen3_5ForCausalLM as M
    conf = C(**cfg)
    conf._attn_implementation = "eager"
    return conf, M(conf).float().eval()


def randomise(model, seed):
    """Weights with enough spread that a wrong order, sign or norm shows in every layer."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith("A_log"):
            p.copy_(torch.log(torch.empty_like(p).uniform_(0.5, 8.0, generator=g)))
        elif name.endswith("dt_bias"):
            p.copy_(torch.empty_like(p).uniform_(-3.0, 1.0, generator=g))
        elif p.dim() == 1:
            base = 1.0 if "linear_attn.norm" in name else 0.0
            p.copy_(base + 0.2 * torch.randn(p.shape, generator=g))
        elif "conv1d" in name:
            p.copy_(0.5 * torch.randn(p.shape, generator=g))
        elif "embed_tokens" in name:
            p.copy_(torch.randn(p.shape, generator=g))
        else:
            gain = 3.0 if ("mlp.gate.weight" in name or "shared_expert_gate" in name) else 1.2
            p.copy_(gain * torch.randn(p.shape, generator=g) / p.shape[-1] ** 0.5)


def run(model, ids):
    """The reference tensors of one prompt. No cache on purpose: the plainest path."""
    out, hooks, base = {}, [], model.model

    def keep(name):
        def f(mod, args, res):
            out[name] = (res[0] if isinstance(res, tuple) else res).detach().clone().contiguous()
        return f

    hooks.append(base.embed_tokens.register_forward_hook(keep("embed")))
    for i, layer in enumerate(base.layers):
        hooks.append(layer.register_forward_hook(keep(f"layer_{i:02d}")))
    hooks.append(base.norm.register_forward_hook(keep("final_norm")))
    out["logits"] = model(input_ids=ids, use_cache=False).logits.detach().clone().contiguous()
    for h in hooks:
        h.remove()
    cur = ids
    for _ in range(N_GREEDY):
        nxt = model(input_ids=cur, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        cur = torch.cat([cur, nxt], 1)
    out["greedy"] = cur[:, ids.shape[1]:].to(torch.int32).contiguous()
    out["input_ids"] = ids.to(torch.int32).contiguous()
    return out


# ---- Hugging Face layouts --------------------------------------------------------------------------------------------

def stored(model, how, tied):
    """The state dict in its storage types; `model` then holds the stored values."""
    sd = {}
    for name, w in model.state_dict().items():
        t = w.to(F32 if any(k in name for k in how.get("f32", ())) else how["dtype"])
        w.copy_(t.float())
        if not (tied and name == "lm_head.weight"):
            sd[name] = t.contiguous()
    return sd


def split_experts(sd):
    out = {}
    for name, w in sd.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            for e in range(w.shape[0]):
                gate, up = w[e].chunk(2)
                out[name.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate.contiguous()
                out[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = up.contiguous()
        elif name.endswith("mlp.experts.down_proj"):
            for e in range(w.shape[0]):
                out[name.replace("down_proj", f"{e}.down_proj.weight")] = w[e].contiguous()
        else:
            out[name] = w
    return out


def hf_config(kind, conf, how, cfg):
    c = conf.to_dict()
    cls = {"qwen3_next": "Qwen3Next", "qwen3_5_moe": "Qwen3_5Moe", "qwen3_5": "Qwen3_5"}[kind]
    c["architectures"] = [cls + "ForCausalLM"]
    for n in (2, 3, 4):
        if c["layer_types"] == [("full" if (i + 1) % n == 0 else "linear") + "_attention"
                                for i in range(cfg["num_hidden_layers"])]:
            c["full_attention_interval"] = n
    if how.get("flat"):
        rp = c.pop("rope_parameters")
        c["rope_theta"], c["partial_rotary_factor"] = rp["rope_theta"], rp["partial_rotary_factor"]
        c["rope_scaling"] = None
        if rp["rope_type"] == "yarn":
            c["rope_scaling"] = {"type": "yarn", "factor": rp["factor"],
                                 "original_max_position_embeddings": rp["original_max_position_embeddings"]}
        del c["layer_types"]
    if how.get("nested"):
        c = {"architectures": [cls + "ForConditionalGeneration"], "model_type": kind, "image_token_id": 5,
             "tie_word_embeddings": cfg["tie_word_embeddings"], "text_config": c, "vision_config": {"depth": 1}}
    return c


def to_hf(kind, conf, model, how, cfg):
    sd = stored(model, how, cfg["tie_word_embeddings"])
    if how.get("split"):
        sd = split_experts(sd)
    if how.get("nested"):
        sd = {k.replace("model.", "model.language_model.", 1) if k.startswith("model.") else k: v for k, v in sd.items()}
        sd["model.visual.patch_embed.proj.weight"] = torch.ones(4, 3, 2, 2, dtype=BF16)
    return sd, hf_config(kind, conf, how, cfg)


# ---- MLX layout ------------------------------------------------------------------------------------------------------

def affine(w, bits, group, dtype):
    """MLX's quantiser: w [..., in] -> (uint32 words, scales, biases, dequantised float32)."""
    x = w.reshape(-1, w.shape[-1] // group, group).float()
    n = 2 ** bits - 1
    lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    low_edge = lo.abs() > hi.abs()
    s = ((hi - lo) / n).clamp_min(1e-7)
    s = torch.where(low_edge, s, -s)
    edge = torch.where(low_edge, lo, hi)
    q0 = (edge / s).round()
    s = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, 1), s)
    b = torch.where(q0 != 0, edge, torch.zeros_like(edge))
    q = ((x - b) / s).round().clamp(0, n)
    s, b = s.to(dtype), b.to(dtype)
    deq = (q.double() * s.double() + b.double()).float().reshape(w.shape)
    rows = q.reshape(-1, w.shape[-1]).numpy().astype(np.uint8)
    stream = np.unpackbits(rows[..., None], axis=-1, bitorder="little")[..., :bits].reshape(rows.shape[0], -1)
    words = np.packbits(stream, axis=-1, bitorder="little").view(np.uint32)
    words = torch.from_numpy(words.view(np.int32).copy()).view(torch.uint32)
    lead = w.shape[:-1]
    return words.reshape(*lead, -1), s.reshape(*lead, -1), b.reshape(*lead, -1), deq


class Mlx:
    """Collects the tensors of an MLX checkpoint and the per-module entries of its config."""

    def __init__(self, prefix, bits, group, opt):
        self.prefix, self.bits, self.group, self.opt, self.out, self.over = prefix, bits, group, opt, {}, {}
        self.dtype = opt.get("scales", BF16)

    def choice(self, path):
        bits, group = self.bits, self.group
        if "router" in self.opt and path.endswith(("mlp.gate", "shared_expert_gate")):
            bits = self.opt["router"]
        for part, b in self.opt.get("bits_of", {}).items():
            bits = b if part in path else bits
        for part, g in self.opt.get("group_of", {}).items():
            group = g if part in path else group
        return bits, group

    def matrix(self, path, w):
        """Emit one module; returns the values that a reader gets back."""
        bits, group = self.choice(path)
        if bits is None or w.shape[-1] % group:
            self.out[self.prefix + path + ".weight"] = w.to(self.dtype).contiguous()
            return w.to(self.dtype).float()
        q, s, b, deq = affine(w, bits, group, self.dtype)
        for part, t in (("weight", q), ("scales", s), ("biases", b)):
            self.out[f"{self.prefix}{path}.{part}"] = t.contiguous()
        if (bits, group) != (self.bits, self.group):
            self.over[self.prefix + path] = {"group_size": group, "bits": bits}
        return deq

    def other(self, name, w):
        """Norms hold 1 + w, except the gated one; the convolution is [C, 4, 1]; A_log stays float32."""
        if name.endswith("conv1d.weight"):
            t = w.to(self.dtype)
            self.out[self.prefix + name] = t.transpose(1, 2).contiguous()
            return t.float()
        shift = 1.0 if name.endswith("norm.weight") and "linear_attn.norm" not in name else 0.0
        t = w if name.endswith("A_log") else (w + shift).to(self.dtype)
        self.out[self.prefix + name] = t.contiguous()
        return t.float() - shift


def to_mlx(kind, conf, model, how, variant, cfg):
    tag, bits, group, opt = variant
    m = Mlx("" if kind == "qwen3_next" else "language_model.", bits, group, opt)
    for name, w in model.state_dict().items():
        if cfg["tie_word_embeddings"] and name == "lm_head.weight":
            continue
        switch = name.split("experts.")[0] + "switch_mlp."
        if name.endswith("experts.gate_up_proj"):
            gate, up = w.chunk(2, 1)
            w.copy_(torch.cat([m.matrix(switch + "gate_proj", gate.contiguous()),
                               m.matrix(switch + "up_proj", up.contiguous())], 1))
        elif name.endswith("experts.down_proj"):
            w.copy_(m.matrix(switch + "down_proj", w))
        elif w.dim() == 2:
            w.copy_(m.matrix(name[:-len(".weight")], w.clone()))
        else:
            w.copy_(m.other(name, w.clone()))
    c = hf_config(kind, conf, {k: v for k, v in (how or {}).items() if k != "nested"}, cfg)
    if kind != "qwen3_next":
        c = {"architectures": [c["architectures"][0].replace("CausalLM", "ConditionalGeneration")], "model_type": kind,
             "text_config": c, "tie_word_embeddings": cfg["tie_word_embeddings"]}
    if bits is not None:
        q = {"group_size": group, "bits": bits, "mode": "affine", **m.over}
        c |= {"quantization": q, "quantization_config": q}
    return m.out, c


# ---- writing ---------------------------------------------------------------------------------------------------------

def save(folder, tensors, shards, fmt, conf, ref, note):
    """Shards are cut by count in name order, so that a layer's experts lie in several files."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    names = sorted(tensors)
    if shards == 1:
        files = {"model.safetensors": names}
    else:
        step = -(-len(names) // shards)
        files = {f"model-{i + 1:05d}-of-{shards:05d}.safetensors": names[i * step:(i + 1) * step] for i in range(shards)}
        index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())},
                 "weight_map": {n: f for f, part in files.items() for n in part}}
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump(index, f, indent=1)
    for fn, part in files.items():
        save_file({n: tensors[n] for n in part}, os.path.join(folder, fn), metadata={"format": fmt})
    save_file(ref, os.path.join(folder, "reference.safetensors"))
    for fn, data in (("config.json", conf), ("reference.json", note)):
        with open(os.path.join(folder, fn), "w") as f:
            json.dump(data, f, indent=1)
            f.write("\n")
    for fn in os.listdir(folder):
        os.chmod(os.path.join(folder, fn), 0o644)
    print(os.path.basename(folder), sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), flush=True)


def make(out, name, kind, cfg, seed, n_tokens, how, variants):
    import transformers
    conf, model = build(kind, cfg)
    randomise(model, seed)
    ids = torch.randint(0, cfg["vocab_size"], (1, n_tokens), generator=torch.Generator().manual_seed(1000 + seed))
    note = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, CPU float32, eager",
            "seed": seed, "tolerance": {"layer_max_abs": 1e-3, "logits_max_abs": 1e-3, "greedy": "equal"}}
    start = {k: v.clone() for k, v in model.state_dict().items()}
    if how:
        tensors, c = to_hf(kind, conf, model, how, cfg)
        save(os.path.join(out, name), tensors, how.get("shards", 1), "pt", c, run(model, ids), note)
    for variant in variants:
        model.load_state_dict(start)
        tensors, c = to_mlx(kind, conf, model, how, variant, cfg)
        save(os.path.join(out, f"{name}-mlx{variant[0]}"), tensors, variant[3].get("shards", 1), "mlx", c, run(model, ids),
             {**note, "quantisation": c.get("quantization"), "note": "outputs of the dequantised weights in float32"})


def main():
    out, wanted = sys.argv[1], sys.argv[2:]
    for name, case in CASES.items():
        if not wanted or name in wanted:
            make(out, name, *case)


if __name__ == "__main__":
    main()
