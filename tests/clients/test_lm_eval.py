#!/usr/bin/env python3
"""lm-eval's local-completions, which wants the log probability of every token of a prompt, against swiftlet serve with the
demo model: a small task of sentences whose ending is plain.

usage: test_lm_eval.py SWIFTLET MODEL
"""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "server"))
import harness  # noqa: E402

MODEL = os.path.abspath(sys.argv.pop(2))
SENTENCES = [
    ("Once upon a", ["time", "carburettor"], 0),
    ("The dog wagged its", ["theorem", "tail"], 1),
    ("She was very happy and she smiled and", ["laughed", "parliament"], 0),
    ("The little girl went to the park to", ["play", "mortgage"], 0),
]
TASK = """task: endings
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: " "
metric_list: [{metric: acc}]
"""


class LmEval(unittest.TestCase):
    def test_a_task(self):
        server = harness.Server(model=MODEL)
        self.addCleanup(server.stop)
        folder = server.folder.name
        data = os.path.join(folder, "endings.jsonl")
        with open(data, "w") as f:
            for text, choices, answer in SENTENCES:
                f.write(json.dumps({"text": text, "choices": choices, "answer": answer}) + "\n")
        with open(os.path.join(folder, "endings.yaml"), "w") as f:
            f.write(TASK % data)
        arguments = "base_url=%s/v1/completions,model=m,tokenizer_backend=huggingface,tokenizer=%s" % (server.url, MODEL)
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": folder, "TOKENIZERS_PARALLELISM": "false"}
        got = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments,
                              "--include_path", folder, "--tasks", "endings", "--output_path", os.path.join(folder, "out.json"),
                              "--log_samples"], env=env, cwd=folder, capture_output=True, text=True, timeout=280)
        self.assertEqual(got.returncode, 0, got.stderr[-3000:])
        with open(next(os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("samples_endings"))) as f:
            samples = [json.loads(line) for line in f]
        self.assertEqual([s["acc"] for s in samples], [1.0] * len(SENTENCES))
        for s in samples:
            for (value, _), in s["resps"]:
                self.assertLess(float(value), 0)


if __name__ == "__main__":
    harness.main()
