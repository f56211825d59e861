"""The child process that touches devices for kilter, so that a hung driver hangs the child and not kilter.

Run by :mod:`kilter.intake.live.guard` as ``python -I -S reader.py``: standard library only. Requests come as lines, ``R
<path>`` for a file and ``E <interface>`` for ethtool; the answer is a line ``<errno> <length>`` and so many bytes. It ends
with its input.
"""

from __future__ import annotations

import os
import stat
import sys

#: sysfs attributes have at most a page; configuration space has 4096 bytes.
LIMIT = 1 << 16


def read_file(path: str) -> bytes:
    """Content of a plain file, at most :data:`LIMIT` bytes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "no plain file")
        parts = []
        left = LIMIT
        while left > 0 and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def ethtool(name: str) -> bytes:
    """Facts of a network interface as JSON; an empty name asks for the IPv4 addresses of all."""
    import importlib
    import json

    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:
        sys.path.append(here)  # isolated mode leaves it out; at the end, so that nothing of the standard library is hidden
    module = importlib.import_module("ethtool_ioctl")
    return json.dumps(module.query(name) if name else module.ipv4_addresses()).encode()


def main() -> None:
    answers = {"R": read_file, "E": ethtool}
    for line in sys.stdin.buffer:
        kind, _, argument = line.decode("utf-8", "surrogateescape").rstrip("\n").partition(" ")
        try:
            code, data = 0, answers[kind](argument)
        except OSError as error:
            code, data = error.errno or 5, b""
        except Exception:  # the parent must get an answer whatever a driver returned
            code, data = 5, b""
        sys.stdout.buffer.write(b"%d %d\n" % (code, len(data)) + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
