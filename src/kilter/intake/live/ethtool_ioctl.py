"""ethtool facts of a network interface through ``ioctl(SIOCETHTOOL)``. Standard library only: :mod:`reader` runs it in its
child process.

Structures: Linux ``include/uapi/linux/ethtool.h``. Only commands that read are used; none needs privileges.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import re
import socket
import struct
from collections.abc import Callable

SIOCETHTOOL = 0x8946
SIOCGIFCONF = 0x8912
SIOCGIFNETMASK = 0x891B
_GDRVINFO, _GRINGPARAM, _GPAUSEPARAM, _GSTRINGS, _GSTATS = 0x03, 0x10, 0x12, 0x1B, 0x1D
_SS_STATS = 1
_NAME = 32  # ETH_GSTRING_LEN, ETHTOOL_BUSINFO_LEN
#: Drivers may add statistics between the question how many there are and the answer; the kernel then writes more than was asked.
_SLACK = 4096
_MAX_STATISTICS = 100_000

#: Counters of one queue or channel ("rx12_packets", "tx_queue_3_bytes", "rx_queue_0_drops", "[5]: tx_bytes", "ch7_poll").
_PER_QUEUE = re.compile(
    r"(?:rx|tx|ch|xdp|veth)[_-]?(?:queue|q)?[_-]?\d+[_-]|(?:rx|tx)_xsk\d|\[\d+\]|queue_\d+_|Rx Queue#|Tx Queue#|q\d+_"
)

Facts = dict[str, object]


def _call(sock: socket.socket, name: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
    """Run one SIOCETHTOOL with ``buffer``; raises OSError where the driver has no such command."""
    request = struct.pack("16sP16x", name.encode()[:15], ctypes.addressof(buffer))
    fcntl.ioctl(sock.fileno(), SIOCETHTOOL, request)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace").strip()


def _driver(sock: socket.socket, name: str) -> Facts:
    buffer = ctypes.create_string_buffer(struct.pack("I", _GDRVINFO), 4 + 5 * _NAME + 12 + 5 * 4)
    _call(sock, name, buffer)
    texts = [_text(buffer.raw[4 + _NAME * i : 4 + _NAME * (i + 1)]) for i in range(4)]
    count = struct.unpack_from("I", buffer.raw, 4 + 5 * _NAME + 12 + 4)[0]
    return {"driver": texts[0], "driver_version": texts[1], "firmware": texts[2], "bus": texts[3], "n_statistics": count}


def _rings(sock: socket.socket, name: str) -> Facts:
    buffer = ctypes.create_string_buffer(struct.pack("9I", _GRINGPARAM, *[0] * 8), 36)
    _call(sock, name, buffer)
    values = struct.unpack("9I", buffer.raw)
    return {"rx_ring": values[5], "tx_ring": values[8], "rx_ring_max": values[1], "tx_ring_max": values[4]}


def _pause(sock: socket.socket, name: str) -> Facts:
    buffer = ctypes.create_string_buffer(struct.pack("4I", _GPAUSEPARAM, 0, 0, 0), 16)
    _call(sock, name, buffer)
    _, _, receive, transmit = struct.unpack("4I", buffer.raw)
    return {"pause_rx": bool(receive), "pause_tx": bool(transmit)}


def _statistics(sock: socket.socket, name: str, count: int) -> Facts:
    """Counters of the whole interface. Those of single queues are left out: hundreds a card, and their sums are there."""
    if not 0 < count <= _MAX_STATISTICS:
        return {}
    names = ctypes.create_string_buffer(struct.pack("3I", _GSTRINGS, _SS_STATS, count), 12 + count * _NAME + _SLACK * _NAME)
    _call(sock, name, names)
    values = ctypes.create_string_buffer(struct.pack("2I", _GSTATS, count), 8 + count * 8 + _SLACK * 8)
    _call(sock, name, values)
    if struct.unpack_from("I", values.raw, 4)[0] != struct.unpack_from("I", names.raw, 8)[0]:
        raise OSError(11, "the number of statistics changed in between")
    numbers = struct.unpack_from(f"{count}Q", values.raw, 8)
    texts = [_text(names.raw[12 + _NAME * i : 12 + _NAME * (i + 1)]) for i in range(count)]
    return {
        "statistics": {text: number for text, number in zip(texts, numbers, strict=True) if text and not _PER_QUEUE.match(text)}
    }


def query(name: str) -> Facts:
    """Driver, firmware, ring sizes, pause and statistics of the interface; what it does not support is left out.

    ``errors`` names the parts that failed with another error than "not supported", and that error.
    """
    facts: Facts = {}
    errors: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        parts: list[tuple[str, Callable[[], Facts]]] = [
            ("driver", lambda: _driver(sock, name)),
            ("rings", lambda: _rings(sock, name)),
            ("pause", lambda: _pause(sock, name)),
            ("statistics", lambda: _statistics(sock, name, int(str(facts.get("n_statistics", 0))))),
        ]
        for part, ask in parts:
            try:
                facts.update(ask())
            except OSError as error:
                if error.errno not in (95, 22, 25):  # EOPNOTSUPP, EINVAL, ENOTTY
                    errors[part] = error.strerror or str(error)
    if errors:
        facts["errors"] = errors
    return facts


def ipv4_addresses() -> dict[str, list[str]]:
    """``address/prefix`` of each interface that is up and has IPv4 addresses (SIOCGIFCONF; an alias counts for its interface)."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        room = array.array("B", bytes(40 * 4096))
        where, _ = room.buffer_info()
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFCONF, struct.pack("iP", len(room), where))
        size = struct.unpack("iP", answer)[0]
        raw = room.tobytes()[:size]
        for at in range(0, size - 39, 40):
            label = _text(raw[at : at + 16])
            address = socket.inet_ntoa(raw[at + 20 : at + 24])
            try:
                mask = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, struct.pack("16s24x", label.encode()))[20:24]
                address += f"/{int.from_bytes(mask, 'big').bit_count()}"
            except OSError:
                pass
            found.setdefault(label.partition(":")[0], []).append(address)
    return found
