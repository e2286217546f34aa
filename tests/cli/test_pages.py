#!/usr/bin/env python3
"""What is made of the tables of commands and options: help, man pages, completion. They are compared with one another.

usage: test_pages.py PROGRAM
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

PROGRAM = os.path.abspath(sys.argv.pop(1))


def run(*arguments, **more):
    p = harness.run(PROGRAM, *arguments, **more)
    if p.returncode:
        raise AssertionError(p.stderr)
    return p.stdout.decode()


def words(*typed, **more):
    return run("completion", "--words", "--", *typed, **more).split("\n")[:-1]


def commands():
    return re.findall(r"^  ([a-z-]+) ", run("help"), re.M)


def options(command):
    """Names in help, and the values of closed sets."""
    return dict(re.findall(r"^  (?:-\w,|   ) --([a-z0-9-]+)(?: ([^\s]+))?", run("help", command), re.M))


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        run("help", "--man", cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, name):
        with open(os.path.join(self.folder.name, name)) as f:
            return f.read()

    def test_there_is_a_page_for_every_command(self):
        want = {"swiftlet.1", "swiftlet-config.5"} | {"swiftlet-%s.1" % c for c in commands()}
        self.assertEqual(set(os.listdir(self.folder.name)), want)
        for c in commands():
            self.assertIn("swiftlet\\-" + c.replace("-", "\\-"), self.page("swiftlet.1"))

    def test_pages_have_the_options_of_help(self):
        for c in commands():
            in_page = re.findall(r"^\.B .*?\\-\\-((?:[a-z0-9]|\\-)+)", self.page("swiftlet-%s.1" % c), re.M)
            self.assertEqual([n.replace("\\-", "-") for n in in_page], list(options(c)), c)

    def test_pages_are_without_warnings(self):
        checkers = [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-Tutf8", "-ww", "-z"]]
        checkers = [c for c in checkers if shutil.which(c[0])]
        if not checkers:
            self.skipTest("neither mandoc nor groff is there")
        for name in sorted(os.listdir(self.folder.name)):
            for checker in checkers:
                p = subprocess.run([*checker, os.path.join(self.folder.name, name)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=harness.environment())
                said = [s for s in p.stdout.decode().splitlines() if "missing date" not in s]
                self.assertEqual(said, [], name)


class Completion(unittest.TestCase):
    def test_commands_options_values(self):
        self.assertLessEqual({"chat", "run", "generate"}, set(words("")))
        self.assertEqual(words("gen"), ["generate"])
        for c in commands():
            offered = {w[2:] for w in words(c, "--")}
            self.assertEqual({o[3:] if o.startswith("no-") else o for o in offered}, set(options(c)), c)
            for name, value in options(c).items():
                if "|" in value:
                    self.assertEqual(words(c, "--" + name, ""), value.split("|"))
                    self.assertEqual(words(c, "--" + name + "="), ["--%s=%s" % (name, v) for v in value.split("|")])
                    self.assertEqual(words(c, "--" + name, "="), value.split("|"))
        self.assertEqual(words("help", "tok"), ["tokenize"])
        self.assertEqual(words("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(words("chat", "--file", ""), [":files"])
        self.assertEqual(words("nonsense", ""), [])

    def test_installed_models_are_offered(self):
        with tempfile.TemporaryDirectory() as home:
            os.makedirs(os.path.join(home, "models", "org--name.qpack"))
            open(os.path.join(home, "models", "org--name.qpack", "config.json"), "w").close()
            for typed in [["chat", ""], ["info", "org"], ["info", "-m", ""], ["info", "--model", "o"]]:
                self.assertEqual(words(*typed, SWIFTLET_HOME=home), ["org/name", ":folders"], typed)

    def test_scripts_are_well_formed(self):
        for shell in ["bash", "zsh", "fish"]:
            if shutil.which(shell):
                subprocess.run([shell, "-n", "/dev/stdin"], input=run("completion", shell).encode(), check=True)

    def test_bash_completes_with_it(self):
        if not shutil.which("bash"):
            self.skipTest("no bash")
        script = run("completion", "bash") + """
compopt() { :; }
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _swiftlet; echo "${#COMPREPLY[@]} ${COMPREPLY[*]}"; }
try "$P" gener
try "$P" info --io u
try "$P" info --io = thr
cd "$D"
try "$P" generate --file a
"""
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "a b"), "w").close()
            p = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, env=harness.environment(P=PROGRAM, D=folder))
        self.assertEqual(p.stdout.decode().splitlines(), ["1 generate", "1 uring", "1 threads", "1 a b"])


harness.main()
