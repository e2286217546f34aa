#!/usr/bin/env python3
"""Where values come from (option, environment, config file, model), folders, names of installed models, colours, the log.

usage: test_settings.py PROGRAM     (the program built with scripted.c)
"""
import json
import os
import re
import sys
import tempfile
import unittest

import harness

PROGRAM = sys.argv.pop(1)
MODEL = tempfile.mkdtemp(prefix="swiftlet-test-")

# A value for each kind of placeholder that help shows, and the command that shows the option.
VALUES = {"URL": "http://nowhere/", "PATTERN": "*",
          "ADDRESS": "::1", "KEY": "secret", "NAME": "name", "NAME,...": "a,b", "ORIGIN,...": "http://a",
          "N": "7", "X": "0.5", "SIZE": "3G", "TEXT": "some text", "FILE": "/nowhere/file", "DIR": "/nowhere", "MODEL": MODEL,
          "TIME": "5m"}


class Home(unittest.TestCase):
    """A SWIFTLET_HOME of its own for every test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name

    def configure(self, text):
        self.file = os.path.join(self.home, "config.ini")
        with open(self.file, "w") as f:
            f.write(text)

    def run_(self, *arguments, **more):
        return harness.run(PROGRAM, *arguments, **{"SWIFTLET_HOME": self.home, **more})

    def figures(self, *arguments, **more):
        p = self.run_("generate", MODEL, "-p", "x", "--json", *arguments, **more)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        return json.loads(p.stdout)

    def settings(self, *arguments, **more):
        p = self.run_("info", "--config", "--json", *arguments, **more)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        return json.loads(p.stdout)


class Precedence(Home):
    def test_option_environment_file_and_model_in_this_order(self):
        self.configure("temp = 0.25\n")
        self.assertEqual(self.figures("--temp", "0.5", SWIFTLET_TEMP="0.375")["temperature"], 0.5)
        self.assertEqual(self.figures(SWIFTLET_TEMP="0.375")["temperature"], 0.375)
        self.assertEqual(self.figures()["temperature"], 0.25)
        self.configure("")
        self.assertEqual(self.figures("--top-k", "4")["temperature"], 0.75)  # what the script publishes
        self.assertEqual(self.figures()["temperature"], 0)

    def test_a_section_is_stronger_than_the_general_part_and_counts_for_its_command(self):
        self.configure("max-tokens = 3\n[generate]\nmax-tokens = 5\n[chat]\nmax-tokens = 2\n")
        self.assertEqual(self.figures()["generated_tokens"], 5)
        self.assertEqual(json.loads(self.run_("chat", MODEL, "x", "--json").stdout)["generated_tokens"], 2)
        self.configure("[run]\nmax-tokens = 4\n")  # the alias of chat
        self.assertEqual(json.loads(self.run_("chat", MODEL, "x", "--json").stdout)["generated_tokens"], 4)

    def test_greedy_in_the_file_gives_way_to_a_temperature_on_the_command_line(self):
        self.configure("greedy = on\n")
        self.assertEqual(self.figures("--temp", "0.5")["temperature"], 0.5)
        self.assertEqual(self.figures(SWIFTLET_TEMP="0.5")["temperature"], 0.5)
        self.assertEqual(self.figures("--temp", "0.5", "--greedy")["temperature"], 0)

    def test_every_option_can_be_set_where_it_says_so(self):
        """The same value from the option, the environment and the file; origins tell them apart."""
        seen = set()
        for command in re.findall(r"^  ([a-z-]+) ", self.run_("help").stdout.decode(), re.M):
            text = self.run_("help", command).stdout.decode()
            for name, value in re.findall(r"^  (?:-\w,|   ) --([a-z0-9-]+)(?: ([A-Za-z0-9_|,.-]+))?", text, re.M):
                seen.add((command, name, value))
        listed = {row["name"] for row in self.settings()["settings"]}
        self.assertGreater(len(listed), 30)
        for command, name, value in sorted(seen):
            if name not in listed or name in ("json", "log", "api-key"):  # a key is not shown
                continue
            setting = "on" if not value else value.split("|")[-1] if "|" in value else VALUES[value]
            setting = {"bits": "8", "group": "128", "lookahead": "2", "min-p": "1", "top-p": "1"}.get(name, setting)
            self.configure("[%s]\n%s = %s\n" % (command, name, setting))
            variable = "SWIFTLET_" + name.upper().replace("-", "_")
            for how, env in [("%s:2" % self.file, {}), (variable, {variable: setting})]:
                rows = [r for r in self.settings(**env)["settings"] if r["name"] == name and r["origin"] == how]
                self.assertTrue(rows, (command, name, how))
                self.assertEqual({r["value"] for r in rows}, {setting}, (command, name, how))

    def test_config_tells_origins(self):
        self.configure("# a comment\n\ntemp = 0.25\n[chat]\nctx = 512\n")
        rows = {(r["command"], r["name"]): (r["value"], r["origin"]) for r in self.settings(SWIFTLET_THREADS="3")["settings"]}
        self.assertEqual(rows[None, "temp"], ("0.25", self.file + ":3"))
        self.assertEqual(rows["chat", "ctx"], ("512", self.file + ":5"))
        self.assertEqual(rows[None, "threads"], ("3", "SWIFTLET_THREADS"))
        self.assertEqual(rows[None, "cache-policy"][1], "built in")
        text = self.run_("info", "--config").stdout.decode()
        self.assertRegex(text, r"(?m)^temp +0\.25 +%s:3$" % re.escape(self.file))
        self.assertRegex(text, r"(?m)^\[chat\] ctx +512 ")
        rows = {r["name"]: r for r in self.settings("-m", MODEL)["settings"]}
        self.assertEqual((rows["top-k"]["value"], rows["top-k"]["origin"]), (None, "the model"))


class File(Home):
    def notes(self, text, *arguments):
        self.configure(text)
        p = self.run_("generate", MODEL, "-p", "x", *arguments)
        return p.returncode, p.stderr.decode()

    def test_unknown_keys_sections_and_lines_are_noted_with_their_number(self):
        code, text = self.notes("tmep = 1\n[nothing]\n[genrate]\ntemp = 1\n[chat]\nbits = 4\njust words\nprompt = x\n")
        self.assertEqual(code, 0)
        self.assertEqual(text, "".join("swiftlet: %s:%s\n" % (self.file, t) for t in [
            '1: unknown key "tmep"; did you mean "temp"?', "4: [genrate] is no command",
            '6: "bits" does not belong to [chat]',
            '7: expected "key = value" or [command]', '8: "prompt" cannot be set in the config file']))
        self.assertEqual(self.notes("tmep = 1\n", "-q"), (0, ""))

    def test_bad_values_are_named_with_their_line(self):
        code, text = self.notes("\ntemp = hot\n")
        self.assertEqual(code, 2)
        self.assertIn(self.file + ":2: temp is hot", text)

    def test_lists_repeat_and_quotes_keep_spaces(self):
        self.configure('stop = " two"\nstop = three\n')
        self.assertEqual(self.run_("generate", MODEL, "-p", "x", SCRIPT_TEXT="one two three").stdout, b"one")
        self.assertEqual(self.run_("generate", MODEL, "-p", "x", "--stop", "thr", SCRIPT_TEXT="one two three").stdout,
                         b"one two ")

    def test_what_is_not_utf8_is_an_error_with_its_offset(self):
        with open(os.path.join(self.home, "config.ini"), "wb") as f:
            f.write(b"temp = 1\n\xff")
        p = self.run_("info", MODEL, "--json")
        self.assertEqual((p.returncode, json.loads(p.stdout)["error"]["offset"]), (2, 9))


class Places(Home):
    def places(self, **env):
        return json.loads(self.run_("info", "--config", "--json", **env).stdout)["places"]

    def test_swiftlet_home_replaces_all(self):
        self.assertEqual({os.path.commonpath([p, self.home]) for p in self.places().values()}, {self.home})

    def test_xdg_variables_count_when_they_are_absolute(self):
        got = self.places(SWIFTLET_HOME=None, HOME="/h", XDG_CONFIG_HOME="/c", XDG_DATA_HOME="relative", XDG_CACHE_HOME=None,
                          XDG_STATE_HOME=None)
        if sys.platform != "darwin":
            self.assertEqual(got, {"config file": "/c/swiftlet/config.ini", "models": "/h/.local/share/swiftlet/models",
                                   "caches": "/h/.cache/swiftlet", "history": "/h/.local/state/swiftlet/history",
                                   "sessions": "/h/.local/state/swiftlet/sessions"})


class Models(Home):
    def setUp(self):
        super().setUp()
        for name in ["org--alpha.qpack", "org--alphabet.qpack", "beta.qpack", "new.qpack.partial"]:
            os.makedirs(os.path.join(self.home, "models", name))
            with open(os.path.join(self.home, "models", name, "config.json"), "w"):
                pass

    def test_names_prefixes_and_organisations_find_a_model(self):
        for name in ["org/alpha", "alpha", "beta", "b", "org/alphab", "alphab", "beta.qpack"]:
            self.assertEqual(self.run_("info", name).returncode, 0, name)

    def test_several_are_listed_and_none_explained(self):
        for name, says in [("alph", "org/alpha, org/alphabet"), ("gamma", "no model of that name is installed"),
                           ("some/thing", "swiftlet pull some/thing"), ("new", "no model of that name")]:
            p = self.run_("info", name)
            self.assertEqual((p.returncode, p.stdout), (3, b""), name)
            self.assertIn(says, p.stderr.decode())

    def test_without_a_name_it_is_the_only_one(self):
        p = self.run_("info")
        self.assertEqual(p.returncode, 2)
        self.assertIn(b"beta, org/alpha, org/alphabet", p.stderr)
        self.assertEqual(self.run_("info", SWIFTLET_MODEL="beta").returncode, 0)
        with tempfile.TemporaryDirectory() as home:
            p = self.run_("info", SWIFTLET_HOME=home)
            self.assertEqual(p.returncode, 3)
            self.assertIn(b"no model is installed", p.stderr)
            os.makedirs(os.path.join(home, "models", "one.qpack"))
            with open(os.path.join(home, "models", "one.qpack", "config.json"), "w"):
                pass
            self.assertEqual(self.run_("info", SWIFTLET_HOME=home).returncode, 0)


class Colors(Home):
    def error(self, *arguments, **env):
        t = harness.Terminal(PROGRAM, "info", "/nowhere", *arguments, SWIFTLET_HOME=self.home, **env)
        self.assertEqual(t.finish(), 3)
        return b"\x1b[" in t.seen

    def test_colours_only_at_a_terminal_that_can_and_unless_switched_off(self):
        self.assertTrue(self.error())
        self.assertFalse(self.error(NO_COLOR="1"))
        self.assertTrue(self.error(NO_COLOR=""))
        self.assertFalse(self.error(TERM="dumb"))
        self.assertTrue(self.error(NO_COLOR="1", CLICOLOR_FORCE="1"))
        self.assertFalse(self.error("--color", "never", CLICOLOR_FORCE="1"))
        self.assertTrue(self.error("--color=always", NO_COLOR="1"))
        self.assertNotIn(b"\x1b", self.run_("info", "/nowhere").stderr)
        self.assertIn(b"\x1b", self.run_("info", "/nowhere", CLICOLOR_FORCE="1").stderr)


class Log(Home):
    def test_notes_and_errors_are_appended_with_the_time(self):
        log = os.path.join(self.home, "log")
        for more in [[], ["--log-json"]]:
            self.run_("info", "/nowhere", "--log", log, *more)
        with open(log) as f:
            plain, row = f.read().splitlines()
        self.assertRegex(plain, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ error there is no model directory /nowhere")
        row = json.loads(row)
        self.assertEqual((row["level"], row["message"][:36]), ("error", "there is no model directory /nowhere"))

    def test_a_log_that_cannot_be_written_is_an_error(self):
        p = self.run_("info", MODEL, "--log", "/nowhere/log")
        self.assertEqual((p.returncode, p.stdout), (1, b""))
        self.assertIn(b"/nowhere/log", p.stderr)

    def test_help_needs_no_log(self):
        log = os.path.join(self.home, "log")
        for path in (log, "/nowhere/log"):
            self.assertEqual(self.run_("info", "--log", path, "--help").returncode, 0)
        self.assertFalse(os.path.exists(log))


harness.main()
