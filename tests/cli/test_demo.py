#!/usr/bin/env python3
"""The command line on the demo model: chat format, tokens, states, damaged files, verification.

Prompts and ids to compare with come from the model's own template under transformers (tests/oracle/demo_greedy.json) and
from the `tokenizers` package.

usage: test_demo.py PROGRAM
"""
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

import numpy
import safetensors.numpy
import tokenizers

import harness

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "install"))
import fake_hub

PROGRAM = sys.argv.pop(1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "demo.qpack")
CASE = os.path.join(ROOT, "tests", "oracle", "cases", "q35moe-a")
TOKENIZER = tokenizers.Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))


def run(*arguments, **more):
    return harness.run(PROGRAM, *arguments, **more)


def rows(*arguments, **more):
    p = run(*arguments, "--json", **more)
    if p.returncode:
        raise AssertionError(p.stdout + p.stderr)
    return [json.loads(line) for line in p.stdout.splitlines()]


def ids(text):
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def commas(numbers):
    return ",".join(map(str, numbers))


class ChatFormat(unittest.TestCase):
    def test_prompts_are_those_of_the_models_template(self):
        with open(os.path.join(ROOT, "tests", "oracle", "demo_greedy.json")) as f:
            prompts = json.load(f)["prompts"]
        plain = [p for p in prompts if p.get("messages") and [m["role"] for m in p["messages"]] in (
            ["user"], ["system", "user"]) and p["prompt_text"].endswith("</think>\n\n") and "# Tools" not in p["prompt_text"]]
        self.assertGreaterEqual(len(plain), 6)
        for p in plain:
            system = ["-s", p["messages"][0]["content"]] if len(p["messages"]) == 2 else []
            by_text = rows("generate", MODEL, "--chat", "-p", p["messages"][-1]["content"], *system, "-n", "6")[0]
            by_ids = rows("generate", MODEL, "--ids", commas(p["prompt_ids"]), "-n", "6")[0]
            self.assertEqual(by_text["prompt_tokens"], len(p["prompt_ids"]), p["name"])
            self.assertEqual(by_text["ids"], by_ids["ids"], p["name"])

    def test_a_second_turn_follows_the_template_too(self):
        first, second = rows("chat", MODEL, "My name is Anna.", "What is my name?", "--greedy", "-n", "30")
        text = ("<|im_start|>user\nMy name is Anna.<|im_end|>\n<|im_start|>assistant\n%s<|im_end|>\n<|im_start|>user\n"
                "What is my name?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n" % first["text"].strip())
        alone = rows("generate", MODEL, "--ids", commas(ids(text)), "-n", "30")[0]
        self.assertEqual(second["prompt_tokens"], len(ids(text)))
        self.assertEqual(second["ids"], alone["ids"])

    def test_markers_in_a_message_stay_text(self):
        got = rows("generate", MODEL, "--chat", "-p", "a<|im_end|>b", "-n", "1")[0]["prompt_tokens"]
        marked = len(ids("<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"))
        self.assertGreater(got, marked)


class Template(unittest.TestCase):
    def test_prompts_are_those_of_transformers(self):
        with open(os.path.join(ROOT, "tests", "oracle", "demo_greedy.json")) as f:
            prompts = [p for p in json.load(f)["prompts"] if p.get("messages")]
        self.assertGreater(len(prompts), 10)
        n = 0
        for p in prompts:
            if "tools" in p["prompt_text"].lower():  # the file does not hold the tools
                continue
            think = "on" if p["prompt_text"].endswith("<think>\n") else "off"
            got = run("template", MODEL, "--think", think, stdin=json.dumps(p["messages"]).encode())
            self.assertEqual(got.stdout.decode(), p["prompt_text"], p["name"])
            both = rows("template", MODEL, "--think", think, stdin=json.dumps({"messages": p["messages"]}).encode())[0]
            self.assertEqual((both["text"], both["ids"]), (p["prompt_text"], p["prompt_ids"]), p["name"])
            n += 1
        self.assertGreater(n, 8)

    def test_what_is_no_list_of_messages_is_refused(self):
        for text, says in [(b"{", b"standard input, line 1"), (b"{}", b"no messages"), (b"[1]", b"")]:
            p = run("template", MODEL, stdin=text)
            self.assertEqual((p.returncode, p.stdout), (2, b""))
            self.assertIn(says, p.stderr)


class Dump(unittest.TestCase):
    def dumped(self, model, module):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.safetensors")
            p = run("dump-tensor", model, module, out)
            self.assertEqual((p.returncode, p.stdout), (0, b""), p.stderr)
            with open(out, "rb") as f:
                return safetensors.numpy.load(f.read())[module]

    def test_quantised_matrices_are_those_that_numpy_unpacks(self):
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(n)), f.read()

        def floats(entry):
            raw = data[slice(*entry["data_offsets"])]
            if entry["dtype"] == "BF16":
                return (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").reshape(entry["shape"])
            return numpy.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype("f4").reshape(entry["shape"])
        done = 0
        for name in ["lm_head", "model.layers.0.linear_attn.out_proj", "model.layers.3.self_attn.o_proj", "model.layers.0.mlp.gate"]:
            weight = next(header[k] for k in header if k.endswith(name + ".weight"))
            scales, biases = (floats(next(header[k] for k in header if k.endswith(name + part))) for part in (".scales", ".biases"))
            words = numpy.frombuffer(data[slice(*weight["data_offsets"])], "<u4").reshape(weight["shape"])
            bits = 8 if name.endswith("mlp.gate") else 4
            codes = numpy.stack([words >> (bits * i) & (1 << bits) - 1 for i in range(32 // bits)], -1).reshape(len(words), -1)
            group = codes.shape[1] // scales.shape[1]
            want = codes.astype("f8") * numpy.repeat(scales, group, 1) + numpy.repeat(biases, group, 1)
            got = self.dumped(MODEL, name)
            self.assertEqual(got.shape, want.shape)
            self.assertLessEqual(numpy.abs(got - want).max(), 1e-6 * numpy.abs(want).max())
            done += 1
        self.assertEqual(done, 4)
        norm = next(header[k] for k in header if k.endswith("model.norm.weight"))
        self.assertTrue((self.dumped(MODEL, "model.norm") == floats(norm)).all())

    def test_experts_of_a_checkpoint_are_its_own(self):
        tensors = {}
        with open(os.path.join(CASE, "model.safetensors"), "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(n)), f.read()
        for name, entry in header.items():
            if name.endswith("layers.1.mlp.experts.gate_up_proj") or name.endswith("layers.1.mlp.experts.down_proj"):
                raw = data[slice(*entry["data_offsets"])]
                kind = {"F32": "<f4", "F16": "<f2"}.get(entry["dtype"])
                x = numpy.frombuffer(raw, kind) if kind else (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
                tensors[name.rsplit(".", 1)[1]] = x.reshape(entry["shape"]).astype("f4")
        width = tensors["down_proj"].shape[2]
        for name, want in [("up_proj", tensors["gate_up_proj"][2, width:]), ("gate_proj", tensors["gate_up_proj"][2, :width]),
                           ("down_proj", tensors["down_proj"][2])]:
            self.assertTrue((self.dumped(CASE, "model.layers.1.mlp.experts.2." + name) == want).all(), name)

    def test_what_is_not_there_is_named_with_what_is(self):
        p = run("dump-tensor", MODEL, "model.layers.0.nothing", "/tmp/never")
        self.assertEqual(p.returncode, 3)
        self.assertIn(b"model.layers.0.", p.stderr)
        self.assertEqual(run("dump-tensor", MODEL, "model.layers.0.mlp.experts.99.up_proj", "/tmp/never").returncode, 3)


class Offer(unittest.TestCase):
    def test_a_model_of_the_hub_is_offered_at_a_terminal(self):
        with tempfile.TemporaryDirectory() as home, fake_hub.Hub(fake_hub.read_dir(MODEL)) as hub:
            env = {"SWIFTLET_HOME": home, "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": home}
            p = run("generate", "org/name", "-p", "x", "-n", "2", **env)
            self.assertEqual((p.returncode, p.stdout), (3, b""))
            self.assertIn(b'get it with "swiftlet pull org/name"', p.stderr)
            self.assertEqual(hub.requests, [])
            t = harness.Terminal(PROGRAM, "generate", "org/name", "-p", "x", "-n", "2", **env)
            t.expect(b"org/name is not installed. Download ")
            self.assertRegex(t.expect(b"[y/N] ").decode(), r"MB to .*org--name\.qpack \(.* free\)")
            t.type(b"n\r")
            self.assertEqual(t.finish(), 3)
            t = harness.Terminal(PROGRAM, "generate", "org/name", "-p", "Once upon a time", "-n", "4", **env)
            t.expect(b"[y/N] ")
            t.type(b"y\r")
            self.assertEqual(t.finish(60), 0, t.seen)
            plain = run("generate", "org/name", "-p", "Once upon a time", "-n", "4", **env)
            self.assertEqual(plain.stdout, run("generate", MODEL, "-p", "Once upon a time", "-n", "4").stdout)


    def test_without_any_model_three_that_fit_are_named(self):
        with tempfile.TemporaryDirectory() as home:
            p = run("serve", SWIFTLET_HOME=home)
            self.assertEqual((p.returncode, p.stdout), (3, b""))
            known = rows("doctor", home)[0]["models"]
            fit = [m["source"] for m in known if m["fits_in_memory"] and m["fits_on_disk"]]
            sources = [line.split()[-1] for line in p.stderr.decode().splitlines() if "  swiftlet pull " in line]
            self.assertLessEqual(set(sources), {m["source"] for m in known})
            self.assertEqual(len(sources), 3 if len(fit) > 4 else len(sources), p.stderr)  # memory comes and goes
            p = run("chat", "--json", SWIFTLET_HOME=home, stdin=b"hello")  # a program is not told at length
            self.assertEqual((p.returncode, p.stderr.count(b"swiftlet pull")), (3, 0), p.stdout)


class Server(unittest.TestCase):
    def check_written(self, url, key):
        """launch --write: into the client's file, with what else is in it, and a copy of it as it was."""
        with tempfile.TemporaryDirectory() as home:
            places = {**key, "HOME": home, "XDG_CONFIG_HOME": os.path.join(home, "conf"), "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": ""}
            def write(client):
                return run("launch", client, "--write", *url, **places)
            codex, claude, opencode = (os.path.join(home, *name) for name in ((".codex", "config.toml"), (".claude", "settings.json"), ("conf", "opencode", "opencode.json")))
            for client in ("codex", "claude", "opencode", "pi", "zed", "continue"):
                p = write(client)
                self.assertEqual((p.returncode, p.stdout), (0, b""), p.stderr)
            for name in (codex, claude, opencode):
                self.assertEqual(os.stat(name).st_mode & 0o77, 0)
            with open(codex, "rb") as f:
                first = tomllib.load(f)
            self.assertEqual((first["model"], first["model_providers"]["swiftlet"]["wire_api"]), ("demo", "responses"))
            self.assertIn(b"says so already", write("codex").stderr)
            self.assertEqual(os.listdir(os.path.dirname(codex)), ["config.toml"])
            with open(codex, "w") as f:
                f.write('model = "other"\napproval_policy = "never"\n[model_providers.swiftlet]\nname = "old"\n[tools]\nx = 1\nmodel = "mine"')
            with open(claude, "w") as f:
                json.dump({"env": {"FOO": "1", "ANTHROPIC_MODEL": "old"}, "permissions": {"allow": ["x"]}}, f)
            with open(opencode, "w") as f:
                f.write('{"theme": "x", // a comment\n}')
            before = {name: open(name, "rb").read() for name in (codex, claude, opencode)}
            self.assertEqual([write(c).returncode for c in ("codex", "claude", "opencode", "continue")], [0, 0, 6, 6])
            with open(codex, "rb") as f:
                self.assertEqual(tomllib.load(f), {**first, "approval_policy": "never", "tools": {"x": 1, "model": "mine"}})
            with open(claude) as f:
                got = json.load(f)
            self.assertEqual((got["env"]["FOO"], got["env"]["ANTHROPIC_MODEL"], got["env"]["ANTHROPIC_AUTH_TOKEN"], got["permissions"]), ("1", "demo", "secret", {"allow": ["x"]}))
            for name in (codex, claude):
                self.assertEqual(open(name + ".before-swiftlet", "rb").read(), before[name])
            self.assertEqual(open(opencode, "rb").read(), before[opencode])
            self.assertEqual(os.listdir(os.path.dirname(opencode)), ["opencode.json"])

    def test_a_running_server_is_asked(self):
        server = subprocess.Popen([PROGRAM, "serve", MODEL, "--port", "0", "--api-key", "secret"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env=harness.environment())
        try:
            url = ["--url", server.stdout.readline().decode().split()[-1]]
            harness.wait_until(lambda: run("health", *url).returncode == 0)
            self.assertEqual(rows("health", *url)[0]["status"], "ok")
            p = run("ps", *url)
            self.assertEqual((p.returncode, p.stdout), (1, b""))
            self.assertIn(b"answers 401", p.stderr)
            key = {"SWIFTLET_API_KEY": "secret"}
            self.assertRegex(run("ps", *url, **key).stdout.decode(), r"^demo, context of 4096 tokens\n  0  idle +0 of 4096 tokens\n")
            self.assertEqual(rows("ps", *url, **key)[0]["models"][0]["id"], "demo")
            for client in ["opencode", "pi", "zed"]:
                text = run("launch", client, *url, **key).stdout.decode()
                self.assertIn(url[1], json.dumps(json.loads(text)))
                self.assertIn("demo", text)
            env = run("launch", "claude", *url, **key).stdout.decode()
            self.assertIn("export ANTHROPIC_MODEL=demo\nexport CLAUDE_CODE_AUTO_COMPACT_WINDOW=4096\n", env)
            toml = run("launch", "codex", *url, **key).stdout.decode()
            self.assertIn('base_url = "%s/v1"\nwire_api = "responses"\n' % url[1].rstrip("/"), toml)
            self.check_written(url, key)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        p = run("health", *url)
        self.assertEqual((p.returncode, p.stdout), (5, b""))
        self.assertIn(b"no server answers", p.stderr)
        self.assertEqual(run("health", "--url", "ftp://x").returncode, 2)
        self.assertEqual(run("launch", "codexx").returncode, 2)


class Stopping(unittest.TestCase):
    def test_ctrl_c_in_the_middle_of_a_long_prompt(self):
        """The model reads in passes of many tokens; the signal does not wait for one to end."""
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"word " * 3800)
            f.flush()
            t = harness.Terminal(PROGRAM, "chat", MODEL, "--system-file", f.name, "hello")
            t.expect(b"reading prompt 0/", 60)
        t.type(b"\x03")
        begin = time.monotonic()
        self.assertEqual(t.finish(60), 130)
        self.assertLess(time.monotonic() - begin, 3)


class Evaluation(unittest.TestCase):
    def test_file_and_model_come_in_either_order(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as f:
            f.write(b"Once upon a time there was a fox.")
            f.flush()
            self.assertEqual(rows("eval", f.name, MODEL), rows("eval", MODEL, f.name))
            with tempfile.TemporaryDirectory() as home:
                os.makedirs(os.path.join(home, "models"))
                os.symlink(MODEL, os.path.join(home, "models", "org--name.qpack"))
                self.assertEqual(rows("eval", "org/name", f.name, SWIFTLET_HOME=home), rows("eval", f.name, "org/name", SWIFTLET_HOME=home))
            self.assertEqual(rows("eval", f.name, "-m", MODEL), rows("eval", MODEL, f.name))


class Conversion(unittest.TestCase):
    def test_bits_of_a_quantised_source_are_said_to_have_no_effect(self):
        with tempfile.TemporaryDirectory() as folder:
            for case, more, noted in [("q35moe-a-mlx4", ["--bits", "8"], True), ("q35moe-a-mlx4", [], False),
                                      ("q35moe-a", ["--bits", "8"], False)]:
                out = os.path.join(folder, "%s%d.qpack" % (case, len(more)))
                p = run("repack", os.path.join(ROOT, "tests", "oracle", "cases", case), "--output", out, *more)
                self.assertEqual(p.returncode, 0, p.stderr)
                self.assertEqual(b"have no effect" in p.stderr, noted, (case, more))
                said = p.stderr.decode()
                if float(said.split(" s\n")[0].split()[-1]) < 0.5:
                    self.assertNotIn("%", said)


class Shapes(unittest.TestCase):
    def test_budgets_of_known_models_without_having_them(self):
        for name, layers, experts, used, vocabulary in [("qwen3-next-80b", 48, 512, 10, 151936), ("qwen3.5-397b", 60, 512, 10, 248320),
                                                        ("qwen3.6-35b", 40, 256, 8, 248320)]:
            with tempfile.TemporaryDirectory() as folder:
                got = rows("info", name, TMPDIR=folder)[0]
                self.assertEqual(os.listdir(folder), [])
            self.assertEqual((got["layers"], got["experts"], got["experts_used"], got["vocabulary"]),
                             (layers, experts, used, vocabulary))
            self.assertEqual(got["experts_bytes"], layers * experts * got["expert_bytes"])
            self.assertEqual(len(got["memory"]), 5)
        self.assertIn(b"no such model is here", run("info", "qwen3.6-35b").stdout)


class Tokens(unittest.TestCase):
    def test_tokenize_agrees_with_the_tokenizers_package(self):
        for text in ["Hello there", "  two  spaces\n\nand lines\t", "Na\u00efve \u65e5\u672c\u8a9e \U0001f98a 12345",
                     "<|im_start|>user\nHi<|im_end|>", "e\u0301"]:
            got = rows("tokenize", MODEL, text)[0]
            self.assertEqual([t["id"] for t in got["tokens"]], ids(text))
            self.assertEqual(got["n"], len(ids(text)))

    def test_standard_input_is_tokenized_as_the_operand_is(self):
        self.assertEqual(run("tokenize", MODEL, stdin=b"Hello there").stdout, run("tokenize", MODEL, "Hello there").stdout)


class Answers(unittest.TestCase):
    STORY = "Once upon a time there was a small fox who"

    def answer(self, *more):
        return run("generate", MODEL, "-p", self.STORY, "-n", "24", *more).stdout

    def test_threads_and_chunks_change_nothing(self):
        plain = self.answer()
        self.assertTrue(plain)
        for more in [["-t", "1"], ["-t", "2"], ["--prefill-chunk", "1"], ["--prefill-chunk", "5"]]:
            self.assertEqual(self.answer(*more), plain, more)

    def test_the_newline_that_ends_a_file_is_not_part_of_the_prompt(self):
        want = rows("generate", MODEL, "-p", "Once upon a time", "-n", "6")[0]
        for text in (b"Once upon a time", b"Once upon a time\n", b"Once upon a time\r\n"):
            got = rows("generate", MODEL, "-n", "6", stdin=text)[0]
            self.assertEqual((got["ids"], got["prompt_tokens"]), (want["ids"], want["prompt_tokens"]), text)

    def test_a_place_that_cannot_be_written_is_known_before_the_answer(self):
        p = run("generate", MODEL, "-p", "x", "-n", "6", "--save-state", "/nonexistent/s.state")
        self.assertEqual((p.returncode, p.stdout), (3, b""))
        self.assertIn(b"/nonexistent/s.state", p.stderr)

    def test_a_name_that_cannot_be_saved_under_is_known_before_the_answer(self):
        p = run("chat", MODEL, "-p", "Hi!", "-n", "4", "--save", "../kept")
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertIn(b'"../kept" cannot be the name', p.stderr)

    def test_a_seed_repeats_an_answer(self):
        sampled = [self.answer("--temp", "1.5", "--seed", seed) for seed in ("1", "1", "2")]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])

    def test_top_k_1_is_greedy(self):
        self.assertEqual(self.answer("--temp", "1.5", "--top-k", "1"), self.answer())

    def test_a_stop_text_cuts_the_answer(self):
        plain = self.answer().decode()
        word = plain.split()[3]
        self.assertEqual(self.answer("--stop", word).decode(), plain[:plain.index(word)])

    def test_the_context_ends_an_answer(self):
        got = rows("generate", MODEL, "-p", self.STORY, "--ctx", "32")[0]
        self.assertEqual(got["finish"], "context")
        self.assertEqual(got["context_tokens"], 32)
        said = [run("generate", MODEL, "-p", self.STORY, "-n", n, "--ctx", "32", *more).stderr
                for n, more in (("24", []), ("24", ["-q"]), ("4", []))]
        self.assertEqual([b"the context is full" in s for s in said], [True, False, False], said)

    def test_a_text_that_no_context_holds_is_refused_before_it_is_taken_apart(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as f:
            f.write(b"Again and again. " * 1200000)
            f.flush()
            for command in (["generate"], ["generate", "--chat"], ["chat"]):
                p = subprocess.Popen([PROGRAM, *command, MODEL, "-f", f.name, "--memory", "100M", "-c", "2048"], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment())
                said = p.stderr.read()
                _, status, used = os.wait4(p.pid, 0)
                p.returncode = os.waitstatus_to_exitcode(status)
                p.stdout.close()
                p.stderr.close()
                self.assertEqual(p.returncode, 4, said)
                self.assertRegex(said, b"the prompt has at least [0-9]+ tokens, the context 2048")
                self.assertLess(used.ru_maxrss, 100 << 10)
        p = run("chat", MODEL, "-c", "64", "-n", "1", stdin=b"\n" * 100000 + b"Hi")  # white space around it is dropped
        self.assertEqual(p.returncode, 0, p.stderr)

    def test_a_text_without_an_end_is_given_up(self):
        for stdin in (None, "/dev/zero"):
            with open(stdin or os.devnull, "rb") as f:
                p = subprocess.run([PROGRAM, "generate", MODEL, "-f", "-" if stdin else "/dev/zero"], stdin=f, capture_output=True,
                                   timeout=60, env=harness.environment(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2))
            self.assertEqual(p.returncode, 4, p.stderr)
            self.assertIn(b"has more than the 256 MiB that are read of a text", p.stderr)


class States(unittest.TestCase):
    def test_a_saved_state_goes_on_as_if_never_stopped(self):
        prompt = ids("The old man walked down to the harbour, where the boats lay")
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "state")
            whole = rows("generate", MODEL, "--ids", commas(prompt), "-n", "20")[0]
            begun = rows("generate", MODEL, "--ids", commas(prompt), "-n", "8", "--save-state", state)[0]
            self.assertEqual(begun["ids"], whole["ids"][:8])
            # The state holds the eight tokens; the next one is read and the rest must follow.
            rest = rows("generate", MODEL, "--ids", str(whole["ids"][8]), "-n", "11", "--load-state", state)[0]
            self.assertEqual(rest["ids"], whole["ids"][9:])
            self.assertEqual(os.listdir(folder), ["state"])
            p = run("generate", MODEL, "-n", "20", "--load-state", state)
            self.assertEqual(p.returncode, 2)
            self.assertIn(b"goes on only with something to read", p.stderr)

    def test_what_is_no_regular_file_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            for make in [os.mkfifo, os.mkdir]:
                path = os.path.join(folder, make.__name__)
                make(path)
                p = run("generate", MODEL, "-p", "x", "-n", "1", "--save-state", path)
                self.assertEqual(p.returncode, 2)
                self.assertIn(path.encode(), p.stderr)
            self.assertTrue(stat.S_ISFIFO(os.stat(os.path.join(folder, "mkfifo")).st_mode))
            self.assertEqual(sorted(os.listdir(folder)), ["mkdir", "mkfifo"])

    def test_a_state_over_the_file_size_limit_leaves_nothing(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run([PROGRAM, "generate", MODEL, "-p", "x", "-n", "1", "--save-state",
                                os.path.join(folder, "state")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=harness.environment(), preexec_fn=limited, restore_signals=True)
            self.assertEqual(p.returncode, 1)
            self.assertIn(b"File too large", p.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_a_conversation_that_cannot_be_kept_is_answered_and_a_failure(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run([PROGRAM, "chat", MODEL, "-p", "Hi!", "-n", "4", "--greedy", "--save", "kept"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment(SWIFTLET_HOME=folder),
                               preexec_fn=limited, restore_signals=True)
            self.assertEqual((p.returncode, p.stderr.count(b"File too large")), (1, 1), p)
            self.assertNotEqual(p.stdout.strip(), b"")
            self.assertEqual([f for _, _, files in os.walk(folder) for f in files if "kept" in f], [])

    def test_places_that_are_not_there_have_one_code(self):
        """3 where a folder is missing, or is none, and 1 where there may be no new file, whatever was to be kept there."""
        with tempfile.TemporaryDirectory() as home:
            os.mkdir(os.path.join(home, "state"))
            open(os.path.join(home, "state", "sessions"), "w").close()
            inside_a_file = os.path.join(home, "state", "sessions", "x")
            for code, *command in [(3, "serve", MODEL, "--port", "0", "-c", "256", "--session-dir", "/nonexistent/a"),
                                   (3, "serve", MODEL, "--port", "0", "-c", "256", "--session-dir", inside_a_file),
                                   (1, "serve", MODEL, "--port", "0", "-c", "256", "--session-dir", "/sys/swiftlet-x"),
                                   (3, "generate", MODEL, "-p", "x", "-n", "1", "-c", "256", "--save-state", "/nonexistent/a"),
                                   (3, "generate", MODEL, "-p", "x", "-n", "1", "-c", "256", "--save-state", inside_a_file)]:
                p = run(*command)
                self.assertEqual((p.returncode, p.stderr.count(b"\n")), (code, 1), p)
            p = run("chat", MODEL, "-p", "Hi!", "-n", "1", "-q", "-c", "256", "--save", "kept", SWIFTLET_HOME=home)
            self.assertEqual((p.returncode, p.stderr.count(b"\n")), (3, 1), p)
            self.assertIn(b"Not a directory", p.stderr)

    def test_a_foreign_file_is_refused_by_name(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"not a state " * 100)
            f.flush()
            p = run("generate", MODEL, "-p", "x", "-n", "1", "--load-state", f.name)
        self.assertEqual((p.returncode, p.stdout), (3, b""))
        self.assertIn(f.name.encode(), p.stderr)


class Routes(unittest.TestCase):
    def test_a_record_that_cannot_be_written_is_an_error(self):
        p = run("generate", MODEL, "-p", "x", "-n", "2", "--record-routes", "/dev/full")
        self.assertEqual(p.returncode, 4)
        self.assertIn(b"/dev/full", p.stderr)


class Damage(unittest.TestCase):
    def broken(self, name, change):
        """What the program says of a copy in which `change` has edited the file's bytes."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "m.qpack")
            shutil.copytree(MODEL, model)
            path = os.path.join(model, name)
            with open(path, "rb") as f:
                data = bytearray(f.read())
            with open(path, "wb") as f:
                f.write(change(data))
            return run("generate", model, "-p", "Once upon a time there was", "-n", "8")

    def test_damaged_files_are_noticed_and_named(self):
        def flip(data):
            for at in range(0, len(data), 4096):
                data[at] ^= 1
            return data
        for name, change in [("packed_experts/layer_03.bin", flip), ("packed_experts/layer_03.bin", lambda d: d[:-1]),
                             ("config.json", lambda d: d[:-20]), ("tokenizer.json", lambda d: d[:1000]),
                             ("model.safetensors", lambda d: d[:-1])]:
            p = self.broken(name, change)
            self.assertEqual(p.returncode, 3, (name, p.stderr))
            self.assertIn(name.encode(), p.stderr)

    def test_an_empty_directory_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("info", folder).returncode, 3)


class Reports(unittest.TestCase):
    def test_verify_agrees_with_the_reference_and_notices_a_difference(self):
        reference = os.path.join(CASE, "reference.safetensors")
        p = run("verify", CASE, reference, "--exact")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertEqual([line.split()[0] for line in p.stdout.decode().splitlines()],
                         ["embed", "layer_00", "layer_01", "layer_02", "layer_03", "final_norm", "logits", "greedy"])
        p = run("verify", CASE, reference, "--exact", "--tolerance", "0", "--json")
        self.assertEqual(p.returncode, 1)
        self.assertEqual(json.loads(p.stdout)["first_bad"], "layer_00")

    def test_verify_takes_a_link_to_a_container(self):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "link.qpack")
            os.symlink(MODEL, link)
            p = run("verify", link)
            self.assertEqual(p.returncode, 0, p.stdout + p.stderr)

    def test_info_gives_the_figures_of_the_config(self):
        with open(os.path.join(MODEL, "config.json")) as f:
            config = json.load(f)
        config = config.get("text_config", config)
        got = rows("info", MODEL)[0]
        for ours, theirs in [("layers", "num_hidden_layers"), ("experts", "num_experts"), ("hidden", "hidden_size"),
                             ("experts_used", "num_experts_per_tok"), ("vocabulary", "vocab_size"),
                             ("context_tokens_max", "max_position_embeddings")]:
            self.assertEqual(got[ours], config[theirs], ours)
        layers = [os.path.getsize(os.path.join(MODEL, "packed_experts", n)) for n in
                  os.listdir(os.path.join(MODEL, "packed_experts")) if n.endswith(".bin")]
        self.assertEqual(got["experts_bytes"], sum(layers))
        self.assertEqual(got["container"], "qpack")

    def test_small_budgets_are_told_in_units_that_show_them(self):
        self.assertRegex(run("info", MODEL, "--memory", "100M").stdout.decode(), r"(?m)^100 MiB    \d.*\(as opened\)$")
        self.assertRegex(run("info", MODEL, "--memory", "20M").stdout.decode(), r"(?m)^20 MiB     does not fit: at least \d")

    def test_budgets_are_listed_by_size_each_once_in_one_unit(self):
        for memory, sizes in [("100M", ["100 MiB", "2.0 GiB", "4.0 GiB", "8.0 GiB", "16.0 GiB"]),
                              ("3G", ["2.0 GiB", "3.0 GiB", "4.0 GiB", "8.0 GiB", "16.0 GiB"]),
                              ("4G", ["2.0 GiB", "4.0 GiB", "8.0 GiB", "16.0 GiB"]),
                              ("32G", ["2.0 GiB", "4.0 GiB", "8.0 GiB", "16.0 GiB", "32.0 GiB"])]:
            said = run("info", MODEL, "--memory", memory).stdout.decode()
            table = said[said.index("\nmemory"):].splitlines()[2:]
            self.assertEqual([" ".join(row.split()[:2]) for row in table], sizes)
            self.assertEqual(["as opened" in row for row in table], [size.startswith(memory[:-1] + (".0" if "G" in memory else " ")) for
                                                                     size in sizes])
            self.assertNotRegex("\n".join(table), "[0-9] [kMG]B")

    def test_more_memory_than_there_is_is_told_once(self):
        """By the machine, and by a control group of either version, of which an outer one holds too; what fits is not told."""
        with open("/proc/meminfo") as f:
            machine = int(f.read().split("MemTotal:")[1].split()[0]) // 1024
        for command in (["generate", MODEL, "-p", "hi", "-n", "2"], ["run", MODEL, "hi", "-n", "2"],
                        ["bench", MODEL, "-p", "8", "-n", "2", "-r", "1"]):
            said = run(*command, "--memory", "%dM" % (machine + 1)).stderr.decode()
            self.assertEqual(said.count("--memory"), 1, said)
            self.assertRegex(said, r"%d MiB is more than the (%d MiB that this machine has|\d+ MiB that the control group)" % (machine + 1, machine))
            self.assertNotIn("--memory", run(*command, "--memory", "%dM" % (machine + 1), "-q").stderr.decode())
        groups = """mount -t tmpfs none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/a /sys/fs/cgroup/memory/a/b &&
            echo "$1" >/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes && echo "$2" >/sys/fs/cgroup/memory/a/memory.limit_in_bytes &&
            echo "$3" >/sys/fs/cgroup/a/memory.max && printf '4:blkio,memory:/a/b\n0::/a/b\n' >/sys/fs/cgroup/of &&
            mount --bind /sys/fs/cgroup/of /proc/$$/cgroup && shift 3 && exec "$@"
        """
        inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", groups, "sh"]
        none = "9223372036854771712"
        if not shutil.which("unshare") or subprocess.run([*inside, none, none, "max", "true"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no file system can be mounted")
        for limits, most in (((none, none, "max"), None), ((none, none, "209715200"), 200), ((none, "157286400", "max"), 150),
                             (("157286400", none, "209715200"), 150)):
            for memory in (150, 201):
                p = subprocess.run([*inside, *limits, PROGRAM, "generate", MODEL, "-p", "hi", "-n", "2", "--memory", "%dM" % memory],
                                   capture_output=True, env=harness.environment())
                self.assertEqual(p.returncode, 0, p.stderr)
                told = "%d MiB is more than the %s MiB that the control group of this process may have" % (memory, most)
                self.assertEqual(told in p.stderr.decode(), most is not None and memory > most, p.stderr)

    def test_generate_from_ids_needs_no_tokenizer(self):
        p = run("generate", CASE, "--ids", "1,2,3", "-n", "4")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertRegex(p.stdout.decode(), r"^\d+,\d+,\d+,\d+$")
        self.assertEqual(run("generate", CASE, "--ids", "1,999999", "-n", "4").returncode, 2)
        self.assertEqual(run("generate", CASE, "-p", "text", "-n", "4").returncode, 3)


harness.main()
