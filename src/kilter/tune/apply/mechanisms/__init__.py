"""Mechanisms: how one kind of parameter is read, what has to be written, and whether it holds. One module a kind.

To add one: a class with ``read`` and ``steps`` (see :mod:`.base`) and a line in :data:`_MODULES`. Undoing and journalling are not its business:
steps know how to be undone.
"""

from __future__ import annotations

import functools
import importlib

from kilter.tune.apply.mechanisms.base import Mechanism

#: Mechanism -> module that holds it, under ``MECHANISM`` or ``MECHANISMS``.
_MODULES = {
    "sysctl": "sysctl",
    "sysfs": "sysfs",
    "cmdline": "cmdline",
    "modprobe": "modprobe",
    "limits": "limits",
    "unit": "systemd",
    "dropin": "systemd",
    "udev": "udev",
    "env": "env",
    "nccl_conf": "env",
    "pci": "pci",
    "irq": "irq",
    "ethtool": "ethtool",
    "qos": "qos",
    "nvidia": "nvidia",
    "container": "container",
    "tuned": "tuned",
}


def names() -> list[str]:
    return list(_MODULES)


@functools.cache
def mechanism(name: str) -> Mechanism | None:
    """The mechanism of a name; None where there is none."""
    module = _MODULES.get(name)
    if module is None:
        return None
    found: dict[str, Mechanism] = importlib.import_module(f"kilter.tune.apply.mechanisms.{module}").MECHANISMS
    return found[name]
