#!/usr/bin/env python3
"""swiftlet bench on tiny shapes: what is counted is right, what is timed is plausible, formats agree. No timing is judged.

usage: test_bench.py PROGRAM
"""
import csv
import io
import json
import os
import re
import sys
import tempfile
import unittest

import harness

PROGRAM = sys.argv.pop(1)
FOLDER = tempfile.TemporaryDirectory(prefix="swiftlet-bench-")
PLACE = os.path.join(FOLDER.name, "tiny.qpack")
SMALL = ["--synthetic", "tiny", "--output", PLACE, "-p", "16", "-n", "4", "-r", "3", "-t", "2", "-q", "--memory", "160M"]

# The shapes "tiny": 8 layers, of which 2 attention; every layer has 16 experts, of which 4 used; 256 hidden, 128 wide.
LAYERS, EXPERTS, USED, HIDDEN, WIDTH, VOCAB = 8, 16, 4, 256, 128, 1024
EXPERT_BYTES = 3 * HIDDEN * WIDTH * 9 // 16  # 4 bits, and two 16-bit numbers for each 64 weights
# Delta-net state of 6 layers: 4 heads of 128 x 128 with a gain each, and 3 columns of convolution over 2 * 2 * 128 +
# 4 * 128 channels; keys and values of 2 layers: one head of 256, of 16 bits and with a scale each.
STATE_BYTES = 6 * 4 * (4 * (128 * 128 + 1) + 3 * (2 * 2 * 128 + 4 * 128))
KV_BYTES = 2 * 2 * (256 * 2 + 4)


def bench(*arguments, **more):
    p = harness.run(PROGRAM, "bench", *arguments, **more)
    if p.returncode:
        raise AssertionError((p.returncode, p.stdout, p.stderr))
    return p.stdout.decode()


def rows(*arguments):
    return json.loads(bench(*SMALL, *arguments, "-o", "json"))["rows"]


class Figures(unittest.TestCase):
    def test_a_decoded_token_moves_what_its_weights_state_and_keys_weigh(self):
        prompt, decode = rows("--no-drive")
        self.assertEqual([prompt["test"], decode["test"]], ["prompt", "decode"])
        self.assertEqual(decode["expert_bytes_per_token"], LAYERS * USED * EXPERT_BYTES)
        self.assertEqual(decode["state_bytes_per_token"], 2 * STATE_BYTES)
        self.assertEqual(decode["kv_bytes_per_token"], KV_BYTES * (1 + 2 + 3 + 4) / 4)
        head = VOCAB * HIDDEN * 9 // 16
        self.assertGreater(decode["dense_bytes_per_token"], head)
        self.assertAlmostEqual(decode["bytes_per_token"], sum(
            decode[k + "_bytes_per_token"] for k in ["dense", "expert", "state", "kv"]), 3)
        self.assertEqual(prompt["state_bytes_per_token"], 2 * STATE_BYTES / 16)
        self.assertEqual(prompt["kv_bytes_per_token"], KV_BYTES * 16 / 16)

    def test_rates_fit_together(self):
        for r in rows("--no-drive"):
            self.assertLessEqual(r["tokens_per_second_min"], r["tokens_per_second"])
            self.assertLessEqual(r["tokens_per_second"], r["tokens_per_second_max"])
            self.assertGreater(r["tokens_per_second_min"], 0)
            self.assertAlmostEqual(r["memory_fraction"], r["bytes_per_second"] / r["memory_bytes_per_second"])
            self.assertAlmostEqual(r["int8_fraction"], r["multiply_adds_per_second"] / r["int8_multiply_adds_per_second"])
            self.assertGreater(r["memory_bytes_per_second"], 1e8)
            self.assertGreater(r["int8_multiply_adds_per_second"], 1e8)
            self.assertEqual(r["first_token_seconds"] is None, r["test"] != "prompt")

    def test_the_budget_bounds_the_measuring_too(self):
        """Where it leaves no room for a block that no cache holds, the rate of memory is not there."""
        said = harness.run(PROGRAM, "bench", *SMALL, "--memory", "1M").stderr.decode()
        for r in rows("--no-drive", "--memory", re.search(r"needs (\d+) MiB", said)[1] + "M"):
            self.assertEqual((r["memory_bytes_per_second"], r["memory_fraction"]), (None, None))
            self.assertGreater(r["int8_multiply_adds_per_second"], 1e8)

    def test_batches_share_weights_and_nothing_else(self):
        one, four = rows("--no-drive", "-p", "0", "-b", "1,4", "-d", "5", "--routes", "same")
        self.assertEqual((one["depth"], one["batch"], four["batch"]), (5, 1, 4))
        self.assertEqual(four["dense_bytes_per_token"], one["dense_bytes_per_token"] / 4)
        self.assertEqual(four["expert_bytes_per_token"], one["expert_bytes_per_token"] / 4)
        self.assertEqual(four["state_bytes_per_token"], one["state_bytes_per_token"])
        self.assertEqual(four["kv_bytes_per_token"], one["kv_bytes_per_token"])
        self.assertEqual(one["kv_bytes_per_token"], KV_BYTES * (6 + 7 + 8 + 9) / 4)
        uniform = rows("--no-drive", "-p", "0", "-b", "4", "--routes", "uniform")[0]
        self.assertGreater(uniform["expert_bytes_per_token"], four["expert_bytes_per_token"])

    def test_drafts_share_the_state_as_well(self):
        one, draft = rows("--no-drive", "-p", "0", "--drafts", "4", "-d", "5", "--routes", "same")
        self.assertEqual((draft["test"], draft["depth"], draft["batch"], draft["tokens"]), ("draft", 5, 4, 4))
        for what in "dense", "expert", "state":
            self.assertEqual(draft[what + "_bytes_per_token"], one[what + "_bytes_per_token"] / 4)
        self.assertEqual(draft["kv_bytes_per_token"], KV_BYTES * (9 + 13 + 17 + 21) / 16)
        macs = {r["test"]: r["multiply_adds_per_second"] * r["ms_per_pass"] for r in (one, draft)}
        self.assertAlmostEqual(macs["draft"] / macs["decode"], 4)  # the head runs for every one
        seconds = {r["test"]: 4 * r["batch"] / r["tokens_per_second"] for r in (one, draft)}
        self.assertAlmostEqual(draft["time_against_batch_1"], seconds["draft"] / seconds["decode"], 6)
        self.assertIn("| draft 4 | 5 | 4 |", bench(*SMALL, "--no-drive", "-p", "0", "--drafts", "0,4", "-d", "5"))

    def test_phases_add_up_to_the_pass(self):
        for r in rows("--no-drive", "--profile"):
            names = ["other", "projections", "delta", "attention", "router", "experts", "head", "waiting"]
            total = sum(r["ms_" + name] for name in names)
            self.assertLessEqual(total, r["ms_per_pass"])
            self.assertGreater(total, r["ms_per_pass"] / 4)
            self.assertGreater(min(r["ms_" + name] for name in names[1:7]), 0)

    def test_a_small_pool_misses_and_reads_whole_experts(self):
        slots = 4 * LAYERS * 65536 / 1e9  # experts take 64 KiB on disk
        decode = rows("--no-drive", "-p", "0", "-n", "16", "--cache-gb", "%.6f" % slots)[0]
        self.assertLess(decode["expert_hit_rate"], 1)
        self.assertGreater(decode["read_bytes_per_token"], 0)
        self.assertEqual(round(decode["read_bytes_per_token"] * 3 * 16) % 65536, 0)

    def test_reads_are_compared_with_the_drive_where_there_are_any(self):
        few = ["-p", "0", "-n", "16", "--cache-gb", "%.6f" % (4 * LAYERS * 65536 / 1e9)]
        r = rows(*few, "-r", "1")[0]
        self.assertGreater(r["drive_bytes_per_second"], 0)
        self.assertIn(r["reads_in_flight"], range(1, 65))
        self.assertLessEqual(r["reading_ms_per_pass"], r["ms_per_pass"])
        self.assertAlmostEqual(r["drive_fraction"], r["read_bytes_per_second"] / r["drive_bytes_per_second"])
        self.assertAlmostEqual(r["reading_ms_per_pass"], 1e3 * r["read_bytes_per_token"] / r["read_bytes_per_second"])
        for key in ["compute_alone_ms_per_pass", "reads_alone_ms_per_pass", "time_against_larger"]:
            self.assertIsNone(r[key])
        r = rows(*few, "--no-drive")[0]
        self.assertIsNone(r["drive_bytes_per_second"])
        self.assertGreater(r["read_bytes_per_second"], 0)

    def test_limits_are_the_halves_of_a_pass(self):
        few = ["--no-drive", "-n", "16", "--cache-gb", "%.6f" % (4 * LAYERS * 65536 / 1e9), "--limits"]
        for r in rows(*few, "-b", "2"):
            self.assertGreater(r["compute_alone_ms_per_pass"], 0)
            self.assertGreater(r["reads_alone_ms_per_pass"], 0)
            self.assertGreater(r["time_against_larger"], 0)
        table = bench(*SMALL, *few, "--routes", "fitted")
        self.assertIn("| reading alone ms |", table)
        for wrong in [["--routes", "model"], ["--record-routes", os.path.join(FOLDER.name, "no")]]:
            p = harness.run(PROGRAM, "bench", *SMALL, *few, *wrong)
            self.assertEqual(p.returncode, 2)
            self.assertIn(b"--limits", p.stderr)

    def test_experts_in_memory_are_never_read(self):
        out = json.loads(bench("--synthetic", "tiny", "--in-memory", "--output", PLACE + "-dense", "-p", "8", "-n", "4", "-r",
                               "1", "-q", "-o", "json"))
        self.assertEqual(out["experts_in_pool"], EXPERTS)
        for r in out["rows"]:
            for key in ["drive_bytes_per_second", "drive_fraction", "reads_in_flight", "read_bytes_per_second"]:
                self.assertIsNone(r[key], key)
            self.assertEqual((r["expert_hit_rate"], r["read_bytes_per_token"]), (1, 0))


class Report(unittest.TestCase):
    def test_formats_hold_the_same_columns(self):
        whole = json.loads(bench(*SMALL, "-o", "json"))
        lines = [json.loads(line) for line in bench(*SMALL, "-o", "jsonl").splitlines()]
        table = list(csv.DictReader(io.StringIO(bench(*SMALL, "-o", "csv"))))
        columns = set(whole["rows"][0]) | set(whole) - {"rows"}
        self.assertEqual((len(lines), len(table)), (2, 2))
        self.assertEqual(set(lines[0]), columns)
        self.assertEqual(set(table[0]), columns)
        self.assertEqual(table[1]["test"], "decode")
        self.assertEqual(float(table[1]["expert_bytes_per_token"]), lines[1]["expert_bytes_per_token"])

    def test_random_weights_and_routes_are_called_that(self):
        whole = json.loads(bench(*SMALL, "--json"))
        self.assertEqual((whole["weights"], whole["routes"], whole["model"]), ("synthetic", "uniform", "tiny"))
        self.assertIn("--synthetic tiny", whole["command"])
        text = bench(*SMALL)
        self.assertIn("tiny: synthetic weights, uniform random routes", text)
        self.assertIn("| decode 4 | 0 | 1 |", text)
        self.assertNotIn("| projections |", text)
        self.assertIn("| projections |", bench(*SMALL, "--profile", "--no-drive"))

    def test_the_cache_folder_keeps_the_container(self):
        with tempfile.TemporaryDirectory() as cache:
            first = harness.run(PROGRAM, "bench", "--synthetic", "tiny", "-p", "0", "-n", "2", "-r", "1", "--no-drive",
                                SWIFTLET_HOME=None, XDG_CACHE_HOME=cache)
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertIn("tiny.qpack", os.listdir(os.path.join(cache, "swiftlet")))
            self.assertIn(b"it stays there", first.stderr)
            again = harness.run(PROGRAM, "bench", "--synthetic", "tiny", "-p", "0", "-n", "2", "-r", "1", "--no-drive",
                                SWIFTLET_HOME=None, XDG_CACHE_HOME=cache)
            self.assertEqual((again.returncode, again.stderr), (0, b""))

    def test_nothing_to_measure_is_said(self):
        p = harness.run(PROGRAM, "bench", *SMALL, "-p", "0", "-n", "0")
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertIn(b"nothing to measure", p.stderr)

    def test_unknown_shapes_are_answered_with_the_known_ones(self):
        for name, said in [("qwen9", b"qwen3.6-35b"), ("qwen3.6-35b/400", b"has 40")]:
            p = harness.run(PROGRAM, "bench", "--synthetic", name, "--output", os.path.join(FOLDER.name, "x.qpack"))
            self.assertEqual(p.returncode, 2)
            self.assertIn(said, p.stderr)
            self.assertNotIn(b"writing", p.stderr)


class Routes(unittest.TestCase):
    def test_recorded_routes_are_run_again(self):
        log, again = os.path.join(FOLDER.name, "routes"), os.path.join(FOLDER.name, "again")
        few = ["--no-drive", "-p", "0", "-n", "16", "-r", "1"]
        rows(*few, "--record-routes", log)
        rows(*few, "--routes", log, "--record-routes", again)
        with open(log, "rb") as a, open(again, "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_fitted_routes_repeat_themselves_and_uniform_ones_do_not(self):
        def hit_rate(kind):
            slots = "%.6f" % (6 * LAYERS * 65536 / 1e9)
            return rows("--no-drive", "-p", "0", "-n", "64", "-r", "1", "--cache-gb", slots, "--routes", kind)[0]["expert_hit_rate"]
        self.assertGreater(hit_rate("fitted"), hit_rate("uniform"))

    def test_pools_of_all_sizes_are_tried_on_routes(self):
        out = json.loads(bench("cache", "--routes", "fitted", "-o", "json"))
        accesses = out["tokens"] * out["layers"] * out["experts_used"]
        for policy in {r["policy"] for r in out["rows"]}:
            mine = [r for r in out["rows"] if r["policy"] == policy]
            self.assertEqual([r["slots"] for r in mine], [32 * k for k in range(1, 9)])
            self.assertEqual({r["hits"] + r["misses"] for r in mine}, {accesses})
            self.assertEqual([r["misses"] for r in mine], sorted((r["misses"] for r in mine), reverse=True))
            self.assertLessEqual(mine[-1]["misses"], out["layers"] * out["experts"])  # each once
        table = bench("cache", "--routes", "fitted", "--slots", "70")
        self.assertIn("synthetic routes", table)
        self.assertRegex(table, r"\| 70 \| lru \| 8[34]\.\d% \|")  # 83.5 % is what others measured with real text

    def test_the_manual_explains_every_column(self):
        path = os.path.join(FOLDER.name, "columns.json")
        with open(path, "w") as f:
            f.write(bench(*SMALL, "--no-drive", "-o", "json"))
        table = bench(*SMALL, "--no-drive", "--limits", "--compare", path)
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "measuring.md")) as f:
            explained = {name.strip() for line in f if line.startswith("| ") for name in line.split("|")[1].split(",")}
        for head in [line for line in table.splitlines() if line.startswith("| test |")]:
            for column in head.strip("| ").split(" | "):
                self.assertTrue(column in explained or column in ("test", "depth", "batch"), column)

    def test_rates_are_compared_with_an_earlier_run(self):
        path = os.path.join(FOLDER.name, "before.json")
        with open(path, "w") as f:
            f.write(bench(*SMALL, "--no-drive", "-o", "json"))
        decode = rows("--no-drive", "--compare", path)[1]
        with open(path) as f:
            before = json.load(f)["rows"][1]
        self.assertAlmostEqual(decode["rate_against_before"], decode["tokens_per_second"] / before["tokens_per_second"])
        self.assertIsNone(rows("--no-drive", "--compare", path, "-n", "5")[1]["rate_against_before"])
        p = harness.run(PROGRAM, "bench", *SMALL, "--compare", __file__)
        self.assertEqual(p.returncode, 3)


if __name__ == "__main__":
    harness.main()
