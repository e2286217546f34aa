"""What a disk may hold after a power cut: replays a log of disk_layer.c and builds the states that a crash could leave.

The model promises no more than POSIX does. What a sync of a file covered is there; a sync of a directory makes its entries
durable, and nothing else does. Of what was not synced any part may have reached the disk: writes as a whole, cut at a sector,
as a length with zeros, in another order, or not at all; entries in order up to some point, or some of them and not others. A
rename happens or does not.

Disk(root) takes what is there as durable. step() applies one record. crash(how, rng) gives a tree (name to bytes or to a
tree), which put() writes into an empty folder.
"""
import os
import struct

HEAD = struct.Struct("<cQQQQII")
SECTOR = 512
WAYS = ("nothing", "entries", "zeros", "data", "random")


def read_log(path):
    with open(path, "rb") as f:
        data = f.read()
    at, out = 0, []
    while at < len(data):
        op, a, b, c, _, n, m = HEAD.unpack_from(data, at)
        at += HEAD.size
        out.append((op.decode(), a, b, c, data[at:at + n], data[at + n:at + n + m]))
        at += n + m
    return out


class File:
    def __init__(self, data=b""):
        self.data, self.pending = bytearray(data), []


class Folder:
    def __init__(self):
        self.entries = {}


def apply(data, op, at, more, zeros=False):
    if op == "T":
        del data[at:]
        data.extend(bytes(at - len(data)))
    elif op == "A":
        data.extend(bytes(max(0, at - len(data))))
    else:
        data.extend(bytes(max(0, at + len(more) - len(data))))
        if not zeros:
            data[at:at + len(more)] = more


class Disk:
    def __init__(self, root):
        self.nodes, self.pending = {}, []  # pending: changes of entries, in order
        self.root = self.scan(root)

    def scan(self, path):
        node = Folder()
        self.nodes[os.stat(path).st_ino] = node
        for e in os.scandir(path):
            if e.is_dir(follow_symlinks=False):
                node.entries[e.name] = self.scan(e.path)
            else:
                with open(e.path, "rb") as f:
                    node.entries[e.name] = self.nodes[e.inode()] = File(f.read())
        return node

    # ---- one record ----------------------------------------------------------------------------------------------------

    def step(self, record):
        op, a, b, c, x, y = record
        if op == "C":
            self.nodes[b] = Folder() if c else File()
            self.pending.append(("add", self.nodes[a], x.decode(), self.nodes[b]))
        elif op == "U":
            self.pending.append(("del", self.nodes[a], x.decode()))
        elif op == "R":
            self.pending.append(("swap" if c else "move", self.nodes[a], x.decode(), self.nodes[b], y.decode(),
                                 self.now(a, x.decode()), self.now(b, y.decode())))
        elif op == "S":
            self.sync(self.nodes[a])
        else:
            self.nodes[a].pending.append((op, b, x))

    def now(self, folder, name):
        """What an entry leads to for the running program."""
        node = self.nodes[folder].entries.get(name)
        for p in self.pending:
            if p[0] == "add" and p[1] is self.nodes[folder] and p[2] == name:
                node = p[3]
            elif p[0] == "del" and p[1] is self.nodes[folder] and p[2] == name:
                node = None
            elif p[0] in ("move", "swap"):
                if p[1] is self.nodes[folder] and p[2] == name:
                    node = p[6] if p[0] == "swap" else None
                if p[3] is self.nodes[folder] and p[4] == name:
                    node = p[5]
        return node

    def sync(self, node):
        if isinstance(node, File):
            for p in node.pending:
                apply(node.data, *p)
            node.pending = []
            return
        for p in self.pending:
            if node in p:
                self.change({}, p)
        self.pending = [p for p in self.pending if node not in p]

    @staticmethod
    def change(shadow, p):
        """Applies a change of entries; shadow: id of a folder to the entries that it has instead of its own."""
        entries = lambda folder: shadow.get(id(folder), folder.entries)
        if p[0] == "add":
            entries(p[1])[p[2]] = p[3]
        elif p[0] == "del":
            entries(p[1]).pop(p[2], None)
        else:
            entries(p[1]).pop(p[2], None)
            if p[0] == "swap":
                entries(p[1])[p[2]] = p[6]
            entries(p[3])[p[4]] = p[5]

    # ---- a crash -------------------------------------------------------------------------------------------------------

    def crash(self, how, rng):
        shadow = {id(n): dict(n.entries) for n in self.nodes.values() if isinstance(n, Folder)}
        for p in self.kept_changes(how, rng):
            self.change(shadow, p)
        return self.tree(self.root, shadow, how, rng)

    def kept_changes(self, how, rng):
        if how in ("entries", "zeros"):
            return self.pending
        if how in ("nothing", "data") or not self.pending:
            return []
        if rng.random() < 0.5:  # as a journal does it
            return self.pending[:rng.randrange(len(self.pending) + 1)]
        return [p for p in self.pending if rng.random() < 0.5]

    def tree(self, folder, shadow, how, rng):
        out = {}
        for name, node in sorted(shadow[id(folder)].items()):
            out[name] = self.tree(node, shadow, how, rng) if isinstance(node, Folder) else self.content(node, how, rng)
        return out

    @staticmethod
    def content(f, how, rng):
        data = bytearray(f.data)
        if how == "random":
            how = rng.choice(("nothing", "zeros", "data", "some", "first", "first"))
        keep = rng.randrange(len(f.pending) + 1) if how == "first" else 0
        for i, (op, at, more) in enumerate(f.pending):
            if how == "zeros":
                apply(data, op, at, more, zeros=True)
            elif how == "data" or i < keep:
                apply(data, op, at, more)
            elif how == "some" or (how == "first" and i == keep):
                cut = min(len(more), rng.randrange(len(more) // SECTOR + 2) * SECTOR) if op == "W" else 0
                if op != "W" and rng.random() < 0.5:
                    apply(data, op, at, more)
                elif op == "W" and cut:
                    apply(data, op, at, more[:cut])
        return bytes(data)


def put(tree, path):
    for name, what in tree.items():
        at = os.path.join(path, name)
        if isinstance(what, dict):
            os.mkdir(at)
            put(what, at)
        else:
            with open(at, "wb") as f:
                f.write(what)
