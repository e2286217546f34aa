"""Certificates for a hub over TLS, made by the openssl command: an authority of its own, and contexts of servers."""
import os
import shutil
import ssl
import subprocess

CONFIG = """
[ca]
default_ca = own
[own]
dir = {dir}
database = {dir}/index.txt
new_certs_dir = {dir}
certificate = {dir}/ca.pem
private_key = {dir}/ca.key
serial = {dir}/serial
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = none
[none]
"""
# name: (names of the host, first day, last day)
SERVERS = {"good": ("IP:127.0.0.1,DNS:localhost", "20200101000000Z", "20991231000000Z"),
           "of another host": ("DNS:elsewhere.test", "20200101000000Z", "20991231000000Z"),
           "expired": ("IP:127.0.0.1,DNS:localhost", "20200101000000Z", "20200102000000Z")}


def openssl(d, *arguments):
    p = subprocess.run(["openssl", *arguments], cwd=d, capture_output=True, stdin=subprocess.DEVNULL)
    if p.returncode:
        raise RuntimeError("openssl %s: %s" % (" ".join(arguments), p.stderr.decode()))


def make(d):
    """The authority's file, and {name: context}. None without the openssl command."""
    if not shutil.which("openssl"):
        return None
    files = {"config": CONFIG.format(dir=d), "index.txt": "", "serial": "01"}
    for name, text in files.items():
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", "config"]
    openssl(d, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "3650", "-subj", "/CN=authority of the tests",
            "-addext", "basicConstraints=critical,CA:TRUE")
    contexts = {}
    for i, (name, (hosts, first, last)) in enumerate(SERVERS.items()):
        with open(os.path.join(d, "extensions"), "w") as f:
            f.write("subjectAltName=%s\n" % hosts)
        openssl(d, "req", *key, "-keyout", "%d.key" % i, "-out", "%d.csr" % i, "-subj", "/CN=server")
        openssl(d, "ca", "-batch", "-notext", "-config", "config", "-in", "%d.csr" % i, "-out", "%d.pem" % i, "-startdate", first,
                "-enddate", last, "-extfile", "extensions")
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(os.path.join(d, "%d.pem" % i), os.path.join(d, "%d.key" % i))
    return os.path.join(d, "ca.pem"), contexts
