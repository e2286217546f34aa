#!/usr/bin/env python3
"""Converts checkpoints with the command line and checks every byte of the containers against the sources.

Nothing of the project's own code takes part in the checks: safetensors headers are read here, the quantiser is MLX's
algorithm in numpy, CRC-32C is computed from its polynomial, SHA-256 comes from hashlib.

usage: check_repack.py PROGRAM [--kills N] [SOURCE ...]
  PROGRAM    the swiftlet command; SOURCE: checkpoint directories (default: all of tests/oracle/cases)
  --kills N  how many conversions to kill at a random moment (default 10)
The last line says "N passed, N failed".
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors import safe_open

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CASES = os.path.join(ROOT, "tests", "oracle", "cases")
PROJ = ("gate_proj", "up_proj", "down_proj")
PARTS = ("weight", "scales", "biases")
SIZE = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "I32": 4}
passed = failed = 0


# ---- independent tools -----------------------------------------------------------------------------------------------

def crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)  # 0x1EDC6F41 mirrored
        table.append(i)
    return table


CRC = np.array(crc_table(), dtype=np.uint32)
assert CRC[1] == 0xF26B8303


SEGMENT = 64  # bytes that are walked one after the other; segments go side by side and are put together by shifts


def step(c, byte=0):
    """The register after one byte more (of zero: a shift, which is linear)."""
    return CRC[(c ^ byte) & 0xFF] ^ (c >> np.uint32(8))


@functools.lru_cache(None)
def shift_table(log2):
    """What 2 ** log2 bytes of zero make of each byte of the register."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    bits = shift(shift(bits, log2 - 1), log2 - 1) if log2 else step(bits)
    table = np.zeros((4, 256), dtype=np.uint32)
    for i in range(32):
        table[i // 8, np.arange(256) >> i % 8 & 1 == 1] ^= bits[i]
    return table


def shift(c, log2):
    t = shift_table(log2)
    return t[0][c & 0xFF] ^ t[1][c >> 8 & 0xFF] ^ t[2][c >> 16 & 0xFF] ^ t[3][c >> 24]


def crc32c(blobs):
    """The checksums of blobs of one length, side by side."""
    n, size = len(blobs), len(blobs[0])
    segments = 1 << max(0, -(-size // SEGMENT) - 1).bit_length()
    a = np.zeros((n, segments * SEGMENT), dtype=np.uint8)  # zeros in front do not change a register that is zero
    for row, blob in zip(a, blobs):
        row[segments * SEGMENT - size:] = np.frombuffer(blob, dtype=np.uint8)
    c = np.zeros((n, segments), dtype=np.uint32)
    for column in np.ascontiguousarray(a.reshape(n, segments, SEGMENT).transpose(2, 0, 1)):
        c = step(c, column)
    log2 = SEGMENT.bit_length() - 1
    while c.shape[1] > 1:
        c, log2 = shift(c[:, 0::2], log2) ^ c[:, 1::2], log2 + 1
    begin = np.array([0xFFFFFFFF], dtype=np.uint32)
    for i in range(size.bit_length()):
        begin = shift(begin, i) if size >> i & 1 else begin
    return ["%08x" % v for v in c[:, 0] ^ begin ^ np.uint32(0xFFFFFFFF)]


assert crc32c([b"123456789"]) == ["e3069283"]  # check values of the CRC catalogue and of RFC 3720
assert crc32c([bytes(32), b"\xff" * 32, bytes(range(32))]) == ["8a9136aa", "62a8ab43", "46dd794e"]


class Tensors:
    """Names to (dtype, shape, bytes) of a file or of all model*.safetensors in a directory."""

    def __init__(self, path):
        self.at = {}
        files = [path]
        if os.path.isdir(path):
            files = [os.path.join(path, f) for f in sorted(os.listdir(path))
                     if f.endswith(".safetensors") and not f.startswith("reference")]
        for f in files:
            with open(f, "rb") as h:
                n = int.from_bytes(h.read(8), "little")
                self.data_start = 8 + n
                for name, t in json.loads(h.read(n)).items():
                    if name != "__metadata__":
                        self.at[name] = (f, 8 + n + t["data_offsets"][0], t["data_offsets"][1] - t["data_offsets"][0],
                                         t["dtype"], t["shape"])

    def __contains__(self, name):
        return name in self.at

    def raw(self, name):
        f, begin, size, _, _ = self.at[name]
        with open(f, "rb") as h:
            h.seek(begin)
            return h.read(size)

    def dtype(self, name):
        return self.at[name][3]

    def shape(self, name):
        return self.at[name][4]


def widen(dtype, raw):
    if dtype == "F32":
        return np.frombuffer(raw, dtype="<f4")
    if dtype == "F16":
        return np.frombuffer(raw, dtype="<f2").astype(np.float32)
    assert dtype == "BF16", dtype
    return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


def to_bf16(x):
    u = x.astype(np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")


def quantise(x, bits, group):
    """MLX's affine quantiser: packed words, scales, biases as bytes. x is float32 [rows, cols]."""
    f = np.float32
    g = x.reshape(x.shape[0], -1, group)
    n = f(2 ** bits - 1)
    mn, mx = g.min(-1, keepdims=True), g.max(-1, keepdims=True)
    s = np.maximum((mx - mn) / n, f(1e-7))
    low = np.abs(mn) > np.abs(mx)
    s = np.where(low, s, -s)
    edge = np.where(low, mn, mx)
    q0 = np.rint(edge / s)
    s = np.where(q0 != 0, edge / np.where(q0 != 0, q0, f(1)), s)
    bias = np.where(q0 != 0, edge, f(0))
    q = np.clip(np.rint((g - bias) / s), 0, n).astype(np.uint8).reshape(x.shape)
    bit = np.unpackbits(q[..., None], axis=-1, count=bits, bitorder="little")
    packed = np.packbits(bit.reshape(x.shape[0], -1), axis=-1, bitorder="little")
    return packed.tobytes(), to_bf16(s).tobytes(), to_bf16(bias).tobytes()


# ---- what a container must hold --------------------------------------------------------------------------------------

ZERO_CENTRED = re.compile(r"(input_layernorm|post_attention_layernorm|[qk]_norm|pre_fc_norm_\w+|(model|mtp)\.norm)"
                          r"\.weight$")
VECTOR = re.compile(r"(norm\w*\.weight|conv1d\.weight|A_log|dt_bias)$")
EXPERT = re.compile(r"\.mlp\.(switch_mlp|experts)\.")


def canonical(name):
    if "vision_tower." in name or "visual." in name:
        return None
    if re.search(r"(^|\.)mtp\.", name):
        return name[name.index("mtp."):]
    name = name.replace("language_model.", "")
    return name if name.startswith(("model.", "lm_head.")) else None


class Source:
    """draft: "keep" the draft head's norms as the trunk's, "shift" them by one, or "drop" the draft head."""

    def __init__(self, path, draft="keep"):
        self.path = path
        self.tensors = Tensors(path)
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        self.config = config.get("text_config", config)
        self.names = {canonical(n): n for n in self.tensors.at if canonical(n)}
        conv = next(n for n in self.names if n.endswith("conv1d.weight"))
        self.hf = self.tensors.shape(self.names[conv])[1] == 1
        self.quantised = any(n.endswith(".scales") for n in self.names)
        self.n_experts = self.config.get("num_experts") or 0
        if draft == "drop":
            self.names = {n: t for n, t in self.names.items() if not n.startswith("mtp.")}
        self.draft_hf = self.hf or draft == "shift"

    def rows(self, name, rule):
        """What a plain matrix becomes: {part: (dtype, shape, bytes)}."""
        t = self.names[name + ".weight"]
        return self.plain(self.tensors.dtype(t), self.tensors.shape(t), self.tensors.raw(t), rule)

    def plain(self, dtype, shape, raw, rule):
        bits, group = rule
        if self.quantised or shape[1] % group:
            return {"weight": (dtype, shape, raw)}
        w, s, b = quantise(widen(dtype, raw).reshape(shape), bits, group)
        return {"weight": ("U32", [shape[0], shape[1] * bits // 32], w),
                "scales": ("BF16", [shape[0], shape[1] // group], s),
                "biases": ("BF16", [shape[0], shape[1] // group], b)}

    def dense(self, draft, rule):
        """Every tensor of model.safetensors (or mtp.safetensors) as it must be."""
        want = {}
        for name, source in self.names.items():
            if EXPERT.search(name) or name.startswith("mtp.") != draft:
                continue
            dtype, shape, raw = self.tensors.dtype(source), self.tensors.shape(source), self.tensors.raw(source)
            if name.endswith("conv1d.weight"):
                want[name] = (dtype, [shape[0], max(shape[1:]), 1], raw)
            elif ZERO_CENTRED.search(name) and (self.draft_hf if draft else self.hf):
                want[name] = ("F32", shape, (widen(dtype, raw) + np.float32(1)).astype("<f4").tobytes())
            elif VECTOR.search(name) or name == "mtp.fc.weight" or name.endswith((".scales", ".biases")):
                want[name] = (dtype, shape, raw)
            elif dtype in ("U32", "I32"):
                want[name] = ("U32", shape, raw)
            else:
                module = name[:-len(".weight")]
                router = module.endswith((".mlp.gate", ".mlp.shared_expert_gate"))
                for part, t in self.rows(module, (8, 64) if router else rule).items():
                    want[module + "." + part] = t
        return want

    def expert(self, layer, e, rule):
        """[(section name, dtype, shape, bytes)] of one expert, in the order of a slot."""
        out = []
        width = self.config.get("moe_intermediate_size")
        for proj in PROJ:
            base = layer + "mlp.switch_mlp." + proj
            if base + ".weight" in self.names:
                parts = {}
                for part in PARTS:
                    t = self.names.get(base + "." + part)
                    if t:
                        shape, raw = self.tensors.shape(t)[1:], self.tensors.raw(t)
                        n = len(raw) // self.n_experts
                        parts[part] = (self.tensors.dtype(t).replace("I32", "U32"), shape, raw[e * n:(e + 1) * n])
                if len(parts) == 1:
                    parts = self.plain(*parts["weight"], rule)
            else:
                t = self.names.get(layer + "mlp.experts." + ("down_proj" if proj == "down_proj" else "gate_up_proj"))
                if t:
                    shape, raw = self.tensors.shape(t)[1:], self.tensors.raw(t)
                    n = len(raw) // self.n_experts
                    raw = raw[e * n:(e + 1) * n]
                    if proj != "down_proj":
                        assert shape[0] == 2 * width
                        shape = [width, shape[1]]
                        raw = raw[:n // 2] if proj == "gate_proj" else raw[n // 2:]
                    parts = self.plain(self.tensors.dtype(t), shape, raw, rule)
                else:
                    parts = self.rows("%smlp.experts.%d.%s" % (layer, e, proj), rule)
            out += [("%s.%s" % (proj, p), *parts[p]) for p in PARTS if p in parts]
        return out

    def moe_layers(self):
        found = {int(m.group(1)) for m in (re.match(r"model\.layers\.(\d+)\.mlp\.(switch_mlp|experts)\.", n)
                                           for n in self.names) if m}
        return sorted(found)


# ---- checks ----------------------------------------------------------------------------------------------------------

class Failure(Exception):
    pass


def same(what, got, want):
    if got != want:
        show = lambda v: repr(v) if len(repr(v)) < 200 else repr(v)[:200] + "..."
        raise Failure("%s is %s, expected %s" % (what, show(got), show(want)))


def load(path):
    with open(path) as f:
        return json.load(f)


def check_dense(path, want, sums):
    with safe_open(path, "np") as f:  # the public package agrees that it is a valid file
        same("names in " + path, sorted(f.keys()), sorted(want))
    got = Tensors(path)
    same("start of data % 16384", got.data_start % 16384, 0)
    for name, (dtype, shape, raw) in want.items():
        same(name + " dtype", got.dtype(name), dtype)
        same(name + " shape", got.shape(name), list(shape))
        if got.raw(name) != raw:
            raise Failure("bytes of %s differ" % name)
        begin = got.at[name][1] - got.data_start
        if len(raw) % 64 == 0 and len(shape) > 1:
            same(name + " offset % 64", begin % 64, 0)
        same(name + " offset % element", begin % SIZE[dtype], 0)
    by_length = {}
    for name, (_, _, raw) in want.items():
        by_length.setdefault(len(raw), []).append(name)
    same("checksummed tensors", sorted(sums), sorted(want))
    for names in by_length.values():
        for name, crc in zip(names, crc32c([want[n][2] for n in names])):
            same("crc32c of " + name, sums[name], crc)


def check_slots(path, source, layer, rule, geometry, sums):
    with open(path, "rb") as f:
        blob = f.read()
    stride, at = geometry["expertStride"], 0
    same("length of " + path, len(blob), stride * source.n_experts)
    slots = [blob[e * stride:(e + 1) * stride] for e in range(source.n_experts)]
    for e, slot in enumerate(slots):
        sections, at = [], 0
        for name, dtype, shape, raw in source.expert(layer, e, rule):
            sections.append({"name": name, "dtype": dtype, "shape": list(shape), "offset": at, "size": len(raw)})
            if slot[at:at + len(raw)] != raw:
                raise Failure("%s, expert %d: bytes of %s differ" % (path, e, name))
            at += len(raw)
        same("sections of " + path, geometry["sections"], sections)
        if slot[at:].strip(b"\0"):
            raise Failure("%s, expert %d: padding is not zero" % (path, e))
    same("expertStride", stride, (at + 16383) // 16384 * 16384)
    same("crc32c of " + path, [sums[8 * e:8 * e + 8] for e in range(source.n_experts)], crc32c(slots))


def check_experts(out, source, rule, sidecar, version):
    layout = load(os.path.join(out, "packed_experts", "layout.json"))
    c = source.config
    same("expertCount", layout["expertCount"], source.n_experts)
    same("layerCount", layout["layerCount"], c["num_hidden_layers"])
    kinds = c.get("layer_types") or ["full_attention" if (i + 1) % (c.get("full_attention_interval") or 4) == 0 else
                                     "linear_attention" for i in range(c["num_hidden_layers"])]
    same("linearLayers", layout["linearLayers"], [k == "linear_attention" for k in kinds])
    for i in range(c["num_hidden_layers"]):
        name = "packed_experts/layer_%02d.bin" % i
        geometry = layout if version == 1 else layout["layers"][i]
        if i not in source.moe_layers():
            same(name + " exists", os.path.exists(os.path.join(out, name)), False)
            same("layers[%d]" % i, geometry, None)
            continue
        check_slots(os.path.join(out, name), source, "model.layers.%d." % i, rule, geometry, sidecar["crc32c"][name])


def check_config(out, source, rule, quantised_here):
    with open(os.path.join(source.path, "config.json"), "rb") as f:
        before = f.read()
    with open(os.path.join(out, "config.json"), "rb") as f:
        after = f.read()
    if not quantised_here:
        same("config.json", after, before)
        return
    config, want = json.loads(after), {"bits": rule[0], "group_size": rule[1], "mode": "affine"}
    for name in Tensors(os.path.join(out, "model.safetensors")).at:
        if rule != (8, 64) and re.search(r"\.mlp\.(gate|shared_expert_gate)\.scales$", name):
            want[name[:-len(".scales")]] = {"bits": 8, "group_size": 64}
    same("quantization", config.pop("quantization"), want)
    same("quantization_config", config.pop("quantization_config"), want)
    same("the rest of config.json", config, json.loads(before))


def check_files(out):
    """manifest.json and hashes.json against what is there."""
    there = {}
    for d, _, files in os.walk(out):
        for f in files:
            path = os.path.join(d, f)
            if not (d == out and f.startswith(".")):
                there[os.path.relpath(path, out)] = path
    hashes = load(os.path.join(out, "hashes.json"))["files"]
    same("names in hashes.json", sorted(hashes), sorted(set(there) - {"hashes.json"}))
    for name, digest in hashes.items():
        with open(there[name], "rb") as f:
            same("SHA-256 of " + name, digest, hashlib.sha256(f.read()).hexdigest())
    manifest = load(os.path.join(out, "manifest.json"))
    same("manifest.files", manifest["files"], {n: os.path.getsize(p) for n, p in there.items()
                                               if n not in ("manifest.json", "hashes.json")})
    return manifest


COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "added_tokens.json",
              "special_tokens_map.json", "chat_template.jinja", "generation_config.json")


def check_container(out, source, rule):
    manifest, sidecar = check_files(out), load(os.path.join(out, "swiftlet.json"))
    version = manifest["version"]
    want = source.dense(False, rule)
    check_dense(os.path.join(out, "model.safetensors"), want, sidecar["crc32c"]["model.safetensors"])
    draft = source.dense(True, rule)
    same("mtp in swiftlet.json", "mtp" in sidecar, bool(draft))
    if draft:
        check_dense(os.path.join(out, "mtp.safetensors"), draft, sidecar["crc32c"]["mtp.safetensors"])
    layouts = []
    if source.n_experts:
        check_experts(out, source, rule, sidecar, version)
        for i in source.moe_layers():
            layouts.append([s[:3] for s in source.expert("model.layers.%d." % i, 0, rule)])
        if draft:
            name = sidecar["mtp"]["experts"]
            check_slots(os.path.join(out, name), source, "mtp.layers.0.", rule, sidecar["mtp"], sidecar["crc32c"][name])
    formats = set()  # (bits, group) of every projection
    for layout in layouts:
        width = {name: shape[1] for name, _, shape in layout}
        for proj in PROJ:
            cols = source.config["moe_intermediate_size" if proj == "down_proj" else "hidden_size"]
            scales = width.get(proj + ".scales")
            formats.add((width[proj + ".weight"] * 32 // cols, cols // scales) if scales else (0, 0))
    simple = bool(layouts) and len(layouts) == source.config["num_hidden_layers"] \
        and all(layout == layouts[0] for layout in layouts) and {b for b, _ in formats} <= {4, 8}
    same("version", (manifest["magic"], version), ("QPACK", 1) if simple else ("QPACK2", 2))
    one = formats.pop() if len(formats) == 1 else (0, 0)
    same("quantBits, quantGroupSize", (manifest.get("quantBits", 0), manifest.get("quantGroupSize", 0)), one)
    check_config(out, source, rule, not source.quantised and any(n.endswith(".scales") for n in want))
    for name in COMPANIONS:
        there = os.path.exists(os.path.join(source.path, name))
        same(name + " exists", os.path.exists(os.path.join(out, name)), there)
        if there:
            with open(os.path.join(source.path, name), "rb") as a, open(os.path.join(out, name), "rb") as b:
                same(name, b.read(), a.read())


def tree(d):
    """Relative path to digest, dot files included."""
    out = {}
    for at, _, files in os.walk(d):
        for f in files:
            with open(os.path.join(at, f), "rb") as h:
                out[os.path.relpath(os.path.join(at, f), d)] = hashlib.sha256(h.read()).hexdigest()
    return out


def report(name, problem):
    global passed, failed
    passed += not problem
    failed += bool(problem)
    if problem:
        print("FAILED %s: %s" % (name, problem), flush=True)


def attempt(name, check):
    try:
        check()
        report(name, None)
    except (Failure, OSError, KeyError, ValueError, AssertionError, subprocess.SubprocessError) as e:
        report(name, "%s: %s" % (type(e).__name__, e))


def repack(program, source, out, rule=(4, 64), extra=()):
    command = [program, "repack", source, "--output", out, "--bits", str(rule[0]), "--group", str(rule[1]), "--quantiser",
               "minmax", *extra]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode:
        raise Failure("%s gave %d: %s" % (" ".join(command), p.returncode, p.stderr.strip()[-500:]))


def check_source(program, path, rule, scratch, draft="keep"):
    out, again = os.path.join(scratch, "a.qpack"), os.path.join(scratch, "b.qpack")
    repack(program, path, out, rule)
    same("left over", sorted(os.listdir(scratch)), ["a.qpack"])
    check_container(out, Source(path, draft), rule)
    if rule == (4, 64):
        repack(program, path, again, rule)
        same("second conversion", tree(again), tree(out))


# ---- sources made here -----------------------------------------------------------------------------------------------

def make_source(path, config, tensors):
    """tensors: name to (dtype, shape, bytes, or a length of zeros that is left as a hole in the file)."""
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    header, at = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        n = raw if isinstance(raw, int) else len(raw)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, (_, _, raw) in tensors.items():
            if isinstance(raw, int):
                f.seek(raw, os.SEEK_CUR)
            else:
                f.write(raw)
        f.truncate(8 + len(text) + at)
    return path


def read_case(name):
    path = os.path.join(CASES, name)
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    t = Tensors(path)
    return config, {n: (t.dtype(n), t.shape(n), t.raw(n)) for n in t.at}


def with_draft_head(spread, centre):
    """An MLX model with a draft head from elsewhere: float32, fused experts, norms around `centre`."""
    config, tensors = read_case("q35moe-a-mlx4")
    c, rng = config["text_config"], np.random.default_rng(5)
    h, w, q, kv = c["hidden_size"], c["moe_intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    d, e, shared = c["head_dim"], c["num_experts"], c["shared_expert_intermediate_size"]
    layer = "layers.0."
    shapes = {"fc.weight": [h, 2 * h], "pre_fc_norm_embedding.weight": [h], "pre_fc_norm_hidden.weight": [h],
              "norm.weight": [h], layer + "input_layernorm.weight": [h], layer + "post_attention_layernorm.weight": [h],
              layer + "self_attn.q_proj.weight": [2 * q * d, h], layer + "self_attn.k_proj.weight": [kv * d, h],
              layer + "self_attn.v_proj.weight": [kv * d, h], layer + "self_attn.o_proj.weight": [h, q * d],
              layer + "self_attn.q_norm.weight": [d], layer + "self_attn.k_norm.weight": [d],
              layer + "mlp.gate.weight": [e, h], layer + "mlp.shared_expert_gate.weight": [1, h],
              layer + "mlp.shared_expert.gate_proj.weight": [shared, h],
              layer + "mlp.shared_expert.up_proj.weight": [shared, h],
              layer + "mlp.shared_expert.down_proj.weight": [h, shared],
              layer + "mlp.experts.gate_up_proj": [e, 2 * w, h], layer + "mlp.experts.down_proj": [e, h, w]}
    for name, shape in shapes.items():
        x = rng.standard_normal(shape) * spread + (centre if len(shape) == 1 else 0)
        tensors["language_model.mtp." + name] = ("F32", shape, x.astype("<f4").tobytes())
    return config, tensors


def unusual():
    """A float16 original with a vision tower and names of a multimodal wrapper."""
    config, tensors = read_case("q35moe-a")
    out = {"model.visual.patch_embed.weight": ("F16", [4, 4], bytes(32))}
    for name, (dtype, shape, raw) in tensors.items():
        half = widen(dtype, raw).astype("<f2").tobytes()
        out[name.replace("model.", "model.language_model.", 1)] = ("F16", shape, half)
    return config, out


def check_given(program, path, rule):
    with tempfile.TemporaryDirectory() as scratch:
        attempt("%s with %d bits, group %d" % (os.path.basename(path), *rule),
                lambda: check_source(program, path, rule, scratch))


def check_made(program, name, made, draft="keep"):
    with tempfile.TemporaryDirectory() as d:
        path = make_source(os.path.join(d, "made"), *made)
        scratch = os.path.join(d, "scratch")
        os.mkdir(scratch)
        attempt(name, lambda: check_source(program, path, (4, 64), scratch, draft))


def big(gib):
    """A dense model whose embedding alone has `gib` GiB (of zeros: a hole in the file)."""
    config, tensors = read_case("q35dense-a")
    c = config.get("text_config", config)
    c["vocab_size"] = int(gib * 2 ** 30) // (2 * c["hidden_size"])
    c["tie_word_embeddings"] = True
    shape = [c["vocab_size"], c["hidden_size"]]
    tensors = {n: t for n, t in tensors.items() if "lm_head" not in n}
    tensors[next(n for n in tensors if "embed_tokens" in n)] = ("BF16", shape, 2 * shape[0] * shape[1])
    return config, tensors


def limited(program, made, limit, amount):
    """Converts under a resource limit; exit status, message and what is left beside the source."""
    with tempfile.TemporaryDirectory() as d:
        path = make_source(os.path.join(d, "made"), *made)

        def lower():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(limit, (amount, amount))

        p = subprocess.run([program, "repack", path, "--output", os.path.join(d, "out.qpack")], preexec_fn=lower,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return p.returncode, p.stderr, sorted(set(os.listdir(d)) - {"made"})


def check_memory(program):
    """Half a GiB of embedding through a quarter of address space."""
    same("result", limited(program, big(0.5), resource.RLIMIT_AS, 256 << 20)[::2], (0, ["out.qpack"]))


def check_failed_write(program):
    status, message, left = limited(program, read_case("q35moe-a"), resource.RLIMIT_FSIZE, 200000)
    if not status or "model.safetensors" not in message and "layer_" not in message:
        raise Failure("status %d, message %r" % (status, message))
    same("left over", left, [])


def check_kill(program, path, scratch, delay, want, replace):
    """After SIGKILL the output is absent or complete, and the next run succeeds over whatever was left."""
    out = os.path.join(scratch, "k.qpack")
    extra = ["--replace"] if replace else []
    p = subprocess.Popen([program, "repack", path, "--output", out, *extra], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(delay)
    p.send_signal(signal.SIGKILL)
    p.wait()
    if not set(os.listdir(scratch)) <= {"k.qpack", "k.qpack.partial"}:
        raise Failure("found %s" % os.listdir(scratch))
    if replace or os.path.exists(out):
        check_files(out)
    repack(program, path, out, extra=["--replace"])
    same("after the next run", tree(out), want)
    same("left over", os.listdir(scratch), ["k.qpack"])
    if not replace:
        shutil.rmtree(out)


def check_kills(program, path, scratch, n):
    out = os.path.join(scratch, "k.qpack")
    begin = time.time()
    repack(program, path, out)
    seconds = time.time() - begin
    want = tree(out)
    shutil.rmtree(out)
    rng = random.Random(1)
    for i in range(n):
        replace = i >= n // 2
        if replace and not os.path.exists(out):
            repack(program, path, out)
        delay = rng.uniform(0, 1.2 * seconds)
        attempt("killed after %.3f s%s" % (delay, ", replacing" if replace else ""),
                lambda: check_kill(program, path, scratch, delay, want, replace))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("sources", nargs="*")
    a = parser.parse_intermixed_args()
    program = os.path.abspath(a.program)
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 << 30:
        tempfile.tempdir = "/dev/shm"  # every file is synced, which takes its time on a disk
    sources = a.sources or [os.path.join(CASES, d) for d in sorted(os.listdir(CASES))]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # mostly waiting for the disk
        for path in sources:
            for rule in [(4, 64)] if Source(path).quantised else [(4, 64), (4, 32), (8, 64), (8, 128)]:
                pool.submit(check_given, program, path, rule)
    if not a.sources:
        attempt("models/demo.qpack", lambda: check_files(os.path.join(ROOT, "models", "demo.qpack")))
        check_made(program, "draft head with norms 1+w in an MLX model", with_draft_head(0.1, 1))
        check_made(program, "draft head with norms w in an MLX model", with_draft_head(0.1, 0), "shift")
        check_made(program, "draft head with norms of neither kind", with_draft_head(0.6, 1), "drop")
        check_made(program, "float16 original with a vision tower", unusual())
        attempt("bounded memory", lambda: check_memory(program))
        attempt("write error", lambda: check_failed_write(program))
    with tempfile.TemporaryDirectory() as scratch:
        check_kills(program, max(sources, key=lambda p: sum(e.stat().st_size for e in os.scandir(p))), scratch, a.kills)
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
