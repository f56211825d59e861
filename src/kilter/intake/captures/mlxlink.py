"""``mlxlink -d <device> [-c]``: state, speed, width and bit error rates of one port.

The device is named by the command only; a paste without it is a port without a name. Source of the format: NVIDIA MFT user manual, mlxlink;
Mellanox/mstflint, mlxlink/modules.
"""

from __future__ import annotations

import re

from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import physical_word, rdma_device, rdma_port, state_word
from kilter.intake.fragment import Block, Fragment

_PAIR = re.compile(r"([A-Z][\w /()\[\].-]{2,60}?) *: (.*)$")
_DEVICE = re.compile(r"\bmlxlink\b.*?(?:-d|--device)[ =]?(\S{1,80})")
_PORT = re.compile(r"\bmlxlink\b.*?(?:-p|--port)[ =]?(\d{1,4})\b")
_BER = {"Symbol BER": "symbol", "Effective Physical BER": "effective", "Raw Physical BER": "raw"}
_COUNTERS = {
    "Symbol Errors": "symbol_error",
    "Link Down Counter": "link_downed",
    "Link Error Recovery Counter": "link_error_recovery",
}
_SPEED = re.compile(r"IB-(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)$")


def _ber(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.fabric``: a node without kind, named by the device, with its port; an ``mlx5_*`` device also as RDMA device."""
    named = _DEVICE.search(block.source.command)
    device = named[1] if named else "device not named"
    asked = _PORT.search(block.source.command)
    ref0 = fragment.ref(block.first_line)
    name = f"{fragment.source.node} {device}".strip()
    port = FabricPort(number=int(asked[1]) if asked else 1, origin={"": ref0})
    node = FabricNode(guid=name, name=name, ports=[port], origin={"": ref0})
    found = False
    for line, raw in lines(block, fragment):
        pair = _PAIR.match(raw.strip())
        if pair is None:
            continue  # headings and rulers
        key, value, ref = pair[1], pair[2].strip(), fragment.ref(line)
        if key == "State":
            port.put("state", {"Polling": "DOWN", "Disable": "DOWN"}.get(value, state_word(value)), ref)
        elif key == "Physical state":
            port.put("physical_state", physical_word(value), ref)
        elif key == "Width":
            port.put("width", value if re.fullmatch(r"\d{1,2}x", value) else None, ref)
        elif key == "Speed":
            match = _SPEED.match(value)
            port.put("speed", match[1] if match else value if value != "N/A" else None, ref)
        elif (kind := _BER.get(key)) and (rate := _ber(value)) is not None:
            port.ber[kind] = rate
            port.origin[f"ber/{kind}"] = ref
        elif (counter := _COUNTERS.get(key)) and re.fullmatch(r"\d{1,20}", value):
            port.counters[counter] = int(value)
            port.origin[f"counters/{counter}"] = ref
        elif key == "Recommendation" and value not in ("No issue was observed", "No issue was observed."):
            fragment.note(f"mlxlink: {value[:200]}")
        else:
            continue
        found = True
    if not found:
        fragment.note("mlxlink: no value is shown: cut short?")
        return
    fragment.fabric.append(node)
    if re.fullmatch(r"mlx\d_\w+", device):
        mine = rdma_port(fragment, rdma_device(fragment, device, block.first_line), port.number, block.first_line)
        for field in ("state", "physical_state"):
            mine.put(field, getattr(port, field), port.ref(field))
