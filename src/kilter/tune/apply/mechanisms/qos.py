"""RoCE classes of NVIDIA NICs: mlnx_qos (trust, PFC) and cma_roce_tos."""

from __future__ import annotations

import re

from kilter.tune.apply.mechanisms.base import Mechanism
from kilter.tune.apply.mechanisms.command import Either, Setting, Tool, line_of


def _pfc(output: str) -> str | None:
    """``enabled     0   0   0   1   0   0   0   0`` -> 0,0,0,1,0,0,0,0."""
    match = re.search(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", output, re.MULTILINE)
    return ",".join(match[1].split()) if match else None


_READ = ["mlnx_qos", "-i", "{on}"]
_INTERFACE = Tool(
    "qos",
    "mlnx_qos",
    r"[\w.-]{1,15}",
    {
        "trust": Setting(_READ, line_of(r"Priority trust state: (pcp|dscp)"), [*_READ, "--trust", "{value}"], "pcp|dscp"),
        "pfc": Setting(_READ, _pfc, [*_READ, "--pfc", "{value}"], "[01](?:,[01]){7}"),
    },
    "/sys/class/net/{on}",
)
_DEVICE = Tool(
    "qos",
    "cma_roce_tos",
    r"\w{1,64}",
    {
        "tos": Setting(
            ["cma_roce_tos", "-d", "{on}"],
            line_of(r"^\s*(\d{1,3})\s*$"),
            ["cma_roce_tos", "-d", "{on}", "-t", "{value}"],
            r"\d{1,3}",
        )
    },
)


#: Key: ``interface/trust``, ``interface/pfc`` or ``rdma device/tos``.
MECHANISMS: dict[str, Mechanism] = {"qos": Either(lambda change: _DEVICE if change.key.endswith("/tos") else _INTERFACE)}
