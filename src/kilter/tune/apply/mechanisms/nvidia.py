"""Settings of NVIDIA GPUs by nvidia-smi: persistence, power limit, clocks, ECC, compute mode, MIG. Key: ``all/setting`` or ``index/setting``."""

from __future__ import annotations

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Mechanism
from kilter.tune.apply.mechanisms.command import Setting, Tool
from kilter.tune.apply.steps import Step

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


class Nvidia:
    """nvidia-smi takes ``-i`` only where one GPU is meant."""

    def __init__(self) -> None:
        settings = {
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
        self._all = Tool("nvidia", "nvidia-smi", "all", settings)
        one = {
            name: s._replace(read=[*s.read, "-i", "{on}"], write=[s.write[0], "-i", "{on}", *s.write[1:]])
            for name, s in settings.items()
        }
        self._one = Tool("nvidia", "nvidia-smi", r"\d{1,2}", one)

    def _tool(self, change: Change) -> Tool:
        return self._all if change.key.startswith("all/") else self._one

    def read(self, host: Host, change: Change) -> Reading:
        return self._tool(change).read(host, change)

    def steps(self, host: Host, change: Change) -> list[Step]:
        return self._tool(change).steps(host, change)

    def needs(self, host: Host, change: Change) -> str:
        return self._tool(change).needs(host, change)


MECHANISMS: dict[str, Mechanism] = {"nvidia": Nvidia()}
