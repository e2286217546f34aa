#!/usr/bin/env python3
"""Make the three golden models: tiny checkpoints whose every weight follows from its name, with draft (MTP) heads.

The weights come from a hash of the tensor's name (FNV-1a) and a counter (splitmix64), so that anybody can make the same
models without a download. The values in GOLDEN were computed elsewhere, by a program that had been compared with mlx-lm;
this script writes the models, runs numpy_forward.py on them and fails unless every printed value is met.

usage: make_golden.py OUT [--no-write]     writes OUT/golden-{next-moe,q35-moe,q35-dense}: config.json,
                                           model.safetensors (float32), reference.safetensors (float64 values as float32)
reference.safetensors holds, beside the usual tensors, the draft head's: mtp_logits [1,T-1,V] over the pairs
(hidden of position t, token t+1), and mtp_draft [1,2]: the argmax after (hidden of the last position, its greedy
token), then with the head's own hidden and that draft recycled.
"""
import json, os, sys
import numpy as np
import numpy_forward as nf

H, L, VOCAB, EXPERTS, WIDTH = 32, 4, 64, 8, 16
TOKENS = [1, 5, 9, 42, 7, 63, 3, 17, 0, 2, 11, 30]
N_GREEDY = 8

GOLDEN = {
    "next-moe": {
        "embed1": [-0.191163, -0.487673, 0.580660, -0.347006], "A_log": [0.842159, -0.852289, 1.169572, 0.639376],
        "layers": [([0.875332, -0.553222, -0.424339, 1.680145], 352.455610),
                   ([-0.308873, -0.571978, -1.074846, 1.374777], 502.500225),
                   ([-0.637514, -0.210777, -2.491926, 1.615334], 594.749439),
                   ([0.630668, -0.542358, -2.984856, 2.327171], 683.778092)],
        "final_norm": [0.293752, -0.267158, -1.707511, 1.498242],
        "logits": [-1.163761, -2.225043, 0.448600, 2.134860, 0.706160, -0.513979], "sum": 685.817075,
        "argmax": [45, 23, 37, 33, 6, 6, 13, 52, 25, 33, 24, 52],
        "mtp": [-0.591567, 0.073776, 1.201977, 0.692912, 0.256858, -0.419177],
        "mtp_argmax": [15, 33, 0, 9, 17, 0, 21, 18, 46, 46, 35],
        "draft1": ([1.386330, -0.111829, -0.905823, -0.940984], 11),
        "draft2": ([0.449552, -1.106676, -1.428762, -0.801196], 46),
        "mlx_layer3": [0.630677, -0.542351, -2.984850, 2.327171],
        "mlx_logits": [-1.163763, -2.225059, 0.448613, 2.134863, 0.706147, -0.513984], "mlx_sum": 685.816876},
    "q35-moe": {
        "embed1": [0.542660, -0.741060, 0.835897, 0.877476], "A_log": [1.336284, 0.803869, -0.655380, 0.741839],
        "layers": [([0.782071, 1.430968, -1.367221, 0.646038], 418.217324),
                   ([1.344500, 2.696951, -1.969601, 0.299337], 558.637351),
                   ([1.235863, 4.894831, -0.435605, 1.725633], 762.426673),
                   ([2.562723, 5.406817, 0.280624, 1.422668], 816.207622)],
        "final_norm": [0.779710, 1.751724, 0.096292, 0.568243],
        "logits": [0.012870, -0.481603, 1.221223, 0.219149, -0.701507, -0.299492], "sum": 678.166776,
        "argmax": [60, 60, 61, 46, 5, 10, 55, 18, 38, 63, 38, 47],
        "mtp": [-0.656434, 0.105493, 1.464019, 0.029440, -0.480210, -0.505047],
        "mtp_argmax": [35, 26, 32, 33, 11, 18, 57, 22, 30, 34, 15],
        "draft1": ([0.415557, 0.817289, -0.852689, 0.223822], 9),
        "draft2": ([-0.689086, 1.097851, 0.269646, -1.680280], 50),
        "mlx_layer3": [2.562665, 5.406830, 0.280585, 1.422688],
        "mlx_logits": [0.012876, -0.481616, 1.221232, 0.219151, -0.701507, -0.299494], "mlx_sum": 678.167066},
    "q35-dense": {
        "layers": [([-0.800708, 2.351669, -0.252328, 0.601587], 374.713414),
                   ([-1.376189, 3.140378, -0.494306, 0.367503], 529.696418),
                   ([-0.115501, 3.703721, -1.681040, 2.117584], 640.216145),
                   ([-0.095591, 4.625669, -0.956019, 3.323285], 678.184691)],
        "final_norm": [-0.034052, 1.754639, -0.384079, 1.554130],
        "logits": [2.208927, -0.034385, 1.269728, -0.335173, -0.285442, 0.189616], "sum": 675.131486,
        "argmax": [35, 51, 32, 26, 52, 21, 33, 19, 32, 26, 27, 0],
        "mtp": [-0.502512, -0.416593, 1.110141, 1.575099, -0.702694, -0.035969],
        "mtp_argmax": [61, 11, 8, 33, 27, 18, 57, 39, 25, 44, 9],
        "draft1": ([-2.324464, -0.639515, 0.268947, -0.780039], 57),
        "draft2": ([-0.282903, -0.803099, 1.224302, -0.369801], 41),
        "mlx_layer3": [-0.095653, 4.626017, -0.955785, 3.323472],
        "mlx_logits": [2.208853, -0.034486, 1.269788, -0.335121, -0.285557, 0.189677], "mlx_sum": 675.131924},
}


def value_range(name, shape):
    if name.endswith("linear_attn.norm.weight"):
        return 0.75, 1.25
    if name.endswith("A_log"):
        return -1.0, 1.5
    if name.endswith("dt_bias"):
        return -1.0, 1.0
    if "conv1d" in name:
        return -0.6, 0.6
    if "norm" in name:
        return -0.25, 0.25
    if "embed_tokens" in name:
        return -1.0, 1.0
    return -2 / shape[-1] ** 0.5, 2 / shape[-1] ** 0.5


def tensor(name, shape):
    h = 0xcbf29ce484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001b3 % 2 ** 64
    with np.errstate(over="ignore"):
        x = np.uint64(h) + np.arange(1, np.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    lo, hi = value_range(name, shape)
    return (lo + (hi - lo) * ((x >> np.uint64(40)).astype(np.float64) / 2 ** 24)).astype(np.float32).reshape(shape)


def ffn_shapes(kind):
    if kind == "q35-dense":
        return {"gate_proj.weight": [WIDTH, H], "up_proj.weight": [WIDTH, H], "down_proj.weight": [H, WIDTH]}
    s = {"gate.weight": [EXPERTS, H], "shared_expert_gate.weight": [1, H]}
    for k, shape in (("gate", [WIDTH, H]), ("up", [WIDTH, H]), ("down", [H, WIDTH])):
        s[f"shared_expert.{k}_proj.weight"] = shape
        if kind == "next-moe":
            s |= {f"experts.{e}.{k}_proj.weight": shape for e in range(EXPERTS)}
    if kind == "q35-moe":
        s |= {"experts.gate_up_proj": [EXPERTS, 2 * WIDTH, H], "experts.down_proj": [EXPERTS, H, WIDTH]}
    return s


def layer_shapes(kind, attends):
    s = {"input_layernorm.weight": [H], "post_attention_layernorm.weight": [H]}
    s |= {"mlp." + k: v for k, v in ffn_shapes(kind).items()}
    if attends:
        return s | {"self_attn." + k: v for k, v in {
            "q_proj.weight": [128, H], "k_proj.weight": [32, H], "v_proj.weight": [32, H], "o_proj.weight": [H, 64],
            "q_norm.weight": [16], "k_norm.weight": [16]}.items()}
    split = {"in_proj_qkvz.weight": [96, H], "in_proj_ba.weight": [8, H]} if kind == "next-moe" else {
        "in_proj_qkv.weight": [64, H], "in_proj_z.weight": [32, H], "in_proj_b.weight": [4, H], "in_proj_a.weight": [4, H]}
    return s | {"linear_attn." + k: v for k, v in (split | {
        "conv1d.weight": [64, 1, 4], "A_log": [4], "dt_bias": [4], "norm.weight": [8], "out_proj.weight": [H, 32]}).items()}


def shapes(kind):
    trunk = "model." if kind == "next-moe" else "model.language_model."
    s = {trunk + "embed_tokens.weight": [VOCAB, H], trunk + "norm.weight": [H], "lm_head.weight": [VOCAB, H]}
    for i in range(L):
        s |= {f"{trunk}layers.{i}.{k}": v for k, v in layer_shapes(kind, i == 3).items()}
    s |= {"mtp.fc.weight": [H, 2 * H], "mtp.pre_fc_norm_embedding.weight": [H], "mtp.pre_fc_norm_hidden.weight": [H],
          "mtp.norm.weight": [H]}
    return s | {"mtp.layers.0." + k: v for k, v in layer_shapes(kind, True).items()}


def config(kind):
    c = dict(vocab_size=VOCAB, hidden_size=H, num_hidden_layers=L, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-6, full_attention_interval=4,
             attention_bias=False, tie_word_embeddings=False, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4)
    sparse = dict(num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=WIDTH,
                  shared_expert_intermediate_size=WIDTH)
    if kind == "next-moe":
        return {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"} | c | sparse | dict(
            intermediate_size=WIDTH, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=1e7,
            rope_scaling=None, partial_rotary_factor=0.25)
    mt = "qwen3_5_moe" if kind == "q35-moe" else "qwen3_5"
    c |= sparse if kind == "q35-moe" else dict(intermediate_size=WIDTH)
    c |= dict(model_type=mt + "_text", mtp_num_hidden_layers=1, attn_output_gate=True, mamba_ssm_dtype="float32",
              rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25,
                                   mrope_section=[1, 1, 0], mrope_interleaved=True))
    cls = "Qwen3_5MoeForConditionalGeneration" if kind == "q35-moe" else "Qwen3_5ForConditionalGeneration"
    return {"architectures": [cls], "model_type": mt, "tie_word_embeddings": False, "text_config": c}


def check(what, got, want, digits=1.5e-6):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.all(np.abs(got - want) <= digits):
        sys.exit(f"{what}: expected {want}, found {got}")


def drafts(m, out):
    """(logits over the pairs, first draft, its logits, second draft, its logits); the trunk is not needed any more."""
    hidden, pairs = out["final_norm"][0], []
    for t in range(len(TOKENS) - 1):
        pairs.append(m.mtp(hidden[t], TOKENS[t + 1], t)[0])
    first, own = m.mtp(hidden[-1], int(out["logits"][0, -1].argmax()), len(TOKENS) - 1)
    second, _ = m.mtp(own, int(first.argmax()), len(TOKENS))
    return np.stack(pairs), first, second


def confirm(kind, d):
    """Run the model, compare every golden value, and return the reference tensors."""
    want, m = GOLDEN[kind], nf.Model(d)
    out = nf.run(m, TOKENS, N_GREEDY)
    if "embed1" in want:
        check("embed", m.W["model.embed_tokens.weight"][1][:4], want["embed1"])
        check("A_log", m.W["model.layers.0.linear_attn.A_log"], want["A_log"])
    for i, (head, total) in enumerate(want["layers"]):
        check(f"{kind} layer {i}", out[f"layer_{i:02d}"][0, -1, :4], head)
        check(f"{kind} layer {i} sum", np.abs(out[f"layer_{i:02d}"]).sum(), total, 2e-5)
    check("final norm", out["final_norm"][0, -1, :4], want["final_norm"])
    check("logits", out["logits"][0, -1, :6], want["logits"])
    check("sum of logits", np.abs(out["logits"]).sum(), want["sum"], 2e-5)
    check("argmax", out["logits"][0].argmax(-1), want["argmax"])
    pairs, first, second = drafts(m, out)
    check("mtp logits", pairs[-1, :6], want["mtp"])
    check("mtp argmax", pairs.argmax(-1), want["mtp_argmax"])
    for what, got in (("draft1", first), ("draft2", second)):
        check(what, got[:4], want[what][0])
        check(what + " argmax", got.argmax(), want[what][1])
    mlx = nf.run(nf.Model(d, l2_eps=8e-6), TOKENS, 1)          # mlx-lm's placement of the epsilon: dk * 1e-6
    check("mlx layer 3", mlx["layer_03"][0, -1, :4], want["mlx_layer3"])
    check("mlx logits", mlx["logits"][0, -1, :6], want["mlx_logits"])
    check("mlx sum", np.abs(mlx["logits"]).sum(), want["mlx_sum"], 2e-5)
    ref = {"input_ids": np.array([TOKENS], np.int32)}
    ref |= {k: v if v.dtype == np.int32 else v.astype(np.float32) for k, v in out.items()}
    return ref | {"mtp_logits": pairs[None].astype(np.float32),
                  "mtp_draft": np.array([[first.argmax(), second.argmax()]], np.int32)}


def main():
    for kind in GOLDEN:
        d = os.path.join(sys.argv[1], "golden-" + kind)
        if "--no-write" not in sys.argv:
            os.makedirs(d, exist_ok=True)
            nf.write_safetensors(os.path.join(d, "model.safetensors"), {n: tensor(n, s) for n, s in shapes(kind).items()})
            with open(os.path.join(d, "config.json"), "w") as f:
                json.dump(config(kind), f, indent=1)
                f.write("\n")
        ref = confirm(kind, d)
        if "--no-write" not in sys.argv:
            nf.write_safetensors(os.path.join(d, "reference.safetensors"), ref)
        print(f"{os.path.basename(d)}: every golden value met")


if __name__ == "__main__":
    main()
