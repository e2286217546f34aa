"""Running the command line in tests: captured, at a pseudo-terminal, interrupted; and the count that ends a test program."""
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest


PATIENCE = 60  # seconds for what has to happen at all: only a test that fails takes so long
HOME = tempfile.TemporaryDirectory(prefix="swiftlet-home-")


def environment(**more):
    """Without settings of whoever runs the tests, and with folders of their own. None takes a variable away."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SWIFTLET_", "SCRIPT_", "NO_COLOR", "CLICOLOR"))}
    env = {**env, "LC_ALL": "C.UTF-8", "TERM": "xterm", "SWIFTLET_HOME": HOME.name, **more}
    return {k: v for k, v in env.items() if v is not None}


def run(program, *arguments, stdin=b"", **env):
    """The finished process, with bytes in stdout and stderr."""
    return subprocess.run([program, *arguments], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                          env=environment(**env))


def wait_until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("nothing came of it in %d seconds" % seconds)
        time.sleep(0.005)


def catches(pid, number):
    """Whether a process has a handler for a signal (Linux)."""
    try:
        with open("/proc/%d/status" % pid) as f:
            mask = next(int(line.split()[1], 16) for line in f if line.startswith("SigCgt"))
    except FileNotFoundError:
        time.sleep(1)
        return True
    return bool(mask >> (number - 1) & 1)


class Terminal:
    """The program with all three streams on a pseudo-terminal, or with standard output elsewhere."""

    def __init__(self, program, *arguments, stdout=None, **env):
        self.fd, slave = pty.openpty()
        self.name = os.ttyname(slave)
        self.seen = b""
        self.process = subprocess.Popen([program, *arguments], stdin=slave, stdout=slave if stdout is None else stdout,
                                        stderr=slave, env=environment(**env), start_new_session=True,
                                        preexec_fn=self.begin)
        os.close(slave)

    @staticmethod
    def begin():
        """In the child: the terminal is its own, and signals are what they are at a login, not as with nohup."""
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            got = os.read(self.fd, 65536) if ready else b""
        except OSError:  # the other side is gone
            got = b""
        self.seen += got
        return got

    def expect(self, what, seconds=PATIENCE):
        """Waits until the bytes have come; everything up to their end is then taken out of `seen` and returned."""
        end = time.monotonic() + seconds
        while what not in self.seen:
            if time.monotonic() > end or (not self.read(0.1) and self.process.poll() is not None and not self.read(0.1)):
                raise AssertionError("waited for %r, saw %r" % (what, self.seen))
        at = self.seen.index(what) + len(what)
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def prompt(self, edited=True):
        """Waits for "> ", and until the line editor has taken over the keyboard, which it does just after."""
        before = self.expect(b"> ")
        while edited and termios.tcgetattr(self.fd)[3] & termios.ICANON:
            time.sleep(0.001)
        return before

    def type(self, text):
        os.write(self.fd, text)

    def finish(self, seconds=PATIENCE):
        """Exit status; what is left to read stays in `seen`."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        while self.read(0.05):
            pass
        os.close(self.fd)
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()


def main():
    """Runs the test cases of __main__ and prints the count as the last line."""
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    failed = len({str(case) for case, _ in result.failures + result.errors})
    print("%d passed, %d failed, %d skipped" % (result.testsRun - failed - len(result.skipped), failed,
                                                len(result.skipped)))
    sys.exit(1 if failed or not result.testsRun else 0)
