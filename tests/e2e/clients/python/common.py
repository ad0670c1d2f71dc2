"""What both Python client programs share: arguments, records, digests, the answer.

The records are made from (seed, index) exactly as in the other languages; the digest is over the
records of a partition in order.
"""

import hashlib
import json
import struct
import sys
import threading


class Refused(Exception):
    """A refusal with one of Kafka's error numbers."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Args:
    """The `name=value` arguments of a verb."""

    def __init__(self, argv):
        self.values = dict(arg.split("=", 1) for arg in argv)

    def has(self, name):
        return name in self.values

    def str(self, name, fallback=None):
        value = self.values.get(name, fallback)
        if value is None:
            raise ValueError(f"missing argument {name}")
        return value

    def int(self, name, fallback=None):
        return int(self.str(name, fallback))

    def flag(self, name):
        return self.values.get(name) == "true"

    def list(self, name):
        return [part for part in self.values.get(name, "").split(",") if part]

    def map(self, name):
        return dict(part.split("=", 1) for part in self.list(name))


class Records:
    """Record number i, the same in every language."""

    def __init__(self, args):
        self.shape = args.str("shape", "mixed")
        self.seed = args.int("seed", "0")
        self.sizes = [int(size) for size in args.list("sizes")] or [100]
        self.null_headers = args.str("null_headers", "true") == "true"

    def key(self, i):
        if self.shape == "mixed":
            return None if i % 4 == 0 and i % 5 != 4 else b"key-%d" % (i % 16)
        if self.shape == "keyed":
            return b"key-%d" % (i % 16)
        return b"k%d" % i

    def value(self, i):
        if self.shape == "mixed" and i % 5 == 4:
            return None
        size = self.sizes[i % len(self.sizes)]
        block = bytes((self.seed + 31 * i + 7 * j) & 255 for j in range(256))
        return (block * (size // 256 + 1))[:size]

    def headers(self, i):
        if self.shape != "mixed":
            return []
        return [
            ("h%d" % k, None if k == 1 and self.null_headers else b"v%d" % i) for k in range(i % 3)
        ]


class Seen:
    """First and last offset, count and digest for each partition."""

    def __init__(self):
        self.digests = {}
        self.partitions = {}

    def add(self, partition, offset, key, value, headers):
        digest = self.digests.setdefault(partition, hashlib.sha256())
        for part in (key, value):
            _bytes(digest, part)
        digest.update(struct.pack(">i", len(headers)))
        for name, content in headers:
            _bytes(digest, name.encode())
            _bytes(digest, content)
        entry = self.partitions.setdefault(str(partition), {"first": offset, "count": 0})
        entry["last"] = offset
        entry["count"] += 1

    def result(self):
        for partition, digest in self.digests.items():
            self.partitions[str(partition)]["digest"] = digest.hexdigest()
        return self.partitions


def _bytes(digest, part):
    if part is None:
        digest.update(struct.pack(">i", -1))
    else:
        digest.update(struct.pack(">i", len(part)))
        digest.update(part)


_print_lock = threading.Lock()


def say(event):
    """Prints one JSON line."""
    with _print_lock:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def stop_event():
    """An event that is set when standard input ends."""
    stop = threading.Event()

    def watch():
        while sys.stdin.buffer.read(1):
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    return stop


def main(verbs, code_of):
    """Runs the verb of the command line; `code_of` gives the error number of an exception."""
    verb, bootstrap, args = sys.argv[1], sys.argv[2], Args(sys.argv[3:])
    answer = {"ok": True}
    try:
        answer.update(verbs[verb](bootstrap, args) or {})
    except Exception as error:  # every failure is an answer; the harness judges it
        code = error.code if isinstance(error, Refused) else code_of(error)
        if code is None:
            raise
        answer = {"ok": False, "code": code, "error": repr(error)}
    say(answer)
