#!/usr/bin/env python3
"""Make the fixtures of the demo model with the public `transformers` package.

Writes into OUT (default: this folder):
  demo_greedy.json          20 prompts and their greedy continuations: float32 compute, and bfloat16 compute beside it
  demo_logits.safetensors   float32 logits after the last prompt token, for three of the prompts
  demo_ppl.json             held-out prose: token ids, negative log-likelihood and argmax of every position

usage: make_demo.py DEMO_DIR [OUT]
Needs torch, transformers >= 5, safetensors. DEMO_DIR also holds training/val.jsonl.xz, the held-out texts.
The weights are stored as bfloat16. "float32" converts them (exactly) and computes in float32, which is what `--exact`
does; "bfloat16" leaves every activation in bfloat16, as most GPU servers do, and is here to show the distance.
"""
import json, lzma, os, sys
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.manual_seed(0)
torch.set_grad_enabled(False)
torch.set_num_threads(2)
N_NEW = 64
N_PROSE = 1500
PROSE = ("pd_child", "pd_fairy", "ccby_story")

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city."}},
                   "required": ["city"]}}}


def user(text, system=None, **more):
    messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": text}]
    return {"messages": messages, **more}


PROMPTS = [
    ("chat-hello", user("Hi!")),
    ("chat-capital", user("What is the capital of France?")),
    ("chat-sum", user("What is 17 plus 25?")),
    ("chat-story", user("Write a short story about kindness.")),
    ("chat-story-long", user("Tell me a story about a fox who lost his hat, and an old bear who found it.")),
    ("chat-system", user("How are you today?", system="You are a friendly assistant.")),
    ("chat-thinking", user("Why is the sky blue?", enable_thinking=True)),
    ("chat-tool", user("What is the weather in Oslo?", tools=[WEATHER])),
    ("chat-turns", {"messages": [
        {"role": "user", "content": "My name is Anna."},
        {"role": "assistant", "content": "Nice to meet you, Anna!"},
        {"role": "user", "content": "What is my name?"}]}),
    ("chat-tool-result", {"messages": [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
        {"role": "tool", "content": "{\"sky\": \"rain\", \"degrees\": 9}"}], "tools": [WEATHER]}),
    ("chat-persona", user("What do you do for fun?", system="Play this person: I like music. I have one sister.")),
    ("chat-word-sum", user("Tom has 3 apples. He buys 4 more and eats 2. How many apples does he have?")),
    ("chat-unicode", user("Schreib mir bitte etwas über Käse, naïve Façade, 日本語 und 🦊!")),
    ("chat-empty", user("")),
    ("raw-once", {"text": "Once upon a time there was"}),
    ("raw-one-token", {"text": "The"}),
    ("raw-dialogue", {"text": "A: Have you seen any good films lately?\nB:"}),
    ("raw-prose", {"text": "The old man walked down to the harbour, where the boats lay still, and"}),
    ("raw-code", {"text": "def add(a, b):\n    return"}),
    ("raw-digits", {"text": "1, 2, 3, 4, 5, 6, 7, 8,  9,\t10,\n\n11,"}),
]
LOGITS_OF = ("chat-capital", "chat-tool", "raw-once")


def load(demo, dtype):
    model = AutoModelForCausalLM.from_pretrained(demo, dtype=dtype, attn_implementation="eager").eval()
    assert next(model.parameters()).dtype == dtype
    return model


def greedy(model, ids):
    """N_NEW tokens by plain argmax with the cache, past stop tokens too; and the smallest lead of a winner."""
    logits_last, out, lead = None, [], float("inf")
    res = model(input_ids=torch.tensor([ids]), use_cache=True)
    for _ in range(N_NEW):
        row = res.logits[0, -1].float()
        logits_last = row.clone() if logits_last is None else logits_last
        top = row.topk(2).values
        lead = min(lead, float(top[0] - top[1]))
        out.append(int(row.argmax()))
        res = model(input_ids=torch.tensor([[out[-1]]]), use_cache=True, past_key_values=res.past_key_values)
    return out, lead, logits_last


def whole_pass_agrees(model, ids, out):
    """The same tokens from one pass over everything, without a cache."""
    logits = model(input_ids=torch.tensor([ids + out]), use_cache=False).logits[0]
    return logits[len(ids) - 1:-1].argmax(-1).tolist() == out


def prompt_ids(tok, spec):
    if "text" in spec:
        return tok(spec["text"], add_special_tokens=False)["input_ids"], spec["text"]
    kw = {k: v for k, v in spec.items() if k != "messages"}
    text = tok.apply_chat_template(spec["messages"], tokenize=False, add_generation_prompt=True, **kw)
    return tok(text, add_special_tokens=False)["input_ids"], text


def dump(path, head, key, rows):
    """JSON with one row per line, so that a change shows as a line."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("{\n" + "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()))
        f.write(f" {json.dumps(key)}: [\n" + ",\n".join("  " + json.dumps(r) for r in rows) + "\n ]\n}\n")


def make_greedy(demo, out, tok, f32, head):
    stop = set(json.load(open(os.path.join(demo, "generation_config.json")))["eos_token_id"])
    bf16, rows, kept = load(demo, torch.bfloat16), [], {}
    for name, spec in PROMPTS:
        ids, text = prompt_ids(tok, spec)
        got, lead, last = greedy(f32, ids)
        assert whole_pass_agrees(f32, ids, got), name
        low, _, _ = greedy(bf16, ids)
        differ = next((i for i, (a, b) in enumerate(zip(got, low)) if a != b), None)
        n_text = next((i for i, t in enumerate(got) if t in stop), N_NEW)
        rows.append({"name": name, **spec, "prompt_text": text, "prompt_ids": ids, "float32": got, "bfloat16": low,
                     "bfloat16_first_difference": differ, "n_before_stop": n_text, "smallest_lead": round(lead, 6),
                     "text": tok.decode(got[:n_text])})
        if name in LOGITS_OF:
            kept[name + ".logits"] = last.float().contiguous()
            kept[name + ".ids"] = torch.tensor(ids, dtype=torch.int32)
        print(f"{name:17s} {len(ids):4d} tokens, lead {lead:.4f}, bf16 differs at {differ}: {rows[-1]['text'][:60]!r}",
              flush=True)
    note = {"float32": "greedy ids, weights converted to float32, all compute float32 (what --exact must equal)",
            "bfloat16": "greedy ids, weights and activations bfloat16 (for comparison only)",
            "n_before_stop": "how many float32 ids come before the first stop token; the ids go on past it",
            "smallest_lead": "smallest difference between the two highest float32 logits over the 64 steps"}
    dump(os.path.join(out, "demo_greedy.json"), {**head, "stop_ids": sorted(stop), "fields": note}, "prompts", rows)
    save_file(kept, os.path.join(out, "demo_logits.safetensors"))


def score(model, ids):
    """Every token after the first, given all before it, in one pass: sum of -log p, and the argmax at each place."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    nll = -torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return float(nll.sum()), logits.argmax(-1).tolist()


def make_ppl(demo, out, tok, f32, head):
    rows, joined = [], []
    with lzma.open(os.path.join(demo, "training", "val.jsonl.xz"), "rt", encoding="utf-8") as f:
        docs = [(i, json.loads(line)) for i, line in enumerate(f)]
    picked = [(i, d) for i, d in docs if d["src"] in PROSE]
    for i, d in picked:
        ids = tok(d["text"], add_special_tokens=False)["input_ids"]
        if not 60 <= len(ids) <= 400:
            continue
        nll, best = score(f32, ids)
        rows.append({"line": i, "src": d["src"], "ids": ids, "nll": nll, "argmax": best})
        joined += ids
        if len(joined) >= N_PROSE:
            break
    nll, best = score(f32, joined)
    n = sum(len(r["ids"]) - 1 for r in rows)
    total = sum(r["nll"] for r in rows)
    head = {**head, "selection": "first texts of training/val.jsonl.xz whose src is one of " + ", ".join(PROSE) +
            " and that have 60 to 400 tokens, until there are 1,500 tokens", "nll_unit": "nats, sum over the tokens "
            "after the first of each text", "n_scored": n, "nll_total": total, "perplexity": float(torch.tensor(total / n,
            dtype=torch.float64).exp()), "joined": {"note": "all texts as one sequence", "n_tokens": len(joined),
            "nll": nll, "argmax": best}}
    dump(os.path.join(out, "demo_ppl.json"), head, "texts", rows)
    print(f"prose: {len(rows)} texts, {n} scored tokens, perplexity {head['perplexity']:.4f}; joined {nll:.4f} nats")


def main():
    demo = sys.argv[1]
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    head = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, CPU, eager attention"}
    tok, f32 = AutoTokenizer.from_pretrained(demo), load(demo, torch.float32)
    make_ppl(demo, out, tok, f32, head)
    make_greedy(demo, out, tok, f32, head)


if __name__ == "__main__":
    main()
