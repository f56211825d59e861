"""Settings of NVIDIA GPUs by nvidia-smi: persistence, power limit, clocks, ECC, compute mode, MIG. Key: ``all/setting`` or ``index/setting``."""

from __future__ import annotations

from kilter.tune.apply.mechanisms.base import Mechanism
from kilter.tune.apply.mechanisms.command import Either, Setting, Tool

_WORDS = {"enabled": "1", "disabled": "0"}
_MODES = {"default": "0", "exclusive_thread": "1", "prohibited": "2", "exclusive_process": "3"}


def _same_on_all(output: str) -> str | None:
    """The value that a column of nvidia-smi has on every GPU; several are joined, and then are no value that could be put back."""
    values = {line.strip().lower() for line in output.splitlines() if line.strip()}
    if not values or any("n/a" in value or "not supported" in value for value in values):
        return None
    plain = {_WORDS.get(value, _MODES.get(value, value.removesuffix(".00"))) for value in values}
    return "+".join(sorted(plain))


def _setting(field: str, flag: str, values: str, *, keeps: bool = False, needs: str = "") -> Setting:
    read = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return Setting(read, _same_on_all, ["nvidia-smi", flag, "{value}"], values, keeps, needs)


_SETTINGS = {
    "persistence": _setting("persistence_mode", "-pm", "[01]"),
    "power_limit": _setting("power.limit", "-pl", r"\d{2,4}(?:\.\d{1,2})?"),
    "application_clocks": Setting(
        [
            "nvidia-smi",
            "--query-gpu=clocks.applications.memory,clocks.applications.graphics",
            "--format=csv,noheader,nounits",
        ],
        lambda output: found.replace(", ", ",") if (found := _same_on_all(output)) else None,
        ["nvidia-smi", "-ac", "{value}"],
        r"\d{3,5},\d{3,5}",
    ),
    "ecc": _setting("ecc.mode.pending", "-e", "[01]", keeps=True, needs="a reset of the GPU, or a reboot"),
    "compute_mode": _setting("compute_mode", "-c", "[0-3]"),
    "mig": _setting("mig.mode.pending", "-mig", "[01]", keeps=True, needs="a reset of the GPU"),
}
#: nvidia-smi takes ``-i`` only where one GPU is meant.
_OF_ONE = {
    name: s._replace(read=[*s.read, "-i", "{on}"], write=[s.write[0], "-i", "{on}", *s.write[1:]])
    for name, s in _SETTINGS.items()
}
_ALL = Tool("nvidia", "nvidia-smi", "all", _SETTINGS)
_ONE = Tool("nvidia", "nvidia-smi", r"\d{1,2}", _OF_ONE)

MECHANISMS: dict[str, Mechanism] = {"nvidia": Either(lambda change: _ALL if change.key.startswith("all/") else _ONE)}
