"""``ibstat`` and ``ibstatus``: the InfiniBand tools' view of each RDMA device and port.

States are spelt as sysfs spells them (ACTIVE, INIT; LinkUp, Polling), so that both views merge.
Source of the format: linux-rdma/rdma-core, infiniband-diags/ibstat.c and infiniband-diags/scripts/ibstatus;
of the words: linux, drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

import re

from kilter.facts.base import Reason
from kilter.facts.network import RdmaDevice, RdmaPort
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: numbers of the InfiniBand Architecture Specification (PortInfo) -> words of sysfs
STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
PHYSICAL_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}

_STATE_WORDS = {"active": "ACTIVE", "initializing": "INIT", "init": "INIT", "down": "DOWN", "armed": "ARMED"}
_PHYSICAL_WORDS = {word.lower().replace(" ", ""): word for word in PHYSICAL_STATES.values()}

_CA = re.compile(r"CA '([^']+)'")
_STATUS = re.compile(r"Infiniband device '([^']+)' port (\d+) status:")
_PORT = re.compile(r"Port (\d+):$")
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?: ?Gb/s(?:ec)?)?(?: ?\(([^)]*)\))?")
_NUMBERED = re.compile(r"(\d+): *(.*)")

_IGNORED_DEVICE = {"number of ports", "hardware version", "system image guid"}
_IGNORED_PORT = {"lmc", "capability mask", "port guid", "default gid"}


def state_word(text: str) -> str:
    """``Active``, ``4: ACTIVE`` -> ``ACTIVE``; an unknown word as printed."""
    match = _NUMBERED.match(text)
    word = match[2] if match else text
    return _STATE_WORDS.get(word.lower(), word)


def physical_word(text: str) -> str:
    """``LinkUp``, ``5: LinkUp`` -> ``LinkUp``; an unknown word as printed."""
    match = _NUMBERED.match(text)
    word = match[2] if match else text
    return _PHYSICAL_WORDS.get(word.lower().replace(" ", ""), word)


def guid(text: str) -> str | None:
    """``0xa088c20300e3142a`` -> ``a088:c203:00e3:142a``, the spelling of sysfs."""
    digits = text.removeprefix("0x").replace(":", "")
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", digits):
        return None
    digits = digits.lower().zfill(16)
    return ":".join(digits[i : i + 4] for i in range(0, 16, 4))


def number(text: str) -> int | None:
    """``48``, ``0x30`` -> 48."""
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None


def rdma_device(fragment: Fragment, name: str, line: int) -> RdmaDevice:
    """The RDMA device of that name, made on first use."""
    if fragment.snapshot.rdma is None:
        fragment.snapshot.rdma = []
    for device in fragment.snapshot.rdma:
        if device.name == name:
            return device
    device = RdmaDevice(name=name, origin={"": fragment.ref(line)})
    fragment.snapshot.rdma.append(device)
    return device


def rdma_port(fragment: Fragment, device: RdmaDevice, index: int, line: int) -> RdmaPort:
    """The port of that number, made on first use."""
    for port in device.ports:
        if port.number == index:
            return port
    port = RdmaPort(number=index, origin={"": fragment.ref(line)})
    device.ports.append(port)
    return port


def _put_device(device: RdmaDevice, key: str, value: str, ref: tuple[int, int]) -> bool:
    if key == "ca type":
        if value:
            device.put("hca_type", value, ref)
        else:  # software devices and some drivers have no type
            device.lacks("hca_type", Reason.NOT_SUPPORTED, "ibstat prints no CA type")
    elif key == "firmware version":
        device.put("firmware", value or None, ref)
    elif key == "node guid":
        device.put("node_guid", guid(value), ref)
    else:
        return key in _IGNORED_DEVICE
    return True


def _put_port(port: RdmaPort, key: str, value: str, ref: tuple[int, int]) -> bool:
    if key == "state":
        port.put("state", state_word(value) or None, ref)
    elif key in ("physical state", "phys state"):
        port.put("physical_state", physical_word(value) or None, ref)
    elif key == "rate":
        match = _RATE.match(value)
        if match is None:
            return False
        port.put("rate_gbps", float(match[1]), ref)
        port.put("rate_text", match[2], ref)
    elif key in ("base lid", "sm lid"):
        port.put("lid" if key == "base lid" else "sm_lid", number(value), ref)
    elif key in ("link layer", "link_layer"):
        port.put("link_layer", value or None, ref)
    else:
        return key in _IGNORED_PORT
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """RDMA devices and ports with state, rate (Gbit/s), lids and link layer."""
    device: RdmaDevice | None = None
    port: RdmaPort | None = None
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if not text:
            continue
        ref = fragment.ref(line)
        if match := _CA.match(text):
            device, port = rdma_device(fragment, match[1], line), None
            continue
        if match := _STATUS.match(text):
            device = rdma_device(fragment, match[1], line)
            port = rdma_port(fragment, device, int(match[2]), line)
            continue
        if device is not None and (match := _PORT.match(text)):
            port = rdma_port(fragment, device, int(match[1]), line)
            continue
        if text.startswith("ibpanic:"):
            # ibstat gives up at a device it cannot open; the devices after it are not listed.
            fragment.note(f"ibstat stopped: {text[:200]}")
            continue
        key, colon, value = text.partition(":")
        key, value = key.lower(), value.strip()
        placed = False
        if colon and port is not None:
            placed = _put_port(port, key, value, ref)
        elif colon and device is not None:
            placed = _put_device(device, key, value, ref)
        if not placed:
            fragment.unparsed(line, raw)
    for one in fragment.snapshot.rdma or []:
        if not one.ports:
            fragment.note(f"ibstat: no port of {one.name} is shown")
