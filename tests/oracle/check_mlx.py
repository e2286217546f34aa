#!/usr/bin/env python3
"""Check the MLX cases with mlx-lm itself: a third opinion on packing, names, norms and arithmetic.

usage: check_mlx.py DIR [DIR ...]      needs mlx and mlx-lm (on Linux: mlx[cpu]); exit 1 if one disagrees
mlx-lm takes the layer pattern from full_attention_interval alone, so a case with an irregular pattern is skipped.
"""
import json, os, sys
from pathlib import Path
import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)


def regular(d):
    c = json.load(open(os.path.join(d, "config.json")))
    return "full_attention_interval" in c.get("text_config", c)


def check(d):
    name = os.path.basename(os.path.normpath(d))
    if not regular(d):
        print(f"{name:22s} skipped (irregular layer pattern)")
        return True
    model, _ = load_model(Path(d))
    model.set_dtype(mx.float32)
    ref = mx.load(os.path.join(d, "reference.safetensors"))
    ours, theirs = np.array(ref["logits"]), np.array(model(ref["input_ids"]).astype(mx.float32))
    diff = float(np.abs(ours - theirs).max())
    print(f"{name:22s} {'ok ' if diff < 1e-3 else 'BAD'} logits {diff:.1e} (up to {np.abs(ours).max():.1f})")
    return diff < 1e-3


if __name__ == "__main__":
    sys.exit(0 if all([check(d) for d in sys.argv[1:]]) else 1)
