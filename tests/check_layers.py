#!/usr/bin/env python3
"""Reads the #include lines and holds every folder to the layers of the design: a folder uses only earlier ones.

usage: check_layers.py [ROOT]
"""
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folder of src/: the folders of src/ that it may include besides itself.
LAYERS = {
    "base": [],
    "format": ["base"],
    "kernels": ["base", "format"],
    "store": ["base", "format", "kernels"],
    "model": ["base", "format", "kernels", "store"],
    "session": ["base", "format", "kernels", "store", "model"],
    "text": ["base", "format"],
    "install": ["base", "format"],
    "chat": ["base", "format", "kernels", "store", "model", "session", "text"],
}
# Programs on the public header: besides these only files of their own folder.
PROGRAMS = ["cli", "server"]

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)
n_files, faults = 0, []


def sources(folder):
    for base, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".inc")):
                yield os.path.join(base, name)


def includes(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2)


def fault(path, line, what):
    faults.append("%s:%d: %s" % (os.path.relpath(path, ROOT), line, what))


for path in sources("src"):
    n_files += 1
    layer = os.path.relpath(path, os.path.join(ROOT, "src")).split(os.sep)[0]
    if layer not in LAYERS:
        fault(path, 1, "the folder src/%s has no place in the list of layers" % layer)
        continue
    for line, own, system in includes(path):
        folder = own.split("/")[0] if own and "/" in own else None
        if folder and folder in LAYERS and folder != layer and folder not in LAYERS[layer]:
            fault(path, line, "%s may not include %s" % (layer, own))
        elif own and (".." in own.split("/") or folder in PROGRAMS):
            fault(path, line, "%s reaches out of src/" % own)
        elif system and system.split("/")[0] in LAYERS:
            fault(path, line, "<%s>: files of src/ are included with quotes" % system)

for program in PROGRAMS:
    for path in sources(program):
        n_files += 1
        for line, own, _ in includes(path):
            if own and not os.path.exists(os.path.join(os.path.dirname(path), own)):
                fault(path, line, "%s may include only its own files and <swiftlet/swiftlet.h>, not %s" % (program, own))
            if own and own.split("/")[0] in LAYERS:
                fault(path, line, "%s may not include %s" % (program, own))

for f in faults:
    print(f)
print("%d files read, %d faults" % (n_files, len(faults)))
sys.exit(1 if faults or not n_files else 0)
