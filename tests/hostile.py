"""Hostile inputs, small: archives with bad names and links, bombs, documents of absurd shape, pickles that would run code, odd file names.

Used by ``tests/fuzz.py``, damaged further, and, in their real size, by ``tests/intake/test_hostile.py``.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable

#: File names and other labels that would do something to a terminal, a shell or a path.
NAMES = [
    "new\nline.log",
    "esc\x1b[2J\x1b]0;owned\x07.log",
    "csi\x9b31m.txt",
    "bell\x07\x08\x08.txt",
    "-rf",
    "--html=x",
    "$(touch owned).log",
    "a b\t'\"`;&|.log",
    "名前.log",
    "\u202egol.txt",
    "\udcff\udcfe.log",
    "a:1",
    "[bold]{0}%s",
    "x" * 240,
    " ",
]
#: Member names that try to leave the archive.
PATHS = [
    "../../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..\\..\\b.txt",
    "C:\\x.txt",
    "./.",
    "//host/share/x",
    "node-a/./../x",
    "",
]

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def tar_of(members: Iterable[tuple[str, bytes]], *, links: bool = False, mode: str = "w") -> bytes:
    """A tar archive of ``members``; with ``links``, also of links out of it, devices and a FIFO."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for kind, name, target in (
            (tarfile.SYMTYPE, "node-a/passwd.log", "/etc/passwd"),
            (tarfile.SYMTYPE, "node-a/up.log", "../../../../etc/passwd"),
            (tarfile.LNKTYPE, "node-a/hard.log", "/etc/passwd"),
            (tarfile.LNKTYPE, "node-a/self.log", "node-a/self.log"),
            (tarfile.CHRTYPE, "node-a/zero.log", ""),
            (tarfile.BLKTYPE, "node-a/sda.log", ""),
            (tarfile.FIFOTYPE, "node-a/fifo.log", ""),
            (tarfile.DIRTYPE, "../../node-a", ""),
        ):
            if links:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.devmajor, info.devminor = kind, target, 1, 5
                archive.addfile(info)
    return out.getvalue()


def zip_of(members: Iterable[tuple[str, bytes]], *, links: bool = False) -> bytes:
    """A zip archive of ``members``; with ``links``, also a symbolic link to /etc/passwd."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode()), data, zipfile.ZIP_DEFLATED)
        if links:
            info = zipfile.ZipInfo("node-a/passwd.log")
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def nested(data: bytes, depth: int) -> bytes:
    """An archive in an archive, and so on; the innermost holds ``data``."""
    for level in range(depth):
        data = (tar_of, zip_of)[level % 2]([(f"level{level}/inner.{'tar' if level % 2 else 'zip'}", data)])
    return data


BILLION_LAUGHS = (
    '<?xml version="1.0"?>\n<!DOCTYPE {0} [<!ENTITY a0 "lol">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    + "]>\n<{0}>&a11;</{0}>\n"
)
OUTSIDE = '<?xml version="1.0"?>\n<!DOCTYPE {0} [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<{0}><a>&x;</a></{0}>\n'
ROOTS = ["nvidia_smi_log", "topology", "system"]
#: The first key of JSON documents that readers know.
KEYS = [
    "entries",
    "nccl_version",
    "lscpu",
    "sinfo",
    "jobs",
    "meta",
    "schema",
    "/sys/class/infiniband/mlx5_0/fw_ver",
    "body",
    "nvbandwidth",
    "version",
    "test_info",
    "pg_config",
    "@odata.id",
]


def json_bomb(rng: random.Random, size: int) -> str:
    """A document of a known kind, deep, wide, with huge numbers or the same key many times."""
    key = json.dumps(rng.choice(KEYS))
    return rng.choice(
        (
            f"{{{key}: {'[' * size}{']' * size}}}",
            f"{{{key}: " * size + "1" + "}" * size,
            f'{{{key}: {"9" * size}, "kilter": 1, "sources": [], "node": {"9" * size}}}',
            f'{{{key}: 1e{"9" * 30}, "time": -{"9" * 400}}}',
            f"{{{key}: [{'1,' * size}1]}}",
            f"{{{key}: [{'{},' * size}{{}}]}}",
            "{" + f"{key}: [], " * size + f"{key}: 1}}",
            f"{{{key}: [{{{key}: {'[' * size}",
            f'{{{key}: "' + "\\ud800\\u0000\\u001b[31m" * (size // 10 + 1) + '"}',
            f'{{{key}: [NaN, Infinity, -Infinity, 1e999, null, true, {{}}, [], ""]}}',
        )
    )


def xml_bomb(rng: random.Random, size: int) -> str:
    root = rng.choice(ROOTS)
    head = f'<?xml version="1.0"?>\n<!DOCTYPE {root} SYSTEM "x.dtd">\n<{root}>'
    return rng.choice(
        (
            BILLION_LAUGHS.replace("{0}", root),
            OUTSIDE.replace("{0}", root),
            head + "<gpu>" * size,
            head + "<a>" * size + "</a>" * size + f"</{root}>\n",
            head + f'<gpu id="{"9" * size}"/></{root}>\n',
            head + "<gpu " + " ".join(f'a{n}="1"' for n in range(size // 10)) + f"/></{root}>\n",
            head + "<gpu/>" * size + f"</{root}>\n",
            head + f"<!--{'-' * size}</{root}>\n",
        )
    )


def yaml_bomb(rng: random.Random, size: int) -> str:
    return rng.choice(
        (
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "- " * size + "x\n",
            "".join(f"a{n}: &b{n} {n}\n" for n in range(size)),
            "!!python/object/apply:os.system ['touch owned']\n",
            f"a: {'9' * size}\n" + "a: 1\n" * 10,
            "{" * size,
        )
    )


class _Runs:
    def __init__(self, call: tuple[Callable[..., object], tuple[object, ...]]) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def pickle_that_runs(path: str, protocol: int = 2) -> bytes:
    """A Flight Recorder dump that makes the file ``path`` when it is unpickled."""
    return pickle.dumps({"version": "2.0", "entries": [_Runs((open, (path, "w")))]}, protocol)


def pickle_bomb(rng: random.Random, size: int) -> bytes:
    """Pickles of plain opcodes that ask for much: doubling lists, depth, memo indexes, long numbers."""
    return rng.choice(
        (
            b"\x80\x02]q\x00" + b"(h\x00h\x00e" * size + b".",
            b"\x80\x02" + b"]" * size + b"a" * (size - 1) + b".",
            b"\x80\x02}(" + b"K\x01K\x02" * size + b"u.",
            b"\x80\x02}\x8b" + (0x7FFFFFFF).to_bytes(4, "little") + b"\xff" * 50 + b".",
            b"\x80\x02}X" + (0xFFFFFFF0).to_bytes(4, "little") + b"a.",
            b"\x80\x02}I" + b"9" * size + b"\n.",
            b"\x80\x02" + b"(" * size + b"t" * size + b".",
            b"\x80\x04\x95" + b"\xff" * 8 + b"}.",
            b"\x80\x02](" + b"K\x01" * 50 + b"e" + b"2(\x85\x86\x87" * 20 + b".",
            b"\x80\x02}X\x07\x00\x00\x00entries]" + b"(" + b"}" * size + b"es.",
            b"\x80\x02cos\nsystem\nX\x05\x00\x00\x00touch\x85R.",
            b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        )
    )
