"""The server in tests: started on a scripted engine, spoken to by bytes; and the count that ends a test program."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = None
JSON = "Content-Type: application/json\r\n"
PATIENCE = 60.0  # seconds for what has to happen at all: only a test that fails takes so long, on whatever machine


def environment(**more):
    """Without settings of whoever runs the tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SWIFTLET_", "SCRIPT_"))}
    return {**env, "LC_ALL": "C.UTF-8", "SWIFTLET_HOME": os.path.join(tempfile.gettempdir(), "swiftlet-no-home"), **more}


class Answer:
    """One HTTP response, taken apart."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def events(self):
        """The data of every frame, as objects; "[DONE]" stays a string."""
        return [data if data == "[DONE]" else json.loads(data) for _, data in frames(self.body)]

    def __repr__(self):
        return "%d %r %r" % (self.status, self.headers, self.body[:600])


def frames(body):
    """(event, data) of every frame; every line has to be one of the two."""
    found = []
    assert b"\r" not in body, "a line that ends where no other does"
    for frame in body.decode().split("\n\n"):
        event, data = None, None
        for line in frame.split("\n") if frame.strip() else []:
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                raise AssertionError("a line that is no event: %r" % line)
        if data is not None:
            found.append((event, data))
    return found


class Connection:
    """A socket that knows how responses are framed."""

    def __init__(self, server):
        if server.path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(server.path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self.socket.settimeout(PATIENCE)
        self.rest = b""
        self.host = server.host

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def request(self, method, path, body=None, headers="", host=True):
        if body is not None and not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        head = "%s %s HTTP/1.1\r\n" % (method, path)
        if host:
            head += "Host: %s\r\n" % self.host
        if body is not None and "content-length" not in headers.lower() and "transfer-encoding" not in headers.lower():
            head += "Content-Length: %d\r\n" % len(body)
        if body is not None and "content-type" not in headers.lower():
            head += JSON
        self.send((head + headers + "\r\n").encode() + (body or b""))

    def more(self):
        got = self.socket.recv(65536)
        self.rest += got
        return bool(got)

    def until(self, mark):
        while mark not in self.rest:
            if not self.more():
                raise EOFError("closed after %r" % self.rest)
        at = self.rest.index(mark) + len(mark)
        got, self.rest = self.rest[:at], self.rest[at:]
        return got

    def take(self, n):
        while len(self.rest) < n:
            if not self.more():
                raise EOFError("closed after %r" % self.rest)
        got, self.rest = self.rest[:n], self.rest[n:]
        return got

    def head(self):
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, "repeated header " + name
            headers[name.lower()] = value
        return int(lines[0].split(" ")[1]), headers

    def chunk(self):
        n = int(self.until(b"\r\n"), 16)
        data = self.take(n)
        assert self.take(2) == b"\r\n"
        return data

    def answer(self, method="GET"):
        status, headers = self.head()
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                data = self.chunk()
                if not data:
                    return Answer(status, headers, body)
                body += data
        if "content-length" in headers:
            return Answer(status, headers, self.take(int(headers["content-length"])))
        while self.more():
            pass
        return Answer(status, headers, self.rest)

    def closed(self, seconds=PATIENCE):
        """Has the other side ended the connection, without a word more?"""
        self.socket.settimeout(seconds)
        try:
            return not self.rest and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def reset(self):
        """Goes away as a killed process does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class Server:
    """swiftlet serve on the script in the environment. With `hold` the script stands still at that place, at once and until
    release(): what a test sees then does not depend on how long things take."""

    def __init__(self, *options, model=None, program=None, hold=None, stderr=None, **script):
        self.folder = tempfile.TemporaryDirectory(prefix="swiftlet-server-")
        model = model or os.path.join(self.folder.name, "tiny.qpack")
        os.makedirs(model, exist_ok=True)
        self.requests = os.path.join(self.folder.name, "requests")
        self.starts = os.path.join(self.folder.name, "starts")
        self.gate = os.path.join(self.folder.name, "hold")
        if hold is not None:
            script.update(SCRIPT_HOLD=self.gate, SCRIPT_HOLD_AT=hold)
            self.hold()
        self.log = open(os.path.join(self.folder.name, "log"), "w+b")
        self.path = options[options.index("--host") + 1][5:] if "--host" in options and options[
            options.index("--host") + 1].startswith("unix:") else None
        env = environment(SCRIPT_REQUESTS=self.requests, SCRIPT_STARTS=self.starts, **{k: str(v) for k, v in script.items()})
        self.process = subprocess.Popen([program or PROGRAM, "serve", model, "--port", "0", "-v", *options], stdout=subprocess.PIPE,
                                        stderr=self.log if stderr is None else stderr, env=env)
        self.first_line = self.process.stdout.readline().decode()
        self.connections = []
        if not self.first_line.startswith("listening on "):
            self.process.wait(PATIENCE)
            said = self.stderr()
            self.stop()
            raise AssertionError("no server: %r %s" % (self.first_line, said))
        self.url = self.first_line.split()[-1]
        self.port = 0 if self.path else int(self.url.rsplit(":", 1)[1])
        self.host = "localhost" if self.path else "127.0.0.1:%d" % self.port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def hold(self):
        open(self.gate, "w").close()

    def release(self):
        os.remove(self.gate)

    def stderr(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            return f.read().decode(errors="replace")

    def logged(self, n):
        """The log once it has n answers; it is written a little later than they are."""
        wait_until(lambda: len(re.findall(r" \d{3} \d+\.\d{3} s\n", self.stderr())) >= n)
        return self.stderr()

    def stop(self, number=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(number)
        rc = self.process.wait(PATIENCE)
        for c in self.connections:
            c.socket.close()
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()
        return rc

    def connect(self):
        self.connections.append(Connection(self))
        return self.connections[-1]

    def ask(self, method, path, body=None, headers=""):
        with self.connect() as c:
            c.request(method, path, body, headers)
            return c.answer(method)

    def get(self, path, headers=""):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, headers=""):
        return self.ask("POST", path, body, headers)

    def chat(self, text="hi", **more):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})

    def asked(self):
        """What the engine was given, the last request."""
        with open(self.requests) as f:
            return json.loads(f.read().splitlines()[-1])

    def n_asked(self):
        """How many requests were made, or are being made."""
        if not os.path.exists(self.requests):
            return 0
        with open(self.requests) as f:
            return f.read().count("\n")

    def started(self):
        """The prompts in the order in which the engine took them up."""
        if not os.path.exists(self.starts):
            return []
        with open(self.starts) as f:
            return f.read().splitlines()

    def is_gone(self):
        """Is nobody let in any more?"""
        try:
            Connection(self).socket.close()
        except OSError:
            return True
        return False

    def metric(self, name):
        answer = self.get("/metrics")
        while answer.status == 503:  # it has not got round to closing what clients have left
            time.sleep(0.05)
            answer = self.get("/metrics")
        for line in answer.body.decode().splitlines():
            if line.startswith("swiftlet_" + name + " "):
                return float(line.split()[-1])
        raise AssertionError("no metric %s: %r" % (name, answer))


def wait_until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("nothing came of it in %g seconds" % seconds)
        time.sleep(0.02)


def in_background(f, *arguments):
    got = []
    t = threading.Thread(target=lambda: got.append(f(*arguments)), daemon=True)
    t.start()
    return t, got


class Shared(unittest.TestCase):
    """Tests that use one server, with the class's options and script."""
    options = ()
    script = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options, **cls.script)

    @classmethod
    def tearDownClass(cls):
        rc = cls.server.stop(signal.SIGTERM)
        assert rc == 0, "the server ended with %d" % rc


def main():
    global PROGRAM
    module = sys.modules["harness"]
    module.PROGRAM = os.path.abspath(sys.argv.pop(1))
    result = unittest.main(exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print("%d passed, %d failed, %d skipped" % (result.testsRun - failed - skipped, failed, skipped))
    sys.exit(1 if failed else 0)
