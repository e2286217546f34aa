#!/usr/bin/env python3
"""Compiles the sources for systems that are not at hand, without linking: macOS on AArch64 and Windows on x86-64.

usage: check_compile.py
Windows: with mingw-w64's compiler, when it is installed; all of the library but what LACKING names. macOS: with clang and
the system's headers as the package `ziglang` carries them, fetched once into build/darwin when CI is "true" in the
environment; all of it. Headers of libraries are this machine's own: their interfaces are the same everywhere.
The last line is "N passed, N failed, N skipped"; a file is a test.
"""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "cross")
DARWIN = os.path.join(ROOT, "build", "darwin")
ZIG = "ziglang==0.17.1"
LIBRARIES = {"jansson": ["jansson.h", "jansson_config.h"], "libpcre2-8": ["pcre2.h"], "libutf8proc": ["utf8proc.h"],
             "libcrypto": ["openssl"], "libevent_core": ["event2"], "libcurl": ["curl"]}
# What Windows lacks so far: the directory that a container is built in (locks, exchanges, trees), and files in it by handles.
LACKING = ["src/install/stage.c", "src/install/place.c"]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wpointer-arith",
            "-Wundef", "-Werror"]


def isa_flags():
    """Suffix: flags, from the file that the build uses."""
    with open(os.path.join(ROOT, "cmake", "isa.cmake")) as f:
        return {m[0]: m[1].split(";") for m in
                re.findall(r'MATCHES "(_\w+)\\\\\.c\$"\)\s+set_source_files_properties\(\$\{f\} PROPERTIES '
                           r'COMPILE_OPTIONS\s+"([^"]+)"', f.read())}


def library_headers():
    """A folder with the headers of the libraries and nothing of this system's own."""
    to = os.path.join(BUILD, "include")
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for library, names in LIBRARIES.items():
        where = subprocess.run(["pkg-config", "--variable=includedir", library], capture_output=True, text=True).stdout
        folders = [where.strip() or "/usr/include"]
        folders += glob.glob(os.path.join(folders[0], "*-linux-gnu*"))
        for folder in reversed(folders):  # what differs between processors lies in the second
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isdir(path):
                    shutil.copytree(path, os.path.join(to, name), dirs_exist_ok=True)
                elif os.path.exists(path):
                    shutil.copy(path, to)
    return to


def sources(processor, folders):
    other = {"x86": "arm", "arm": "x86"}[processor]
    for folder in folders:
        for base, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(base, name), ROOT)
                if name.endswith(".c") and not path.startswith("src/kernels/%s/" % other):
                    yield path


def compile_one(command, isa, path):
    flags = next((f for suffix, f in isa.items() if path.endswith(suffix + ".c")), [])
    p = subprocess.run([*command, *flags, "-fsyntax-only", path], cwd=ROOT, capture_output=True, text=True)
    return path, p.returncode, p.stderr


def compile_all(what, command, paths):
    isa = isa_flags()
    command = [*command, "-std=c11", "-ffp-contract=off", '-DSWL_VERSION="cross"', "-DSWL_HAVE_URING=0", "-DSWL_HAVE_CURL=1",
               "-Iinclude",
               "-Isrc", *WARNINGS, "-isystem", library_headers()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        done = list(pool.map(lambda path: compile_one(command, isa, path), paths))
    for path, rc, said in done:
        if rc:
            failed += 1
            print("FAILED %s: %s\n%s" % (what, path, said))
    print("%s: %d files, %d failed" % (what, len(done), failed))
    return len(done) - failed, failed


def darwin_headers():
    folder = os.path.join(DARWIN, "any-darwin-any")
    if os.path.isdir(folder) or os.environ.get("CI") != "true":
        return folder if os.path.isdir(folder) else None
    os.makedirs(DARWIN, exist_ok=True)
    if subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d",
                       DARWIN, ZIG]).returncode:
        return None
    for wheel in glob.glob(os.path.join(DARWIN, "*.whl")):
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if "/include/any-darwin-any/" in name and not name.endswith("/"):
                    path = os.path.join(folder, name.split("/any-darwin-any/", 1)[1])
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with z.open(name) as a, open(path, "wb") as b:
                        shutil.copyfileobj(a, b)
        os.remove(wheel)
    return folder


def main():
    counts = [0, 0, 0]
    windows = shutil.which("x86_64-w64-mingw32-gcc-posix") or shutil.which("x86_64-w64-mingw32-gcc")
    if windows:
        paths = [p for p in sources("x86", ["src"]) if p not in LACKING]
        # Formats are those of C99, as the macro asks for, but the compiler checks against the old runtime's.
        command = [windows, "-D_FILE_OFFSET_BITS=64", "-D__USE_MINGW_ANSI_STDIO=1", "-Wno-format",
                   "-Wno-format-extra-args"]
        passed, failed = compile_all("windows", command, paths)
        counts = [counts[0] + passed, counts[1] + failed, counts[2]]
    else:
        print("skipped: windows, no x86_64-w64-mingw32-gcc")
        counts[2] += 1
    darwin = darwin_headers() if shutil.which("clang") else None
    if darwin:
        command = ["clang", "--target=arm64-apple-macos11", "-nostdlibinc", "-isystem", darwin]
        passed, failed = compile_all("macos", command, sources("arm", ["src", "cli", "server"]))
        counts = [counts[0] + passed, counts[1] + failed, counts[2]]
    else:
        print("skipped: macos, no clang or no headers (CI=true fetches them)")
        counts[2] += 1
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    sys.exit(1 if counts[1] else 0)


main()
