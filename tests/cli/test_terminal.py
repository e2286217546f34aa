#!/usr/bin/env python3
"""The chat at a terminal: keys, pasted text, history, signals, resizing, wide characters, what can be typed with a slash.

What is on the screen is told by pyte, a terminal emulator of others; what was sent, by the scripted engine.

usage: test_terminal.py PROGRAM     (the program built with scripted.c)
"""
import base64
import fcntl
import json
import os
import re
import signal
import stat
import struct
import sys
import tempfile
import termios
import time
import unittest

import pyte

import harness

PROGRAM = os.path.abspath(sys.argv.pop(1))
LEFT, RIGHT, UP, DOWN = b"\x1b[D", b"\x1b[C", b"\x1b[A", b"\x1b[B"
ALT_ENTER = b"\x1b\r"


class Chat(harness.Terminal):
    """A chat in a terminal of its own, of 80 columns and 24 rows unless another size is asked for."""

    def __init__(self, home, *arguments, size=(80, 24), model=None, command=None, **env):
        self.home = home
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.log = os.path.join(home, "requests")
        self.size = size
        super().__init__(*(command or [PROGRAM, "chat", model or home, *arguments]),
                         **{"SWIFTLET_HOME": home, "SCRIPT_REQUESTS": self.log, **env})

    def read(self, seconds):
        got = super().read(seconds)
        self.stream.feed(got)
        return got

    def set_size(self, columns, rows):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, condition, seconds=harness.PATIENCE):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("on the screen:\n" + self.text())
            self.read(0.05)

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines()).rstrip("\n")

    def shows(self, what, seconds=harness.PATIENCE):
        self.until(lambda: what in self.text(), seconds)

    def at_prompt(self):
        """The last line but empty ones is a prompt with nothing behind, and the cursor is there, in raw mode."""
        self.until(lambda: self.lines()[self.screen.cursor.y] == ">" and self.screen.cursor.x == 2
                   and not termios.tcgetattr(self.fd)[3] & termios.ISIG)

    def line_is(self, text):
        self.until(lambda: self.lines()[self.screen.cursor.y] == text)

    def requests(self):
        try:
            with open(self.log) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]] # what follows the last is half written
        except FileNotFoundError:
            return []

    def messages(self):
        """Of the last request."""
        return [(m["role"], m["content"]) for m in json.loads(self.requests()[-1]["messages"])]

    def sends(self, keys, expected):
        """Typed at the prompt, this is what the model gets."""
        n = len(self.requests())
        self.type(keys)
        self.until(lambda: len(self.requests()) > n)
        if self.messages()[-1] != ("user", expected):
            raise AssertionError("%r instead of %r" % (self.messages()[-1], expected))
        self.at_prompt()

    def leave(self):
        self.at_prompt()
        self.type(b"\x04")
        return self.finish()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name

    def chat(self, *arguments, **more):
        c = Chat(self.home, "-q", "--no-stats", *arguments, **{"SCRIPT_TEXT": "So.", **more})
        if "size" in more:
            c.set_size(*more["size"])
        self.addCleanup(self.end, c)
        return c

    def loud(self, *arguments, **more):
        c = Chat(self.home, *arguments, **{"SCRIPT_TEXT": "So.", **more})
        self.addCleanup(self.end, c)
        return c

    def end(self, c):
        if c.process.poll() is None:
            c.process.kill()
            c.process.wait()


class Keys(Case):
    def test_what_is_typed_is_sent_and_answered(self):
        c = self.chat()
        c.at_prompt()
        c.sends("h\u00e9llo".encode() + b"\r", "h\u00e9llo")
        self.assertEqual(c.text(), "> h\u00e9llo\nSo.\n>")
        c.sends(b"again\r", "again")
        self.assertEqual(c.messages(), [("user", "h\u00e9llo"), ("assistant", "So."), ("user", "again")])
        self.assertEqual(c.leave(), 0)

    def test_moving_and_deleting(self):
        c = self.chat()
        c.at_prompt()
        for keys, text in [(b"abc" + LEFT + LEFT + b"X", "aXbc"), (b"abc\x01X\x05Y", "XabcY"), (b"abc" + LEFT + b"\x7f", "ac"),
                           (b"abc\x1b[H\x1b[3~", "bc"), (b"abc\x01\x04\x04", "c"), (b"one two three\x17", "one two "),
                           (b"one two" + b"\x1bb\x1bb\x1bd", " two"), (b"one two\x1b[1;5D\x15", "two"),
                           (b"one two\x1b[1;5D\x0b", "one "), (b"one\x15\x19\x19", "oneone"), (b"abc\x02\x02\x06\x08", "ac"),
                           (b"\x1b[1~a\x1b[4~b\x1bOHc\x1bOFd", "cabd"), (b"ab\x1b[99;99Xc\x1b[5~", "abc")]:
            c.sends(keys + b"\r", text)

    def test_wide_and_combining_characters_count_as_they_are_shown(self):
        c = self.chat()
        c.at_prompt()
        c.type("\u65e5\u672c\u8a9e".encode())
        c.until(lambda: c.screen.cursor.x == 2 + 6)
        c.type(LEFT + b"\x7f")
        c.until(lambda: c.screen.cursor.x == 2 + 2 and c.text() == "> \u65e5\u8a9e")
        c.type(b"x\x05")
        c.until(lambda: c.screen.cursor.x == 2 + 5)
        c.sends(b"\r", "\u65e5x\u8a9e")
        c.type("e\u0301a\u0308o".encode())
        c.until(lambda: c.screen.cursor.x == 2 + 3)
        c.type(LEFT + LEFT)
        c.until(lambda: c.screen.cursor.x == 2 + 1)
        c.sends(b"\x7f\r", "a\u0308o")  # the letter goes with its accent
        flag, family = "\U0001f1e9\U0001f1ea", "\U0001f469\u200d\U0001f469\u200d\U0001f467"
        c.sends(("a" + flag + family + "b").encode() + LEFT + b"\x7f" + LEFT + b"X\r", "aX" + flag + "b")

    def test_broken_bytes_become_the_replacement_character(self):
        c = self.chat()
        c.at_prompt()
        c.sends(b"a\xffb\xc3\r", "a\ufffdb\ufffd")

    def test_control_characters_in_pasted_text_are_shown_and_not_sent_to_the_terminal(self):
        c = self.chat()
        c.at_prompt()
        c.type(b"\x1b[200~a\x1b[2Jb\x07\x1b[201~")
        c.line_is("> a^[[2Jb^G")
        c.sends(b"\r", "a\x1b[2Jb\x07")

    def test_clear_draws_the_line_at_the_top(self):
        c = self.chat()
        c.at_prompt()
        c.type(b"abc\x0c")
        c.until(lambda: c.screen.cursor.y == 0 and c.text() == "> abc")


class SeveralLines(Case):
    def test_new_lines(self):
        c = self.chat()
        c.at_prompt()
        for keys in [b"one" + ALT_ENTER + b"two\r", b"one\ntwo\r", b"one\\\rtwo\r", b"one\x1b[13;2utwo\r", b"one\x1b[27;2;13~two\r"]:
            c.sends(keys, "one\ntwo")
        c.sends(b'"""\rone\r\rtwo\\\r"""\r', "one\n\ntwo\\")
        c.sends(b'code:\\\r"""\rx\r"""\r', "code:\nx")

    def test_pasted_text_is_one_message(self):
        c = self.chat()
        c.at_prompt()
        c.type(b"see: \x1b[200~def f():\r\n\treturn 1\r\r/exit\x1b[201~")
        c.line_is("  /exit")
        self.assertEqual(c.text(), "> see: def f():\n      return 1\n\n  /exit")
        c.sends(b"!\r", "see: def f():\n\treturn 1\n\n/exit!")
        self.assertIn(b"\x1b[?2004h", c.seen)

    def test_the_cursor_goes_up_and_down_before_the_history_is_asked(self):
        c = self.chat()
        c.at_prompt()
        c.sends(b"old\r", "old")
        c.type(b"longer line\nab" + UP)
        c.until(lambda: (c.screen.cursor.x, c.lines()[c.screen.cursor.y]) == (4, "> longer line"))
        c.type(b"X" + DOWN)
        c.until(lambda: (c.screen.cursor.x, c.lines()[c.screen.cursor.y]) == (4, "  ab"))
        c.sends(UP + UP + b"\r", "old")
        c.sends(b"new" + UP + UP + DOWN + DOWN + b"er\r", "newer")

    def test_long_lines_wrap_and_are_edited_in_place(self):
        c = self.chat(size=(20, 10))
        c.at_prompt()
        c.type(b"abcdefghijklmnopqrstuvwxyz")
        c.until(lambda: c.text() == "> abcdefghijklmnopq\n  rstuvwxyz")
        c.type(UP + b"-")
        c.until(lambda: c.text() == "> abcdefghi-jklmnop\n  qrstuvwxyz")
        c.type(("\x05" + "\u65e5" * 4).encode())
        c.until(lambda: c.text() == "> abcdefghi-jklmnop\n  qrstuvwxyz\u65e5\u65e5\u65e5\n  \u65e5")
        c.sends(b"\r", "abcdefghi-jklmnopqrstuvwxyz\u65e5\u65e5\u65e5\u65e5")

    def test_more_than_the_screen_holds_scrolls_with_the_cursor(self):
        c = self.chat(size=(20, 5))
        c.at_prompt()
        c.type(b"\n".join(b"line %d" % i for i in range(12)))
        c.until(lambda: c.text().endswith("  line 11") and c.lines()[0] == "  line 7")
        c.type(UP * 11)
        c.until(lambda: c.lines()[0] == "> line 0" and c.screen.cursor.y == 0)
        c.sends(b"X\r", "\n".join(["line 0X"] + ["line %d" % i for i in range(1, 12)]))


class Resizing(Case):
    def test_the_line_follows_the_width(self):
        c = self.chat(size=(40, 10))
        c.at_prompt()
        c.sends(b"x\r", "x")
        c.type(b"abcdefghijklmnopqrstuvwxyz")
        c.line_is("> abcdefghijklmnopqrstuvwxyz")
        c.set_size(60, 10)
        c.type(b"0")
        c.until(lambda: c.text() == "> x\nSo.\n> abcdefghijklmnopqrstuvwxyz0")
        c.sends(b"\r", "abcdefghijklmnopqrstuvwxyz0")

    def test_a_narrower_terminal_wraps_it(self):
        c = self.chat(size=(40, 10))
        c.at_prompt()
        c.type(b"abcdefghij")
        c.line_is("> abcdefghij")
        c.set_size(20, 10)
        c.type(b"klmnopqrstuvwxyz")
        c.until(lambda: c.text() == "> abcdefghijklmnopq\n  rstuvwxyz")
        c.sends(b"\r", "abcdefghijklmnopqrstuvwxyz")

    def test_resizing_does_no_harm_to_an_answer(self):
        c = self.chat(SCRIPT_TEXT="word " * 40, SCRIPT_DELAY_MS="10")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("word word")
        c.set_size(50, 20)
        c.at_prompt()
        self.assertEqual(c.leave(), 0)


class History(Case):
    def path(self):
        return os.path.join(self.home, "state", "history")

    def test_it_lasts_and_is_for_the_user_alone(self):
        c = self.chat()
        c.at_prompt()
        c.sends(b"first\r", "first")
        c.sends(b"two\nlines \\n\r", "two\nlines \\n")
        c.sends(b"two\nlines \\n\r", "two\nlines \\n")  # kept once
        c.leave()
        self.assertEqual(stat.S_IMODE(os.stat(self.path()).st_mode), 0o600)
        with open(self.path()) as f:
            self.assertEqual(f.read(), "first\ntwo\\nlines \\\\n\n")
        c = self.chat()
        c.at_prompt()
        c.sends(b"\x10\r", "two\nlines \\n")
        c.sends(b"\x10\x10\r", "first")

    def test_it_can_be_switched_off(self):
        c = self.chat("--no-history")
        c.at_prompt()
        c.sends(b"secret\r", "secret")
        c.sends(UP + b"\r", "secret")
        c.leave()
        self.assertFalse(os.path.exists(self.path()))

    def test_it_is_searched_backwards(self):
        c = self.chat()
        c.at_prompt()
        for text in ["apple pie", "banana", "apple tart"]:
            c.sends(text.encode() + b"\r", text)
        c.type(b"\x12app")
        c.line_is("(search: app) apple tart")
        c.type(b"\x12")
        c.line_is("(search: app) apple pie")
        c.sends(b"\r", "apple pie")
        c.type(b"mine\x12ban\x07")
        c.line_is("> mine")
        c.sends(b"!\r", "mine!")
        c.sends(b"\x12tart\x05!\r", "apple tart!")

    def test_old_entries_go(self):
        os.makedirs(os.path.dirname(self.path()))
        with open(self.path(), "w") as f:
            f.write("".join("entry %d\n" % i for i in range(2500)))
        c = self.chat()
        c.at_prompt()
        c.leave()
        with open(self.path()) as f:
            self.assertEqual(f.read().split("\n")[:2], ["entry 1500", "entry 1501"])


class Leaving(Case):
    def test_ctrl_d_and_exit_leave(self):
        for keys in [b"\x04", b"/exit\r", b"/quit\r", b"/bye\r"]:
            c = self.chat()
            c.at_prompt()
            c.type(keys)
            self.assertEqual(c.finish(), 0)

    def test_the_terminal_is_as_before(self):
        for keys, code in [(b"\x04", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]:
            fd, slave = os.openpty()
            before = termios.tcgetattr(slave)
            os.close(slave)
            os.close(fd)
            c = self.chat()
            c.at_prompt()
            keep = os.open(c.name, os.O_RDWR | os.O_NOCTTY)
            if isinstance(keys, bytes):
                c.type(keys)
            else:
                c.process.send_signal(keys)
            c.until(lambda: c.process.poll() is not None)
            self.assertEqual(c.process.wait(), code)
            c.read(0)
            self.assertEqual(termios.tcgetattr(keep)[:4], before[:4])
            os.close(keep)
            self.assertEqual(c.seen.count(b"\x1b[?2004h"), 1)
            self.assertIn(b"\x1b[?2004l", c.seen)

    def test_ctrl_c_at_an_empty_prompt_leaves_when_pressed_twice(self):
        c = self.chat()
        c.at_prompt()
        c.type(b"\x03")
        c.shows("Ctrl-D leaves")
        c.at_prompt()
        time.sleep(1.1)
        c.type(b"\x03")
        c.until(lambda: c.text().count("Ctrl-D leaves") == 2)
        c.at_prompt()
        c.type(b"\x03")
        self.assertEqual(c.finish(), 0)

    def test_ctrl_c_drops_what_was_typed(self):
        c = self.chat()
        c.at_prompt()
        c.type(b"never mind\x03")
        c.at_prompt()
        self.assertNotIn("Ctrl-D leaves", c.text())
        c.sends(b"well\r", "well")


class Stopping(Case):
    def stopped(self, c, shown):
        c.at_prompt()
        c.type(b"x\r")
        c.shows(shown)
        c.type(b"\x03")
        begin = time.monotonic()
        c.shows("stopped")
        c.at_prompt()
        self.assertLess(time.monotonic() - begin, 2)

    def test_an_answer_stops_and_stays_in_the_conversation(self):
        c = self.chat(SCRIPT_TEXT="abc" * 100 + "\n---\nSo.", SCRIPT_DELAY_MS="20")
        self.stopped(c, "abcabc")
        c.sends(b"go on\r", "go on")
        said = c.messages()[1]
        self.assertEqual(said[0], "assistant")
        self.assertTrue(("abc" * 100).startswith(said[1]) and 6 <= len(said[1]) < 300)
        self.assertEqual(c.leave(), 0)

    def test_thinking_stops(self):
        c = Chat(self.home, "--no-stats", SCRIPT_TEXT="<think>" + "hm " * 200 + "</think>So.", SCRIPT_DELAY_MS="20")
        self.addCleanup(self.end, c)
        self.stopped(c, "thinking")

    def test_reading_the_prompt_stops(self):
        c = Chat(self.home, "--no-stats", "-s", "S" * 2000, SCRIPT_PROMPT_MS="50")
        self.addCleanup(self.end, c)
        self.stopped(c, "reading prompt")
        self.assertNotIn("% of the context", c.text())
        c.type(b"y\r")  # nothing was said to x, so it is gone
        c.until(lambda: len(c.requests()) == 2)
        self.assertEqual(c.messages()[1:], [("user", "y")])

    def test_keys_during_an_answer_are_for_the_next_message(self):
        c = self.chat(SCRIPT_TEXT="abc" * 20, SCRIPT_DELAY_MS="20")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("abcabc")
        c.type(b"next\r")
        c.until(lambda: len(c.requests()) == 2)
        self.assertEqual(c.messages()[-1], ("user", "next"))
        self.assertIn("abc" * 20, c.text())  # nothing was echoed into it

    def test_a_failed_turn_leaves_the_conversation_as_it_was(self):
        c = self.chat(SCRIPT_FAIL_AT="2")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("a read failed as scripted")
        c.at_prompt()
        c.type(b"y\r")
        c.until(lambda: len(c.requests()) == 2)
        self.assertEqual(c.messages(), [("user", "y")])

    def test_suspended_and_continued(self):
        c = Chat(self.home, command=["/bin/bash", "--norc", "--noprofile", "-i"], PS1="$ ", PROMPT_COMMAND="", SCRIPT_TEXT="So.")
        self.addCleanup(self.end, c)
        c.shows("$")
        c.type(b"%s chat %s -q --no-stats\r" % (PROGRAM.encode(), self.home.encode()))
        c.at_prompt()
        c.type(b"half a li\x1a")
        c.shows("Stopped")
        c.type(b"stty -a | grep -c ' icanon'; fg\r")
        c.until(lambda: c.lines()[c.screen.cursor.y] == "> half a li")
        self.assertIn("\n1\n", c.text())
        c.sends(b"ne\r", "half a line")


class Thinking(Case):
    SCRIPT = {"SCRIPT_TEXT": "<think>let me\nsee</think>It is so."}

    def test_thoughts_are_folded_to_one_line(self):
        c = self.loud("--no-stats", **self.SCRIPT, SCRIPT_DELAY_MS="30")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("thinking")
        c.shows("let me s")
        c.shows("It is so.")
        c.at_prompt()
        self.assertRegex(c.text(), r"(?m)^> x\nthought for 0 s, 10 tokens\nIt is so\.\n>$")

    def test_they_stay_when_asked_for(self):
        c = self.loud("--no-stats", "--show-thinking", **self.SCRIPT)
        c.at_prompt()
        c.type(b"x\r")
        c.shows("It is so.")
        self.assertRegex(c.text(), r"(?m)^> x\nlet me\nsee\n\nthought for 0 s, 10 tokens\nIt is so\.")

    def test_think_switches_them(self):
        c = self.chat(**self.SCRIPT)
        c.at_prompt()
        for level, n in [("off", 1), ("low", 3), ("high", 5), ("auto", 0), ("on", 2)]:
            c.type(b"/think %s\r" % level.encode())
            c.at_prompt()
            c.sends(b"x\r", "x")
            self.assertEqual(c.requests()[-1]["think"], n)


class Looks(Case):
    def test_colours_go_with_no_color(self):
        for env, coloured in [({}, True), ({"NO_COLOR": "1"}, False)]:
            c = self.loud(**Thinking.SCRIPT, **env)
            c.at_prompt()
            c.sends(b"x\r", "x")
            c.shows("t/s")
            self.assertEqual(re.search(rb"\x1b\[[0-9;]*m", c.seen) is not None, coloured)

    def test_progress_vanishes(self):
        c = self.loud("-s", "S" * 2000, SCRIPT_PROMPT_MS="20")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("reading prompt 0/2026")
        c.until(lambda: re.search(r"reading prompt \d+/2026  \d+%  \d+ t/s", c.text()))
        c.shows("t/s | prompt")
        c.at_prompt()
        self.assertNotIn("reading", c.text())

    def test_statistics(self):
        c = self.loud(NO_COLOR="1", SCRIPT_DELAY_MS="10")
        c.at_prompt()
        c.type(b"x\r")
        c.shows("ctx 0%")
        self.assertRegex(c.text(), r"So\.\n3 tok  [\d.]+ t/s \| prompt 18 \(0 cached\) \d+ t/s \| ttft [\d.]+ s \| ctx 0%")
        c.type(b"y\r")
        c.shows("prompt 39 (18 cached)")

    def test_a_dumb_terminal_gets_plain_lines(self):
        c = Chat(self.home, "-q", "--no-stats", TERM="dumb", SCRIPT_TEXT="So.")
        self.addCleanup(self.end, c)
        c.shows(">")
        c.type(b'one\\\n"""\ntwo\n"""\n')
        c.shows("So.")
        self.assertEqual(c.messages(), [("user", "one\ntwo")])
        self.assertNotIn(b"\x1b", c.seen)
        c.type(b"\x04")
        self.assertEqual(c.finish(), 0)

    def test_prompts_are_not_part_of_redirected_output(self):
        with tempfile.NamedTemporaryFile() as out:
            c = Chat(self.home, "-q", stdout=out)
            self.addCleanup(self.end, c)
            c.at_prompt()
            c.type(b"x\r")
            c.until(lambda: len(c.requests()) == 1)
            c.at_prompt()
            self.assertEqual(c.leave(), 0)
            out.seek(0)
            self.assertEqual(out.read(), b"Hello, world.\n")

    def test_other_locales_do_no_harm(self):
        c = self.chat(LC_ALL="C")
        c.at_prompt()
        c.sends("h\u00e9\r".encode(), "h\u00e9")


class Context(Case):
    def test_it_is_said_when_it_is_nearly_full_and_when_it_is_full(self):
        c = self.loud("--no-stats", "--ctx", "200", SCRIPT_TEXT="a" * 120 + "\n---\n" + "b" * 200)
        c.at_prompt()
        c.type(b"x" * 30 + b"\r")
        c.shows("of the context are used; /clear")
        c.at_prompt()
        c.type(b"y\r")
        c.shows("the context is full: /clear")
        self.assertIn("/undo", c.text())
        self.assertIn("--ctx", c.text())
        c.at_prompt()
        c.type(b"/undo\r")
        c.shows("taken back: y")
        c.at_prompt()
        c.type(b"z" * 190 + b"\r")
        c.shows("the prompt is longer than the context")


class Commands(Case):
    def do(self, c, line, shown=None):
        c.at_prompt()
        c.type(line.encode() + b"\r")
        if shown:
            c.shows(shown)
        c.at_prompt()

    def test_help_lists_all(self):
        c = self.chat(size=(100, 40))
        self.do(c, "/help", "/model")
        for name in ["/exit", "/quit", "/bye", "/new", "/clear", "/system", "/think", "/set", "/regen", "/undo", "/edit", "/read",
                     "/save", "/load", "/sessions", "/copy", "/stats", "/cache"]:
            self.assertIn(name, c.text())
        self.do(c, "/nonsense", "unknown command /nonsense")
        self.do(c, "/hepl", "did you mean /help?")

    def test_a_slash_can_be_said(self):
        c = self.chat()
        c.at_prompt()
        c.sends(b"//etc/passwd\r", "/etc/passwd")

    def test_clear_keeps_the_system_message(self):
        c = self.chat("-s", "S")
        c.at_prompt()
        c.sends(b"a\r", "a")
        self.do(c, "/clear")
        c.sends(b"b\r", "b")
        self.assertEqual(c.messages(), [("system", "S"), ("user", "b")])
        self.do(c, "/system Be brief.")
        c.sends(b"c\r", "c")
        self.assertEqual(c.messages(), [("system", "Be brief."), ("user", "b"), ("assistant", "So."), ("user", "c")])
        self.do(c, "/new")
        c.sends(b"d\r", "d")
        self.assertEqual(c.messages(), [("system", "Be brief."), ("user", "d")])
        self.do(c, "/system")
        c.sends(b"e\r", "e")
        self.assertEqual(c.messages()[0], ("user", "d"))

    def test_settings(self):
        c = self.chat("--top-k", "7", size=(120, 40))
        self.do(c, "/set temp 0.5")
        self.do(c, "/set max-tokens 9")
        self.do(c, "/set stop xyz")
        c.sends(b"x\r", "x")
        r = c.requests()[-1]
        self.assertEqual((r["temperature"], r["n_max"], r["top_k"], r["stop"]), (0.5, 9, 7, ["xyz"]))
        self.do(c, "/set temp hot", "temp is hot, expected")
        self.do(c, "/set threads 4", "cannot be changed")
        self.do(c, "/set tmep 4", "did you mean temp")
        self.do(c, "/set greedy on")
        c.sends(b"x\r", "x")
        self.assertEqual(c.requests()[-1]["temperature"], 0)
        self.do(c, "/set", "presence-penalty")
        self.assertRegex(c.text(), r"temp +0\.5 +/set")
        self.assertRegex(c.text(), r"top-k +7 +option")
        self.assertRegex(c.text(), r"top-p +1 +the model")

    def test_again_undone_edited(self):
        c = self.chat("--seed", "1", EDITOR="printf 'edited\\n' >")
        c.at_prompt()
        self.do(c, "/regen", "there is no message yet")
        self.do(c, "/undo", "there is no message yet")
        c.sends(b"a\r", "a")
        c.sends(b"b\r", "b")
        self.do(c, "/regen")
        c.until(lambda: len(c.requests()) == 3)
        self.assertEqual(c.messages(), [("user", "a"), ("assistant", "So."), ("user", "b")])
        self.assertEqual(c.requests()[1]["seed"], 1)
        self.assertNotEqual(c.requests()[2]["seed"], 1)
        self.do(c, "/undo", "taken back: b")
        c.sends(b"c\r", "c")
        self.assertEqual(c.messages(), [("user", "a"), ("assistant", "So."), ("user", "c")])
        self.do(c, "/edit")
        c.until(lambda: len(c.requests()) == 5)
        self.assertEqual(c.messages(), [("user", "a"), ("assistant", "So."), ("user", "edited")])

    def test_the_editor_of_the_user_takes_the_line(self):
        c = self.chat(VISUAL="sed -i s/one/two/", EDITOR="false")
        c.at_prompt()
        c.type(b"one\x07")
        c.line_is("> two")
        c.sends(b"!\r", "two!")
        c = self.chat(VISUAL="false")
        c.at_prompt()
        c.type(b"one\x07")
        c.shows('the editor "false" failed')
        c.sends(b"!\r", "one!")

    def test_a_file_goes_with_the_next_message(self):
        path = os.path.join(self.home, "some notes.txt")
        with open(path, "w") as f:
            f.write("in the file")
        c = self.chat(size=(120, 24))
        self.do(c, "/read " + path, "11 tokens")
        c.sends(b"look\r", "look\n\nin the file")
        c.sends(b"then\r", "then")
        self.do(c, "/read /nowhere", "cannot open /nowhere")

    def test_conversations_are_saved_and_loaded(self):
        c = self.chat()
        self.do(c, "/sessions", "no conversation is saved")
        c.sends(b"a\r", "a")
        self.do(c, "/save one two", "saved")
        self.do(c, "/clear")
        self.do(c, "/load one two", "2 messages")
        c.sends(b"b\r", "b")
        self.assertEqual(c.messages(), [("user", "a"), ("assistant", "So."), ("user", "b")])
        self.do(c, "/sessions", "one two")
        self.do(c, "/load other", "no conversation was saved as other")
        self.do(c, "/save ../x", "cannot be the name")

    def test_the_answer_is_copied_by_osc_52(self):
        c = self.chat(SCRIPT_TEXT="caf\u00e9")
        self.do(c, "/copy", "no answer yet")
        c.sends(b"a\r", "a")
        self.do(c, "/copy", "5 bytes")
        self.assertIn(b"\x1b]52;c;" + base64.b64encode("caf\u00e9".encode()) + b"\a", c.seen)

    def test_figures(self):
        c = self.chat()
        c.at_prompt()
        c.sends(b"a\r", "a")
        self.do(c, "/stats", "3 tok")
        self.do(c, "/cache", "8 of 16 experts")

    def test_models_are_switched_with_their_messages(self):
        for name in ["alpha", "beta"]:
            os.makedirs(os.path.join(self.home, "models", name + ".qpack"))
            open(os.path.join(self.home, "models", name + ".qpack", "config.json"), "w").close()
        c = self.chat(model="alpha", size=(120, 24))
        c.at_prompt()
        c.sends(b"a\r", "a")
        self.do(c, "/model", "installed: beta")
        self.do(c, "/model beta", "models/beta.qpack")
        c.sends(b"b\r", "b")
        self.assertEqual(c.messages(), [("user", "a"), ("assistant", "So."), ("user", "b")])
        self.do(c, "/model gamma", "no model of that name is installed")
        c.sends(b"c\r", "c")
        self.assertEqual(len(c.messages()), 5)


class Completion(Case):
    def test_commands_settings_values_and_paths(self):
        for name in ["file one", "file two"]:
            open(os.path.join(self.home, name.replace(" ", "-")), "w").close()
        os.mkdir(os.path.join(self.home, "folder"))
        c = self.chat(size=(100, 30))
        c.at_prompt()
        for typed, line in [("/sys", "> /system"), ("/set tem", "> /set temp"), ("/think hi", "> /think high"),
                            ("/set think me", "> /set think medium"), ("/set show-thinking of", "> /set show-thinking off"),
                            ("/read %s/fo" % self.home, "> /read %s/folder/" % self.home),
                            ("/read %s/fi" % self.home, "> /read %s/file-" % self.home)]:
            c.type(typed.encode() + b"\t")
            c.line_is(line)
            c.type(b"\x15")
        c.type(b"/s\t")
        c.until(lambda: all(n in c.text() for n in ["/save", "/sessions", "/set", "/stats", "/system"]))
        c.line_is("> /s")
        c.type(b"\x15word\t")
        c.line_is("> word")
        c.sends(b"\r", "word")


harness.main()
