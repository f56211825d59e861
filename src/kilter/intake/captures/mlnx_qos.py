"""``mlnx_qos -i <interface>``: lossless priorities and trust of a port; also what ``cma_roce_mode`` and ``cma_roce_tos`` print.

The tool does not print the interface's name: it is taken from the command at the prompt, else it is "". Buffers, rate limits and the
scheduling of traffic classes are read over: no check needs them. The mode of the connection manager (rdma_cm) belongs to no fact: RoCE v1
there becomes a note. Source of the format: Mellanox/mlnx-tools, python/mlnx_qos and sbin/cma_roce_mode, cma_roce_tos.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.network import NetInterface
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_INTERFACE = re.compile(r"\bmlnx_qos\b[^|;&]*?(?:-i|--interface)[ =]?([^\s|;&<>]+)")
_CMA = re.compile(r"\bcma_roce_(mode|tos)\b[^|;&]*?-d ?([^\s|;&]+)")
_TRUST = re.compile(r"Priority trust state:\s*(\S.*)?$")
_ROW = re.compile(r"(priority|enabled|buffer):?\s+(\d{1,2}(?:\s+\d{1,2})*)$")
_MODE = re.compile(r"(?:IB/)?RoCE v([12])$")
_TOS = re.compile(r"\d{1,3}$")
_IGNORED = re.compile(
    r"DCBX mode:|dscp2prio mapping:|prio:\d|default priority:|Receive buffer size|Cable len:|max_buffer_size=|PFC configuration:|Enabled TC:"
    r"|tc: ?\d|priority: +\d|priority: *$|Rate ?limit"
)
_NONE = {"n/a", "unknown", "not supported", "none"}


def interface_of(command: str) -> str:
    """``mlnx_qos -i ens1f0 | head`` -> ``ens1f0``; "" if the command names none."""
    match = _INTERFACE.search(command)
    return match[1] if match else ""


def _connection_manager(fragment: Fragment, command: str, text: str) -> bool:
    asked = _CMA.search(command)
    if asked is None:  # the same words stand in gid_attrs/types
        return False
    if match := _MODE.match(text):
        if match[1] == "1":
            fragment.note(f"cma_roce_mode: rdma_cm uses RoCE v1 on {asked[2][:60]}: its connections cannot be routed")
        return True
    return asked[1] == "tos" and _TOS.match(text) is not None


def parse(block: Block, fragment: Fragment) -> None:
    """``pfc_priorities`` ([] = none is lossless) and ``trust`` of one interface."""
    command = block.source.command
    name = interface_of(command)
    nic: NetInterface | None = None
    columns: list[int] = []
    in_table = shown = False
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        if match := _TRUST.match(text):
            nic = nic or fragment.interface(name, line)
            word = (match[1] or "").strip()
            if not word or word.strip("[]").lower() in _NONE:
                nic.lacks("trust", Reason.NOT_SUPPORTED, f"mlnx_qos prints no trust state: {word}".rstrip(": "))
            else:
                nic.put("trust", word.lower(), ref)
        elif text.startswith("PFC configuration:"):
            nic = nic or fragment.interface(name, line)
            in_table, columns = True, []
        elif in_table and (match := _ROW.match(text)):
            numbers = [int(word) for word in match[2].split()]
            if match[1] == "priority":
                columns = numbers
            elif match[1] == "enabled" and nic is not None:
                if len(numbers) == len(columns) and set(numbers) <= {0, 1}:
                    nic.put("pfc_priorities", [p for p, on in zip(columns, numbers, strict=True) if on], ref)
                    shown = True
                else:
                    fragment.unparsed(line, raw)
        elif text.startswith("PFC is not supported") or "not supported" in text.lower():
            nic = nic or fragment.interface(name, line)
            nic.lacks("pfc_priorities", Reason.NOT_SUPPORTED, text[:120])
            shown = True
        elif _IGNORED.match(text):
            in_table = in_table and not text.startswith("tc:")
        elif not _connection_manager(fragment, command, text):
            fragment.unparsed(line, raw)
    if nic is not None and not shown:
        fragment.note("mlnx_qos: the table of lossless priorities (PFC) is missing or cut short")
