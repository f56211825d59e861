"""``ibv_devinfo``, plain and ``-v``: RDMA devices as libibverbs sees them, with the GID table.

Source of the format: linux-rdma/rdma-core, libibverbs/examples/devinfo.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.network import Gid, RdmaDevice, RdmaPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import PHYSICAL_STATES, STATES, guid, number, rdma_device, rdma_port
from kilter.intake.fragment import Block, Fragment

_NUMBERED = re.compile(r"(.*?) {0,64}\((\d{1,20})\)$")
_WIDTH = re.compile(r"(\d+)X?\b")
_SPEED = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) *Gbps")
_GID = re.compile(r"GID\[ *(\d+)\]:?\s*(\S+?)(?:, *(.+))?$")
_MELLANOX_IEEE_OUI = 0x2C9

#: words of sysfs (gid_attrs/types) for those of ibv_devinfo
_GID_TYPES = {"RoCE v1": "IB/RoCE v1", "IB": "IB/RoCE v1", "InfiniBand": "IB/RoCE v1"}

#: lines of a port that no fact wants; what comes before the first port is not listed, -v prints some eighty limits there
_IGNORED_PORT = re.compile(
    r"port_lmc|max_msg_sz|port_cap_flags2?|max_vl_num|bad_pkey_cntr|qkey_viol_cntr|sm_sl|pkey_tbl_len|gid_tbl_len|subnet_timeout"
    r"|init_type_reply"
)
_DEVICE_LINE = re.compile(r"[A-Za-z][\w ]*:|[A-Z0-9_ ]+$|Unknown flags|maximum available device memory|.*not supported$")


def _coded(value: str, words: dict[int, str]) -> str:
    """``PORT_ACTIVE (4)`` -> ``ACTIVE`` by its number; a number without a word leaves the text as printed."""
    match = _NUMBERED.match(value)
    return words.get(int(match[2]), value) if match else value


def _put_device(device: RdmaDevice, key: str, value: str, ids: dict[str, int], ref: tuple[int, int]) -> None:
    if key == "fw_ver":
        device.put("firmware", value or None, ref)
    elif key == "node_guid":
        device.put("node_guid", guid(value), ref)
    elif key == "board_id":
        device.put("board_id", value or None, ref)
    elif key in ("vendor_id", "vendor_part_id"):
        parsed = number(value)
        if parsed is not None:
            ids[key] = parsed
        if ids.get("vendor_id") == _MELLANOX_IEEE_OUI and "vendor_part_id" in ids:
            device.put("hca_type", f"MT{ids['vendor_part_id']}", ref)  # as hca_type of mlx5 in sysfs


def _put_port(port: RdmaPort, key: str, value: str, link: dict[str, float], ref: tuple[int, int]) -> bool:
    if key == "state":
        port.put("state", _coded(value, STATES), ref)
    elif key == "phys_state":
        port.put("physical_state", _coded(value, PHYSICAL_STATES), ref)
    elif key in ("max_mtu", "active_mtu"):
        words = value.split(" ", 1)
        if words[0].isdecimal():
            port.put(key, int(words[0]), ref)
        else:  # "invalid MTU (0)"
            port.lacks(key, Reason.NOT_SUPPORTED, f"ibv_devinfo prints {value[:40]!r}")
    elif key in ("sm_lid", "port_lid"):
        port.put("sm_lid" if key == "sm_lid" else "lid", number(value), ref)
    elif key == "link_layer":
        port.put("link_layer", value or None, ref)
    elif key in ("active_width", "active_speed"):
        match = (_WIDTH if key == "active_width" else _SPEED).match(value)
        if match is None:
            port.lacks("rate_gbps", Reason.NOT_SUPPORTED, f"ibv_devinfo prints {key} {value[:40]!r}")
        else:
            link[key] = float(match[1])
        if len(link) == 2:  # the speed is that of one lane
            port.put("rate_gbps", link["active_width"] * link["active_speed"], ref)
    else:
        return _IGNORED_PORT.fullmatch(key) is not None
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """RDMA devices, their ports (rate only with ``-v``: lanes times lane speed) and GIDs."""
    device: RdmaDevice | None = None
    port: RdmaPort | None = None
    ids: dict[str, int] = {}
    link: dict[str, float] = {}
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        key, colon, value = text.partition(":")
        value = value.strip()
        if key == "hca_id" and value:
            device, port, ids = rdma_device(fragment, value, line), None, {}
        elif text.startswith("No IB devices found"):
            if fragment.snapshot.rdma is None:
                fragment.snapshot.put("rdma", [], ref)
        elif device is None:
            fragment.unparsed(line, raw)
        elif key == "port" and value.isdecimal():
            port, link = rdma_port(fragment, device, int(value), line), {}
        elif port is None:
            if colon:
                _put_device(device, key, value, ids, ref)
            listed = raw.startswith(("\t\t", "          "))  # an item of a list of capabilities
            if not listed and not _DEVICE_LINE.match(text):
                fragment.unparsed(line, raw)
        elif match := _GID.match(text):
            if port.gids is None:
                port.put("gids", [], ref)
            assert port.gids is not None
            kind = match[3] or ""
            port.gids.append(Gid(index=int(match[1]), gid=match[2], type=_GID_TYPES.get(kind, kind)))
        elif not (colon and _put_port(port, key, value, link, ref)):
            fragment.unparsed(line, raw)
