"""``show_gids``: the GID table of every RDMA port, with RoCE version and interface.

Source of the format: Mellanox/mlnx-tools, sbin/show_gids.
"""

from __future__ import annotations

import re

from kilter.facts.network import Gid
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import rdma_device, rdma_port
from kilter.intake.fragment import Block, Fragment

#: words of sysfs (gid_attrs/types)
_TYPES = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
_HEADER = re.compile(r"DEV\s+PORT\s+INDEX\s+GID\b")
_RULE = re.compile(r"-{3}(?:\s+-+)+$")
_TOTAL = re.compile(r"n_gids_found=(\d{1,9})$")
_GID = re.compile(r"(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}$")
_NUMBER = re.compile(r"\d{1,6}$")


def _row(words: list[str]) -> tuple[str, int, Gid] | None:
    """(device, port, GID) of ``mlx5_0 1 3 0000:...:0a07:9f47 10.7.159.71 v2 ens4f0``; the last three columns may be empty."""
    if len(words) < 4 or not _GID.match(words[3]) or not (_NUMBER.match(words[1]) and _NUMBER.match(words[2])):
        return None
    rest = words[4:]
    if rest and _IPV4.match(rest[0]):
        rest = rest[1:]
    kind = ""
    if rest and rest[0].lower() in _TYPES:
        kind, rest = _TYPES[rest[0].lower()], rest[1:]
    if len(rest) > 1:
        return None
    return words[0], int(words[1]), Gid(index=int(words[2]), gid=words[3].lower(), type=kind, netdev=rest[0] if rest else "")


def parse(block: Block, fragment: Fragment) -> None:
    """``gids`` and ``netdev`` of RDMA ports."""
    found, said = 0, None
    known: dict[tuple[str, int, int], Gid] = {}
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text or _HEADER.match(text) or _RULE.match(text):
            continue
        if match := _TOTAL.match(text):
            said = int(match[1])
            continue
        row = _row(text.split())
        if row is None:
            fragment.unparsed(line, raw)
            continue
        name, number, gid = row
        ref = fragment.ref(line)
        port = rdma_port(fragment, rdma_device(fragment, name, line), number, line)
        if port.gids is None:
            port.put("gids", [], ref)
        assert port.gids is not None
        found += 1
        first = known.setdefault((name, number, gid.index), gid)
        if first is not gid:
            if first != gid:
                fragment.note(f"show_gids: {name} port {number} index {gid.index} is shown twice; the first is kept")
            continue
        port.gids.append(gid)
        port.origin[f"gids/{gid.index}"] = ref
        if gid.netdev and port.netdev is None:
            port.put("netdev", gid.netdev, ref)
    if said is None:
        fragment.note("show_gids: the count at the end is missing: cut short?")
    elif said != found:
        fragment.note(f"show_gids: {found} of {said} GIDs are shown")
