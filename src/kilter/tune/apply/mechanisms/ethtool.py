"""Rings, channels, coalescing, pause frames and offloads of network interfaces, by ethtool."""

from __future__ import annotations

from kilter.tune.apply.mechanisms.base import Mechanism
from kilter.tune.apply.mechanisms.command import Setting, Tool, line_of

#: What ethtool -g, -l, -c print first is what the device could do; what is set now follows.
_NOW = r"(?s:.*Current hardware settings:.*?)"


def _ring(name: str, printed: str) -> Setting:
    return Setting(
        ["ethtool", "-g", "{on}"], line_of(rf"{_NOW}^{printed}:\s+(\d+)"), ["ethtool", "-G", "{on}", name, "{value}"], r"\d{1,6}"
    )


def _channel(name: str, printed: str) -> Setting:
    return Setting(
        ["ethtool", "-l", "{on}"], line_of(rf"{_NOW}^{printed}:\s+(\d+)"), ["ethtool", "-L", "{on}", name, "{value}"], r"\d{1,5}"
    )


def _coalesce(name: str) -> Setting:
    return Setting(
        ["ethtool", "-c", "{on}"], line_of(rf"^{name}:\s+(\d+)"), ["ethtool", "-C", "{on}", name, "{value}"], r"\d{1,6}"
    )


def _adaptive(name: str, printed: str) -> Setting:
    return Setting(
        ["ethtool", "-c", "{on}"],
        line_of(rf"^Adaptive.*\b{printed}: (on|off)"),
        ["ethtool", "-C", "{on}", name, "{value}"],
        "on|off",
    )


def _pause(name: str, printed: str) -> Setting:
    return Setting(
        ["ethtool", "-a", "{on}"], line_of(rf"^{printed}:\s+(on|off)"), ["ethtool", "-A", "{on}", name, "{value}"], "on|off"
    )


def _feature(name: str, printed: str) -> Setting:
    return Setting(
        ["ethtool", "-k", "{on}"], line_of(rf"^{printed}: (on|off)"), ["ethtool", "-K", "{on}", name, "{value}"], "on|off"
    )


_SETTINGS = {
    "ring.rx": _ring("rx", "RX"),
    "ring.tx": _ring("tx", "TX"),
    "channels.combined": _channel("combined", "Combined"),
    "coalesce.rx-usecs": _coalesce("rx-usecs"),
    "coalesce.tx-usecs": _coalesce("tx-usecs"),
    "coalesce.adaptive-rx": _adaptive("adaptive-rx", "RX"),
    "coalesce.adaptive-tx": _adaptive("adaptive-tx", "TX"),
    "pause.rx": _pause("rx", "RX"),
    "pause.tx": _pause("tx", "TX"),
    "feature.tso": _feature("tso", "tcp-segmentation-offload"),
    "feature.gro": _feature("gro", "generic-receive-offload"),
    "feature.lro": _feature("lro", "large-receive-offload"),
}

MECHANISMS: dict[str, Mechanism] = {"ethtool": Tool("ethtool", "ethtool", r"[\w.-]{1,15}", _SETTINGS, "/sys/class/net/{on}")}
