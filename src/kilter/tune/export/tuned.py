"""A TuneD profile (man tuned-profiles): sysctl, sysfs, bootloader, modules; what it has no plugin for goes into a script."""

from __future__ import annotations

from kilter.tune.export.parts import Export, Parts, removals


def make(found: Parts, name: str) -> Export:
    sections: dict[str, list[str]] = {"main": [f"summary=Written by kilter ({name})"]}
    for item in found.items:
        change = item.change
        if change.value is None:
            continue
        # "$" begins a variable in TuneD and is written as \$; a value stands in one line.
        value = " ".join(change.value.split()).replace("$", "\\$")
        if change.mechanism == "sysctl":
            sections.setdefault("sysctl", []).append(f"{change.key}={value}")
        elif change.mechanism == "sysfs":
            sections.setdefault("sysfs", []).append(f"{change.key}={value}")
        elif change.mechanism == "modprobe":
            module, _, parameter = change.key.partition(".")
            body = sections.setdefault("modules", [])
            at = next((n for n, line in enumerate(body) if line.startswith(f"{module}=")), None)
            if at is None:
                body.append(f"{module}={parameter}={value}")
            else:
                body[at] += f" {parameter}={value}"
    add, remove = found.arguments()
    if add or remove:
        words = [f"+{word}" for word in add] + [f"-{word}" for word in remove]
        sections["bootloader"] = [f"cmdline_kilter={' '.join(words)}"]
    services = [f"service.{unit}={','.join(_states(unit, found))}" for unit in dict.fromkeys(unit for unit, _ in found.units())]
    if services:
        sections["service"] = services
    text = "".join(f"[{head}]\n" + "".join(f"{line}\n" for line in body) + "\n" for head, body in sections.items())
    said = ("sysctl", "sysfs", "modprobe", "cmdline", "unit")
    return Export(
        files={f"{name}/tuned.conf": text.rstrip() + "\n"},
        notes=[*removals(found, "sysctl", "sysfs", "modprobe"), *found.left(*said)],
    )


def _states(unit: str, found: Parts) -> list[str]:
    words = {"enabled": "enable", "disabled": "disable", "started": "start", "stopped": "stop", "masked": "disable"}
    return [words[word] for one, word in found.units() if one == unit]
