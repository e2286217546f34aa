#!/usr/bin/env python3
"""The command line on a scripted engine: options, streams, exit codes, signals, terminals.

usage: test_options.py PROGRAM     (the program built with scripted.c)
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import harness

PROGRAM = sys.argv.pop(1)
MODEL = tempfile.mkdtemp(prefix="swiftlet-test-")  # the scripted engine reads nothing from it
COMMANDS = ["chat", "generate", "pull", "repack", "verify", "eval", "ls", "info", "rm", "bench", "serve",
            "doctor", "tokenize", "template", "dump-tensor", "ps", "health", "launch", "completion", "help", "version"]

# swl_status: exit code, as cli-web.md section 4 has them
STATUS = {1: 1, 2: 2, 3: 4, 4: 4, 5: 3, 6: 3, 7: 6, 8: 1, 9: 5, 10: 130, 11: 1}


def run(*arguments, **more):
    return harness.run(PROGRAM, *arguments, **more)


def requests_of(*arguments, **more):
    """What the engine was asked, one request an answer."""
    with tempfile.NamedTemporaryFile() as log:
        p = run(*arguments, SCRIPT_REQUESTS=log.name, **more)
        if p.returncode:
            raise AssertionError(p.stderr)
        return [json.loads(line) for line in log.read().splitlines()]


def asked(*arguments, **more):
    """The text of each request, or its messages as (role, content)."""
    return [r["text"] if r["text"] is not None else [(m["role"], m["content"]) for m in json.loads(r["messages"])]
            for r in requests_of(*arguments, **more)]


class Help(unittest.TestCase):
    def test_alone_prints_ten_lines(self):
        p = run()
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        self.assertEqual(p.stdout.count(b"\n"), 10)
        for word in COMMANDS:
            self.assertIn(word.encode(), p.stdout)

    def test_every_command_explains_itself_in_two_ways(self):
        for command in COMMANDS:
            a, b = run("help", command), run(command, "--help")
            self.assertEqual(a.stdout, b.stdout)
            self.assertEqual((a.returncode, b.returncode), (0, 0))
            self.assertIn(b"usage: swiftlet " + command.encode(), a.stdout)
            self.assertLessEqual(max(map(len, a.stdout.decode().splitlines())), 110)

    def test_an_alias_is_explained_as_its_command(self):
        self.assertEqual(run("help", "run").stdout, run("help", "chat").stdout)

    def test_version_is_the_projects(self):
        text = run("version").stdout.decode()
        self.assertRegex(text, r"^swiftlet \d+\.\d+\.\d+\n$")
        self.assertEqual(json.loads(run("version", "--json").stdout)["swiftlet"], text.split()[1])
        self.assertEqual(run("--version").stdout.decode(), text)

    def test_licences_name_every_library(self):
        text = run("version", "--licenses").stdout
        for name in [b"jansson", b"PCRE2", b"utf8proc", b"libcrypto"]:
            self.assertIn(name, text)

    def test_every_option_that_help_names_is_accepted(self):
        for command in COMMANDS:
            for name, value in re.findall(r"^  (?:-\w,|   ) --([a-z0-9-]+)( [A-Z])?", run("help", command).stdout.decode(),
                                          re.M):
                p = run(command, "--" + name, *(["1"] if value else []), "--help")
                self.assertNotIn(b"unknown option", p.stderr, name)


class Usage(unittest.TestCase):
    def fails(self, says, *arguments, **more):
        p = run(*arguments, **more)
        self.assertEqual((p.returncode, p.stdout), (2, b""), p.stderr)
        self.assertIn(says.encode(), p.stderr)
        self.assertEqual(p.stderr.count(b"\n"), 1)

    def test_unknown_commands_get_the_nearest_name(self):
        self.fails('did you mean "generate"?', "genrate")
        self.fails('did you mean "tokenize"?', "token")
        self.fails('"swiftlet help" lists', "xyzzy")

    def test_unknown_options_get_the_nearest_name(self):
        for far in ["--foo", "--abcd", "--x"]:
            p = run("generate", MODEL, far, "1")
            self.assertIn(b"unknown option", p.stderr)
            self.assertNotIn(b"did you mean", p.stderr)
        self.fails("did you mean --temp?", "generate", MODEL, "--tmep", "1")
        self.fails("did you mean --max-tokens?", "generate", MODEL, "--max-token=1")
        self.fails('"swiftlet help generate" lists', "generate", MODEL, "--xyzzy")
        self.fails("unknown option -x", "generate", MODEL, "-qx")

    def test_an_option_of_another_command_is_said_to_be_that(self):
        self.fails('does not belong to "info"', "info", MODEL, "--temp", "1")

    def test_a_missing_value_is_named(self):
        self.fails("--max-tokens needs a value", "generate", MODEL, "-n")

    def test_values_are_checked_against_their_range(self):
        for option, value in [("--temp", "x"), ("--temp", "-1"), ("--temp", "nan"), ("--temp", "0x1"), ("--top-p", "1.5"),
                              ("--top-k", "-1"), ("--top-k", "1.5"), ("--max-tokens", "99999999999"), ("--seed", "-1"),
                              ("--seed", "18446744073709551616"), ("--memory", "4X"), ("--memory", "0"), ("--memory", "-1G"),
                              ("--memory", "1e30G"), ("--memory", "4GiBs"), ("--min-p", ""), ("--threads", "1025"),
                              ("--prefill-chunk", "4097"), ("--io-depth", "129"), ("--lookahead", "5")]:
            self.fails(option + " is", "generate", MODEL, "-p", "x", option, value)

    def test_kernel_levels_are_those_of_this_architecture(self):
        levels = {"x86_64": ["scalar", "avx2", "avxvnni", "avx512"], "aarch64": ["scalar", "neon", "dotprod", "i8mm"]}[os.uname().machine]
        foreign = "neon" if "avx2" in levels else "avx2"
        self.fails("--cpu-mask is %s, expected %s" % (foreign, "|".join(levels)), "generate", MODEL, "-p", "x", "--cpu-mask", foreign)
        self.assertIn(("--cpu-mask " + "|".join(levels)).encode(), run("help", "generate").stdout)

    def test_a_value_after_a_switch_must_be_on_or_off(self):
        self.fails("expected on or off", "generate", MODEL, "-p", "x", "--exact=maybe")

    def test_bits_and_groups_are_closed_sets(self):
        self.fails("expected 4 or 8", "repack", "a", "--output", "b", "--bits", "5")
        self.fails("expected 32, 64 or 128", "repack", "a", "--output", "b", "--group", "48")

    def test_benchmarks_say_what_they_need(self):
        self.fails("nothing to measure", "bench")
        self.fails("only one can be measured", "bench", MODEL, "--synthetic", "tiny")
        self.fails("need --synthetic", "bench", MODEL, "--in-memory")
        self.fails("expected md, csv, json or jsonl", "bench", MODEL, "-o", "xml")
        self.fails("expected model, uniform, same, fitted or a file", "bench", MODEL, "--routes", "best")
        self.fails("no routes", "bench", "cache")
        for kind in ["uniform", "same", "model"]:
            self.fails("expected fitted or a file", "bench", "cache", "--routes", kind)
        self.fails("from 8 to 256", "bench", "cache", "--routes", "fitted", "--slots", "4")
        for option, values in [("-p", ["", "x", "1,", ",1", "-1", "1,,2", "99999999999", ",".join(["1"] * 17)]),
                               ("-b", ["0", "65"]), ("-d", ["1 2"]), ("-n", ["1.5"])]:
            for value in values:
                self.fails("is", "bench", MODEL, option, value)

    def test_operands_are_counted(self):
        self.fails("too few operands", "eval", MODEL)
        self.fails("one operand too many", "info", MODEL, "extra")
        self.fails("one operand too many", "info", "-m", MODEL, "extra")
        self.fails("one operand too many; usage: swiftlet ls [OPTION", "ls", "extra")
        self.fails("too few operands", "dump-tensor", MODEL)

    def test_a_prompt_has_one_source(self):
        self.fails("only one of", "generate", MODEL, "-p", "x", "--ids", "1")

    def test_bad_id_lists_are_refused(self):
        self.fails('"99999999999999999999" is not a token id', "generate", MODEL, "--ids", "1,99999999999999999999")
        self.fails('"%s..." is not a token id' % ("9" * 40), "generate", MODEL, "--ids", "9" * 41)
        for ids in ["", "1,", "1,,2", "a", "1 2", "-1", "99999999999"]:
            self.fails("--ids", "generate", MODEL, "--ids", ids)

    def test_a_chat_without_a_message_is_an_error_away_from_a_terminal(self):
        self.fails("no message", "chat", MODEL)

    def test_with_json_usage_errors_are_json(self):
        p = run("generate", MODEL, "--tmep", "1", "--json")
        self.assertEqual((p.returncode, p.stderr), (2, b""))
        self.assertEqual(json.loads(p.stdout)["error"]["code"], "argument")


class Values(unittest.TestCase):
    def figures(self, *arguments, **env):
        return json.loads(run("generate", MODEL, "-p", "x", "--json", *arguments, **env).stdout)

    def test_spellings_of_one_option_are_equal(self):
        for spelling in [["--max-tokens", "3"], ["--max-tokens=3"], ["-n", "3"], ["-n3"], ["--max-new", "3"], ["-qn3"]]:
            self.assertEqual(self.figures(*spelling)["generated_tokens"], 3, spelling)

    def test_options_may_stand_before_operands_and_end_with_two_dashes(self):
        self.assertEqual(asked("chat", "-q", MODEL, "--", "-n"), [[("user", "-n")]])

    def test_the_environment_sets_what_no_option_does(self):
        self.assertEqual(self.figures(SWIFTLET_MAX_TOKENS="4")["generated_tokens"], 4)
        self.assertEqual(self.figures("-n", "2", SWIFTLET_MAX_TOKENS="4")["generated_tokens"], 2)
        self.assertEqual(self.figures(SWIFTLET_MAX_TOKENS="")["generated_tokens"], 13)

    def test_a_bad_value_in_the_environment_is_named(self):
        p = run("generate", MODEL, "-p", "x", SWIFTLET_TEMP="hot")
        self.assertEqual(p.returncode, 2)
        self.assertIn(b"SWIFTLET_TEMP is hot", p.stderr)

    def test_a_switch_from_the_environment_can_be_switched_off(self):
        self.assertEqual(run("info", MODEL, "--no-json", SWIFTLET_JSON="1").stdout[:6], b"family")

    def test_generate_is_greedy_until_sampling_is_asked_for(self):
        self.assertEqual(self.figures()["temperature"], 0)
        self.assertEqual(self.figures("--top-k", "5")["temperature"], 0.75)  # the script's published default
        self.assertEqual(self.figures("--temp", "0.5")["temperature"], 0.5)
        self.assertEqual(self.figures("--temp", "0.5", "--greedy")["temperature"], 0)
        self.assertEqual(self.figures(SWIFTLET_TEMP="0.25")["temperature"], 0.25)

    def test_chat_takes_the_models_sampling(self):
        def temperature(*more):
            return json.loads(run("chat", MODEL, "x", "--json", *more).stdout)["temperature"]
        self.assertEqual([temperature(), temperature("--greedy"), temperature("--temp", "0.5")], [0.75, 0, 0.5])

    def test_a_seed_is_kept_and_otherwise_random(self):
        self.assertEqual(self.figures("--seed", "9223372036854775807")["seed"], 9223372036854775807)
        self.assertNotEqual(self.figures("--temp", "1")["seed"], self.figures("--temp", "1")["seed"])

    def test_sizes_are_binary_and_bound_the_process(self):
        for text, size in [("512M", 512 << 20), ("4G", 4 << 30), ("1.5GiB", 3 << 29), ("64kB", 65536), ("1000", 1000),
                           ("2t", 2 << 40)]:
            plans = json.loads(run("info", MODEL, "--json", "--memory", text).stdout)["memory"]
            self.assertEqual([p["limit_bytes"] for p in plans if p["default"]], [size])
            self.assertEqual([p["limit_bytes"] >> 30 for p in plans if not p["default"]], [2, 4, 8, 16])

    def test_cache_gb_only_lowers_the_pool(self):
        def slots(gigabytes):  # of the script's 1 GB, a row of slots takes a tenth, and eight fit
            p = run("info", MODEL, "--json", "--cache-gb", gigabytes)
            return json.loads(p.stdout)["pool_slots"], p.stderr.count(b"more does not fit")
        self.assertEqual([slots("0.35"), slots("0.01"), slots("0.8")], [(3, 0), (1, 0), (8, 0)])
        self.assertEqual(slots("8"), (8, 1))

    def test_model_by_option_operand_and_environment(self):
        def family(*arguments, **env):
            p = run("info", *arguments, **env)
            return p.stdout.split()[1:2] or p.stderr
        for how in [family(MODEL), family("-m", MODEL), family("--model=" + MODEL), family(SWIFTLET_MODEL=MODEL),
                    family(MODEL, SWIFTLET_MODEL="/nowhere")]:
            self.assertEqual(how, [b"scripted"])

    def test_options_of_the_swift_program_are_accepted(self):
        p = run("generate", MODEL, "--gpu", "--chat", "--prompt", "hi", "--max-new", "32", "--lazy", "--prefill-chunk", "0")
        self.assertEqual((p.returncode, p.stdout), (0, b"Hello, world."))
        self.assertEqual(p.stderr.count(b"\n"), 1)
        self.assertIn(b"no GPU engine", p.stderr)
        self.assertEqual(run("chat", MODEL, "turn", "--max-new", "256", "--greedy", "--system", "S").returncode, 0)


class Names(unittest.TestCase):
    def called(self, name, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, name)
            os.symlink(os.path.abspath(PROGRAM), link)
            return harness.run(link, *arguments)

    def test_swiftlet_repack_is_the_repack_command(self):
        p = self.called("swiftlet-repack", "--source", "a", "--output", "b")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b"wrote b", p.stderr)

    def test_swiftlet_server_is_serve(self):
        p = self.called("swiftlet-server", "--model", MODEL, "--host", "0.0.0.0")
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertIn(b"API key", p.stderr)


class Streams(unittest.TestCase):
    def test_standard_output_holds_the_answer_and_nothing_else(self):
        text = "caf\u00e9 \x1b[31m\r\n\t\u009b done"
        p = run("generate", MODEL, "-p", "x", "--stats", "-v", SCRIPT_TEXT=text)
        self.assertEqual(p.stdout, text.encode())
        self.assertIn(b"t/s", p.stderr)

    def test_statistics_only_when_asked_away_from_a_terminal(self):
        self.assertEqual(run("generate", MODEL, "-p", "x").stderr, b"")

    def test_answers_of_a_chat_end_with_a_newline(self):
        """One after the other, in one run or in several, they stay apart; generate writes the model's bytes alone."""
        self.assertEqual(run("chat", MODEL, "a", "b", SCRIPT_TEXT="one").stdout, b"one\none\n")
        self.assertEqual(run("chat", MODEL, stdin=b"a", SCRIPT_TEXT="one").stdout, b"one\n")
        self.assertEqual(run("generate", MODEL, "--chat", stdin=b"a", SCRIPT_TEXT="one").stdout, b"one")

    def test_json_is_one_object_a_line_and_begins_with_the_version(self):
        p = run("chat", MODEL, "a", "b", "--json", SCRIPT_TEXT="one")
        rows = p.stdout.splitlines()
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertTrue(row.startswith(b'{"version":1,'))
            self.assertEqual(json.loads(row)["text"], "one")

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            p = subprocess.run([PROGRAM, "generate", MODEL, "-p", "x"], stdout=full, stderr=subprocess.PIPE,
                               env=harness.environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, 4)
        self.assertIn(b"No space left", p.stderr)

    def test_a_closed_pipe_ends_the_program_quietly(self):
        p = subprocess.Popen([PROGRAM, "generate", MODEL, "-p", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=harness.environment(SCRIPT_DELAY_MS="20"), stdin=subprocess.DEVNULL)
        p.stdout.read(1)
        p.stdout.close()
        self.assertEqual(p.stderr.read(), b"")
        p.stderr.close()
        self.assertEqual(p.wait(), -signal.SIGPIPE)

    def test_closed_streams_do_no_harm(self):
        for redirections in ["<&-", "2>&-", "<&- 2>&-"]:
            p = subprocess.run(["sh", "-c", '"$0" generate "$1" -p x ' + redirections, PROGRAM, MODEL],
                               stdout=subprocess.PIPE, env=harness.environment())
            self.assertEqual((p.returncode, p.stdout), (0, b"Hello, world."))


class Input(unittest.TestCase):
    def test_prompts_from_option_file_and_pipe_are_the_same(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"some text")
            f.flush()
            for p in [["-p", "some text"], ["-f", f.name]]:
                self.assertEqual(asked("generate", MODEL, *p), ["some text"])
            for p in [[], ["-f", "-"]]:
                self.assertEqual(asked("generate", MODEL, *p, stdin=b"some text"), ["some text"])

    def test_a_byte_order_mark_is_dropped(self):
        self.assertEqual(asked("generate", MODEL, stdin=b"\xef\xbb\xbftext"), ["text"])

    def test_what_is_not_utf8_is_refused_with_its_offset(self):
        for text, at in [(b"ab\xff", 2), (b"\xc3", 0), (b"a\xed\xa0\x80", 1), (b"\xc0\x80", 0), (b"\xf4\x90\x80\x80", 0)]:
            p = run("generate", MODEL, "--json", stdin=text)
            self.assertEqual(p.returncode, 2)
            self.assertEqual(json.loads(p.stdout)["error"]["offset"], at)

    def test_a_missing_file_is_named(self):
        p = run("generate", MODEL, "-f", "/nowhere/x.txt", "--json")
        self.assertEqual(p.returncode, 3)
        self.assertEqual(json.loads(p.stdout)["error"]["file"], "/nowhere/x.txt")

    def test_an_empty_prompt_is_an_error(self):
        self.assertEqual(run("generate", MODEL).returncode, 2)

    def test_piped_text_is_appended_to_the_turn(self):
        self.assertEqual(asked("chat", MODEL, "summarise", stdin=b"a file\n"), [[("user", "summarise\n\na file\n")]])
        self.assertEqual(asked("chat", MODEL, stdin=b" a\nfile "), [[("user", " a\nfile ")]])

    def test_tokens_of_bytes_that_are_no_characters_are_lists(self):
        p = run("tokenize", MODEL, "\u00e9\n", "--json")
        self.assertEqual([t["piece"] for t in json.loads(p.stdout)["tokens"]], [[0xc3], [0xa9], "\n"])
        self.assertEqual(run("tokenize", MODEL, stdin="\u00e9\n\"".encode()).stdout.decode().split(),
                         ["195", r'"\xc3"', "169", r'"\xa9"', "10", r'"\n"', "34", r'"\""'])


class Conversation(unittest.TestCase):
    def test_every_turn_is_asked_with_what_went_before(self):
        first = [("system", "S"), ("user", "a")]
        self.assertEqual(asked("chat", MODEL, "a", "b", "-s", "S", SCRIPT_TEXT="one"),
                         [first, first + [("assistant", "one"), ("user", "b")]])

    def test_a_system_message_may_come_from_a_file(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"from a file")
            f.flush()
            for command in [["chat", MODEL, "a"], ["generate", MODEL, "--chat", "-p", "a"]]:
                self.assertEqual(asked(*command, "--system-file", f.name), [[("system", "from a file"), ("user", "a")]])
                self.assertEqual(asked(*command, "-s", "S", SWIFTLET_SYSTEM_FILE=f.name), [[("system", "S"), ("user", "a")]])

    def test_options_reach_the_request(self):
        r = requests_of("chat", MODEL, "a", "--think", "low", "-n", "5", "--temp", "0.5", "--top-k", "3", "--top-p", "0.25",
                        "--min-p", "0.125", "--repeat-penalty", "1.5", "--presence-penalty", "0.5", "--frequency-penalty", "-0.5",
                        "--seed", "9", "--stop", "x", "--stop", "y")[0]
        want = {"think": 3, "n_max": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.25, "min_p": 0.125, "repetition_penalty": 1.5,
                "presence_penalty": 0.5, "frequency_penalty": -0.5, "seed": 9, "stop": ["x", "y"], "constrain": 0}
        self.assertEqual({k: r[k] for k in want}, want)
        r = requests_of("generate", MODEL, "--chat", "-p", "a", "--greedy", "--repeat-penalty", "2", "--presence-penalty", "1")[0]
        self.assertEqual((r["temperature"], r["repetition_penalty"], r["presence_penalty"], r["n_max"]), (0, 1, 0, -1))

    def test_a_schema_constrains_the_answer(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(b'{"type": "object"}')
            f.flush()
            r = requests_of("chat", MODEL, "a", "--json-schema", f.name)[0]
            self.assertEqual((r["constrain"], r["constraint"]), (2, '{"type": "object"}'))
            self.assertEqual(run("generate", MODEL, "-p", "a", "--json-schema", f.name, SCRIPT_JSON='{"a":1}').stdout, b'{"a":1}')
            f.write(b'"$recursiveRef"')
            f.flush()
            p = run("chat", MODEL, "a", "--json-schema", f.name)
            self.assertEqual((p.returncode, p.stdout), (6, b""))

    def test_probabilities_come_with_json(self):
        p = json.loads(run("generate", MODEL, "-p", "x", "--json", "--logprobs", "2", SCRIPT_TEXT="!a").stdout)
        self.assertEqual(p["ids"], [33, 97])
        self.assertEqual(p["logprobs"][1], {"id": 97, "token": "a", "logprob": -0.125, "top": [
            {"id": 32, "token": " ", "logprob": -0.5}, {"id": 33, "token": "!", "logprob": -1.0}]})
        self.assertEqual(run("generate", MODEL, "-p", "x", "--logprobs", "2").returncode, 2)

    def test_thoughts_are_no_part_of_the_answer(self):
        script = {"SCRIPT_TEXT": "<think>let me see</think>It is so."}
        p = run("chat", MODEL, "x", **script)
        self.assertEqual((p.stdout, p.stderr), (b"It is so.\n", b""))
        p = run("chat", MODEL, "x", "--show-thinking", **script)
        self.assertEqual((p.stdout, p.stderr), (b"It is so.\n", b"let me see\n\n"))
        o = json.loads(run("chat", MODEL, "x", "--json", **script).stdout)
        self.assertEqual((o["text"], o["reasoning"], o["reasoning_tokens"]), ("It is so.", "let me see", 10))
        self.assertEqual(run("chat", MODEL, "x", "--think", "off", "--show-thinking", **script).stderr, b"")

    def test_conversations_are_saved_and_resumed(self):
        with tempfile.TemporaryDirectory() as home:
            env = {"SWIFTLET_HOME": home, "SCRIPT_TEXT": "one"}
            asked("chat", MODEL, "a", "-s", "S", "--save", "my talk", **env)
            self.assertEqual(os.listdir(os.path.join(home, "state", "sessions")), ["my talk.chat"])
            self.assertEqual(asked("chat", MODEL, "b", "--resume", "my talk", **env),
                             [[("system", "S"), ("user", "a"), ("assistant", "one"), ("user", "b")]])
            self.assertEqual(run("chat", MODEL, "b", "--resume", "other", **env).returncode, 3)
            for name in ["../x", "", ".x", "a/b"]:
                self.assertEqual(run("chat", MODEL, "b", "--resume", name, **env).returncode, 2)

    def test_stop_texts_end_the_answer_before_them(self):
        def text(*stops):
            p = run("generate", MODEL, "-p", "x", *[o for s in stops for o in ("--stop", s)], SCRIPT_TEXT="one two three")
            return p.stdout.decode()
        self.assertEqual(text("two"), "one ")
        self.assertEqual(text("three", "e t"), "on")
        self.assertEqual(text("threefold", "eee"), "one two three")
        self.assertEqual(text("one"), "")

    def test_states_are_saved_and_loaded(self):
        with tempfile.NamedTemporaryFile() as f:
            self.assertEqual(run("generate", MODEL, "-p", "abc", "-n", "1", "--save-state", f.name).returncode, 0)
            with tempfile.NamedTemporaryFile() as log:
                run("generate", MODEL, "-p", "d", "--load-state", f.name, SCRIPT_LOG=log.name)
                self.assertEqual(log.read(), b"4 d\n")
        for more in [["--chat"], ["--stop", "x"]]:
            p = run("generate", MODEL, "-p", "abc", "--save-state", "x", *more)
            self.assertEqual(p.returncode, 2)
            self.assertIn(more[0].encode() + b" cannot be used with a saved state", p.stderr)


class ExitCodes(unittest.TestCase):
    def test_every_status_has_its_code_and_its_message(self):
        for status, code in STATUS.items():
            p = run("info", MODEL, SCRIPT_OPEN=str(status))
            self.assertEqual((p.returncode, p.stdout), (code, b""), status)
            if status != 10:
                self.assertIn(b"SCRIPT_OPEN of the script", p.stderr)

    def test_errors_of_other_calls_count_as_well(self):
        self.assertEqual(run("generate", MODEL, "-p", "x", SCRIPT_ENGINE="4").returncode, 4)
        p = run("generate", MODEL, "-p", "x", SCRIPT_FAIL_AT="3")
        self.assertEqual((p.returncode, p.stdout), (1, b"Hel"))
        self.assertIn(b"a read failed as scripted", p.stderr)
        p = run("generate", MODEL, "-p", "x" * 100, "--ctx", "64")
        self.assertEqual((p.returncode, p.stdout), (4, b""))
        self.assertEqual(run("repack", "a", "--output", "b", SCRIPT_REPACK="7").returncode, 6)

    def test_json_errors_name_code_file_and_offset(self):
        p = run("info", MODEL, "--json", SCRIPT_OPEN="6")
        self.assertEqual(json.loads(p.stdout), {"version": 1, "error": {
            "code": "corrupt", "message": "SCRIPT_OPEN of the script", "file": "scripted.bin", "offset": 7}})
        self.assertEqual(p.stderr, b"")

    def test_names_that_are_not_utf8_are_reported_all_the_same(self):
        error = json.loads(run("info", b"/nowhere/\xff\xc3x", "--json").stdout)["error"]
        self.assertEqual(error["file"], "/nowhere/??x")

    def test_a_missing_model_is_named(self):
        p = run("generate", "/nowhere", "-p", "x")
        self.assertEqual(p.returncode, 3)
        self.assertIn(b"/nowhere", p.stderr)

    def test_a_mismatch_is_1_and_names_the_first_bad_layer(self):
        p = run("verify", MODEL, "ref", SCRIPT_VERIFY="11")
        self.assertEqual(p.returncode, 1)
        self.assertRegex(p.stdout.decode(), r"embed .* ok\nlayer_00 .* DIFFERS\n")
        p = run("verify", MODEL, "ref", "--json", "--tolerance", "0.5", SCRIPT_VERIFY="11")
        self.assertEqual(p.returncode, 1)
        o = json.loads(p.stdout)
        self.assertEqual((o["ok"], o["first_bad"], o["tolerance"], o["tensors"][1]["diff_max"]), (False, "layer_00", 0.5, 1))
        self.assertEqual(run("verify", MODEL, "ref").returncode, 0)


class Signals(unittest.TestCase):
    def started(self, command, stdin=subprocess.DEVNULL):
        """A process that is in the middle of its work, however busy the machine is."""
        with tempfile.TemporaryDirectory() as folder:
            ready = os.path.join(folder, "ready")
            p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin,
                                 env=harness.environment(SCRIPT_DELAY_MS="40", SCRIPT_PROMPT_MS="40", SCRIPT_READY=ready, **self.env))
            harness.wait_until(lambda: os.path.exists(ready) or p.poll() is not None)
        return p

    def interrupted(self, number, *arguments, **env):
        self.env = env
        p = self.started([PROGRAM, *arguments])
        p.send_signal(number)
        out, err = p.communicate(timeout=60)  # a stop that is not heeded shows in the answer, which is whole then
        return p.returncode, out, err

    def test_an_answer_stops_with_128_and_the_signal_and_keeps_its_text(self):
        for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]:
            got, out, err = self.interrupted(number, "generate", MODEL, "-p", "x", SCRIPT_TEXT="abc" * 100)
            self.assertEqual((got, err), (code, b""))
            self.assertTrue(out and ("abc" * 100).encode().startswith(out) and len(out) < 300)

    def test_json_of_a_stopped_answer_says_so(self):
        got, out, _ = self.interrupted(signal.SIGINT, "generate", MODEL, "-p", "x", "--json", SCRIPT_TEXT="abc" * 100)
        self.assertEqual((got, json.loads(out)["finish"]), (130, "cancelled"))

    def test_reading_the_prompt_stops(self):
        got, out, _ = self.interrupted(signal.SIGINT, "chat", MODEL, "x" * 4000)  # ten seconds of it: a busy machine stops it in the middle too
        self.assertEqual((got, out), (130, b""))

    def test_a_conversion_stops(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            got, _, err = self.interrupted(number, "repack", "a", "--output", "b", SCRIPT_STEPS="250")  # likewise
            self.assertEqual(got, 128 + number)
            self.assertNotIn(b"wrote", err)

    def test_a_hangup_that_is_ignored_stays_ignored(self):
        self.env = {}
        p = self.started(["sh", "-c", 'trap "" HUP; exec "$0" generate "$1" -p x', PROGRAM, MODEL])
        p.send_signal(signal.SIGHUP)
        self.assertEqual(p.communicate(timeout=60)[0], b"Hello, world.")
        self.assertEqual(p.returncode, 0)

    def test_waiting_for_input_stops(self):
        p = subprocess.Popen([PROGRAM, "generate", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env=harness.environment())
        harness.wait_until(lambda: harness.catches(p.pid, signal.SIGINT))
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(60), 130)
        p.stdin.close()
        p.stdout.close()


class AtATerminal(unittest.TestCase):
    def test_control_characters_are_shown_and_not_sent(self):
        t = harness.Terminal(PROGRAM, "generate", MODEL, "-p", "x", SCRIPT_TEXT="a\x1b]0;t\x07b\rc\x7fd\u009b2Je\tf\ng")
        self.assertEqual(t.finish(), 0)
        self.assertIn(b"a^[]0;t^Gb^Mc^?d^[[2Je\tf\r\ng\r\n", t.seen)

    def test_control_characters_in_messages_are_shown_and_not_sent(self):
        t = harness.Terminal(PROGRAM, "generate", MODEL, "-p", "x", "--top-k", "\x1b[2J")
        self.assertEqual(t.finish(), 2)
        self.assertIn(b"--top-k is ^[[2J, expected", t.seen)
        self.assertNotIn(b"\x1b", t.seen)

    def test_statistics_come_after_the_answer(self):
        t = harness.Terminal(PROGRAM, "generate", MODEL, "-p", "x", NO_COLOR="1")
        self.assertEqual(t.finish(), 0)
        self.assertRegex(t.seen.decode(), r"Hello, world\.\r\n13 tok  [\d.]+ t/s \| prompt 1 \(0 cached\) .* \| ttft .* ctx 0%\r\n$")
        t = harness.Terminal(PROGRAM, "generate", MODEL, "-q", "-p", "x", "--no-stats")
        t.finish()
        self.assertEqual(t.seen, b"Hello, world.\r\n")


harness.main()
