#!/usr/bin/env python3
"""A hub and its CDN on two loopback ports, and a mirror, misbehaving as asked. Standard library only.

As a module: Hub(files, **switches) serves files (path -> bytes) as the repository `org/name`; every request is recorded in
Hub.requests as (port name, method, path with query, headers). Switches (attributes, may be changed while it runs):

  page            entries of a tree page (2)                expire N        signatures valid for N requests, then 403
  lfs_bytes       files from this size on are LFS (1000)    ignore_range    200 with the whole body
  no_range_400    GET without Range gives 400 (CDN)         gzip            compresses when the client allows it
  cut K, stall K  close, or stop sending, after K bytes of each body        slow B    bytes a second
  flip            {path: (offset, times)}: one wrong byte   status          {pattern: [code, code, ...]}: answered in turn
  retry_after     header of 429 and 503                     wrong_total, wrong_range    lying Content-Range
  moved           the branch moves after the pin            gated           token that is needed: 401 without, 403 with another
  hide            paths that are listed, but answer 404     tree            bytes of the listing, instead of a true one
  redirect        "loop", "host", "other", "relative", "file": see do_redirect
  tls             {"hub": context, "cdn": context}: an ssl.SSLContext for each port that speaks TLS (not from the command line)
  mirror_404      no mirror files but these are served      no_length       answers of the mirror do not say how long they are

From the command line: fake_hub.py DIR [--switch VALUE ...] serves a directory and prints both addresses.
"""
import argparse
import functools
import gzip
import hashlib
import http.server
import json
import os
import re
import socketserver
import sys
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
DEFAULTS = dict(page=2, lfs_bytes=1000, expire=0, ignore_range=False, no_range_400=False, gzip=False, cut=0, stall=0, slow=0,
                flip=None, status=None, retry_after=None, wrong_total=0, wrong_range=0, moved=False, gated=None, hide=(),
                tree=None, redirect=None, commit=COMMIT, no_length=False, cut_once=None, tls=None)


@functools.lru_cache(None)
def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@functools.lru_cache(None)
def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a client that is killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its header

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.hub
        with hub.lock:
            hub.requests.append((self.server.name, self.command, self.path, dict(self.headers)))
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        code = hub.next_status(path)
        if code:
            more = {"Retry-After": str(hub.retry_after)} if hub.retry_after is not None and code in (429, 503) else {}
            return self.answer(code, b"as asked", more)
        if self.server.name == "cdn":
            return self.cdn(path, urllib.parse.parse_qs(url.query))
        if path.startswith("/mirror/"):
            return self.body(hub.mirror_files(), path[len("/mirror/"):])
        if path.startswith("/evil/"):
            return self.answer(200, b"who asks?")
        return self.endpoint(path, urllib.parse.parse_qs(url.query))

    def answer(self, code, data=b"", headers=None):
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        for k, v in (headers or {}).items():
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    # ---- the hub ---------------------------------------------------------------------------------------------------

    def allowed(self):
        hub = self.hub
        if not hub.gated:
            return True
        given = self.headers.get("Authorization")
        if given == "Bearer " + hub.gated:
            return True
        self.answer(403 if given else 401, b"gated")
        return False

    def endpoint(self, path, query):
        hub = self.hub
        if not self.allowed():
            return None
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path)
        if m and m[1] != hub.repo:
            return self.answer(404, b"no such repository")
        if m and not m[2]:
            return self.answer(200, json.dumps({"id": hub.repo, "sha": hub.commit}).encode())
        if m and m[2] == "revision":
            if m[3] not in ("main", "refs/pr/1", hub.commit):
                return self.answer(404, b"no such revision")
            self.answer(200, json.dumps({"id": hub.repo, "sha": hub.commit}).encode())
            if hub.moved:
                hub.branch_moves()
            return None
        if m:
            return self.tree(m[3], int(query.get("cursor", ["0"])[0]))
        m = re.fullmatch(r"(?:/hop)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if not m or m[1] != hub.repo or m[2] not in hub.versions or m[3] in hub.hide or m[3] not in hub.versions[m[2]]:
            return self.answer(404, b"no such file")
        if hub.redirect:
            return self.do_redirect(m)
        if len(hub.versions[m[2]][m[3]]) >= hub.lfs_bytes:
            return self.answer(302, b"", {"Location": hub.signed(m[2], m[3])})
        return self.body(hub.versions[m[2]], m[3])

    def do_redirect(self, m):
        """loop: to itself for ever; host: to the CDN by way of a third host name; relative: a path of the hub; file: no URL
        that is to be followed; other: another host that records what it is sent."""
        hub = self.hub
        where = hub.redirect
        target = {"loop": self.path, "host": hub.signed(m[2], m[3]).replace("127.0.0.1", "localhost"),
                  "file": "file:///etc/passwd", "other": hub.cdn_url + "/evil/x",
                  "relative": "/hop" + self.path}[where]
        if self.path.startswith("/hop"):
            return self.body(hub.versions[m[2]], m[3])
        return self.answer(302, b"", {"Location": target})

    def tree(self, commit, cursor):
        hub = self.hub
        if hub.tree is not None:
            return self.answer(200, hub.tree)
        files = hub.versions.get(commit)
        if files is None:
            return self.answer(404, b"no such commit")
        entries = [{"type": "directory", "path": d, "oid": "0" * 40, "size": 0}
                   for d in sorted({os.path.dirname(p) for p in files} - {""})]
        for path, data in sorted(files.items()):
            e = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
            if len(data) >= hub.lfs_bytes:
                e["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
                e["xetHash"] = "00" * 32
            entries.append(e)
        more = {}
        if cursor + hub.page < len(entries):
            more["Link"] = '<%s/api/models/%s/tree/%s?recursive=true&cursor=%d>; rel="next"' % (
                hub.url, hub.repo, commit, cursor + hub.page)
        return self.answer(200, json.dumps(entries[cursor:cursor + hub.page]).encode(), more)

    # ---- bytes -----------------------------------------------------------------------------------------------------

    def cdn(self, path, query):
        hub = self.hub
        if path.startswith("/evil/"):
            return self.answer(200, b"who asks?")
        m = re.fullmatch(r"/blob/([^/]+)/(.+)", path)
        if not m or m[2] not in hub.versions.get(m[1], {}):
            return self.answer(404, b"no such blob")
        if not hub.use_signature(query.get("sig", [""])[0]):
            return self.answer(403, b"signature expired")
        if hub.no_range_400 and not self.headers.get("Range"):
            return self.answer(400, b"ask for a range")
        return self.body(hub.versions[m[1]], m[2])

    def body(self, files, path):
        hub = self.hub
        data = files.get(path)
        if data is None or path in hub.hide:
            return self.answer(404, b"no such file")
        data = hub.flipped(path, data)
        total, begin, end, code, more = len(data), 0, len(data), 200, {}
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if m and not hub.ignore_range:
            begin, end = int(m[1]), min(int(m[2]) + 1, total)
            if begin >= total:
                return self.answer(416, b"", {"Content-Range": "bytes */%d" % total})
            code = 206
            shown = begin + 1 if hub.take("wrong_range") else begin
            more["Content-Range"] = "bytes %d-%d/%d" % (shown, end - 1, total + 1 if hub.take("wrong_total") else total)
        part = data[begin:end]
        if hub.gzip and "gzip" in self.headers.get("Accept-Encoding", ""):
            part, code = gzip.compress(part), 200
            more = {"Content-Encoding": "gzip"}
        self.send_response(code)
        if not hub.no_length or code == 206:
            self.send_header("Content-Length", str(len(part)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        for k, v in more.items():
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.send_slowly(part)
        return None

    def send_slowly(self, part):
        hub = self.hub
        step = max(1, min(1 << 16, hub.slow // 20)) if hub.slow else 1 << 16
        at, limit = 0, hub.cut or hub.stall or len(part)
        if hub.cut_once and hub.take("cut_once_times"):
            limit = hub.cut_once
        while at < min(limit, len(part)):
            n = min(step, min(limit, len(part)) - at)
            self.wfile.write(part[at:at + n])
            hub.n_sent += n
            at += n
            if hub.slow:
                time.sleep(n / hub.slow)
        if at < len(part):
            self.wfile.flush()
            while hub.stall and not hub.closing:
                time.sleep(0.05)
            self.close_connection = True
            self.connection.close()


class Hub:
    def __init__(self, files, repo="org/name", **switches):
        for k, v in {**DEFAULTS, **switches}.items():
            setattr(self, k, v)
        self.repo, self.files, self.lock, self.closing = repo, files, threading.RLock(), False
        self.requests, self.signatures, self.n_sent, self.cut_once_times = [], {}, 0, 0
        self.versions = {self.commit: files}
        for data in files.values():  # now, and not while a client waits
            git_sha1(data), sha256(data)
        self.servers = []
        for name in ("hub", "cdn"):
            s = Server(("127.0.0.1", 0), Handler)
            s.hub, s.name = self, name
            self.servers.append(s)
            if self.tls and self.tls.get(name):
                s.socket = self.tls[name].wrap_socket(s.socket, server_side=True)
            threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True).start()
        self.url, self.cdn_url = ("http%s://127.0.0.1:%d" % ("s" if self.tls and self.tls.get(s.name) else "",
                                                             s.server_address[1]) for s in self.servers)
        self.mirror = self.url + "/mirror/"

    def mirror_files(self):
        return self.files

    def set(self, **switches):
        for k, v in switches.items():
            assert k in DEFAULTS or k == "cut_once_times", k
            setattr(self, k, v)

    def branch_moves(self):
        with self.lock:
            if OTHER not in self.versions:
                self.versions[OTHER] = {p: b"moved" + d for p, d in self.files.items()}
            self.moved = False
            self.commit = OTHER

    def take(self, name):
        """Counts a switch down; whether it held this time."""
        with self.lock:
            n = getattr(self, name)
            if n:
                setattr(self, name, n - 1)
            return bool(n)

    def signed(self, commit, path):
        with self.lock:
            sig = "s%d" % len(self.signatures)
            self.signatures[sig] = self.expire or 1 << 60
        return "%s/blob/%s/%s?sig=%s&secret=signature" % (self.cdn_url, commit, urllib.parse.quote(path), sig)

    def use_signature(self, sig):
        with self.lock:
            left = self.signatures.get(sig, 0)
            self.signatures[sig] = left - 1
            return left > 0

    def flipped(self, path, data):
        with self.lock:
            offset, times = (self.flip or {}).get(path, (0, 0))
            if not times:
                return data
            self.flip[path] = (offset, times - 1)
        return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1:]

    def next_status(self, path):
        with self.lock:
            for pattern, codes in (self.status or {}).items():
                if codes and re.search(pattern, path):
                    return codes.pop(0)
        return 0

    def close(self):
        self.closing = True
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_dir(path):
    out = {}
    for at, _, names in os.walk(path):
        for name in names:
            full = os.path.join(at, name)
            rel = os.path.relpath(full, path)
            if not rel.startswith("."):
                with open(full, "rb") as f:
                    out[rel] = f.read()
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    for name, value in DEFAULTS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=json.loads, default=value)
    a = vars(parser.parse_args())
    hub = Hub(read_dir(a.pop("dir")), **a)
    print("HF_ENDPOINT=%s  repository org/name  mirror %s" % (hub.url, hub.mirror), flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        hub.close()


if __name__ == "__main__":
    sys.exit(main())
