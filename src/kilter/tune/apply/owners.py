"""Who else sets a parameter: files of sysctl.d, modprobe.d and limits.d, TuneD's active profile, the kubelet, agents of clouds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.facts.applied import Owner
from kilter.facts.plan import Change, Plan, Verdict
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms import limits, modprobe, sysctl, tuned
from kilter.tune.apply.mechanisms.base import same

_SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
#: Set by the kubelet at its start with --protect-kernel-defaults off, demanded with it on (kubernetes pkg/kubelet/cm/container_manager_linux.go).
_KUBELET = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}


def owners(host: Host, change: Change) -> list[Owner]:
    """Everybody who sets the parameter of ``change`` to something else than it wants, those that win over kilter first."""
    finders = {
        "sysctl": _sysctl,
        "sysfs": _tuned,
        "cmdline": _tuned,
        "modprobe": _modprobe,
        "limits": _limits,
        "nvidia": _persistenced,
    }
    finder = finders.get(change.mechanism)
    found = [owner for owner in finder(host, change) if not same(owner.value or None, change.value)] if finder else []
    return sorted(found, key=lambda owner: not owner.wins)


def mark_conflicts(plan: Plan, host: Host) -> None:
    """Recommendations whose key somebody else sets, and wins, become conflicts that name the owner: never fight another owner of a key."""
    for advice in plan.of(Verdict.RECOMMEND):
        winners = [owner for change in advice.changes for owner in owners(host, change) if owner.wins]
        if winners:
            first = winners[0]
            advice.verdict = Verdict.CONFLICT
            advice.owner = f"{first.name} sets {first.value} ({first.where}); change it there, or take the key from it first"


def _sysctl_files(host: Host) -> list[str]:
    """In the order in which they are applied: by name, /etc over /run over /usr; /etc/sysctl.conf is 99-sysctl.conf or comes last."""
    named: dict[str, str] = {}
    for folder in _SYSCTL_FOLDERS:
        for name in host.names(folder):
            if name.endswith(".conf"):
                named.setdefault(name, f"{folder}/{name}")
    paths = [named[name] for name in sorted(named)]
    return [*paths, *(["/etc/sysctl.conf"] if host.exists("/etc/sysctl.conf") and "99-sysctl.conf" not in named else [])]


def _sysctl(host: Host, change: Change) -> Iterator[Owner]:
    mine = sysctl.FILE.rpartition("/")[2]
    for path in _sysctl_files(host):
        if path == sysctl.FILE:
            continue
        for number, line in enumerate((host.text(path) or "").splitlines(), 1):
            match = re.match(r"\s*-?([^#;=\s]+)\s*=\s*(.*?)\s*$", line)
            if match is not None and match[1].replace("/", ".") == change.key.replace("/", "."):
                # systemd-sysctl never reads /etc/sysctl.conf; procps' "sysctl --system" reads it last.
                yield Owner(
                    path, f"{path}:{number}", match[2], wins=path.rpartition("/")[2] > mine and path != "/etc/sysctl.conf"
                )
    if host.exists("/var/lib/kubelet/config.yaml") and change.key in _KUBELET:
        yield Owner("the kubelet", "/var/lib/kubelet/config.yaml", _KUBELET[change.key], wins=True)
    yield from _tuned(host, change)


def _profiles(host: Host, names: list[str]) -> list[str]:
    """Files of TuneD profiles and of those that they include, the including one last."""
    found: list[str] = []
    for name in names:
        path = tuned.path_of(host, name)
        if path is None or path in found or len(found) > 32:
            continue
        include = re.search(r"^\s*include\s*=\s*(.+)$", host.text(path) or "", re.MULTILINE)
        if include:
            found += [p for p in _profiles(host, re.split(r"[,\s]+", include[1].strip())) if p not in found]
        found.append(path)
    return found


def _tuned(host: Host, change: Change) -> Iterator[Owner]:
    """TuneD sets its values at its start and takes others back only then, so it wins at the next boot."""
    profile = tuned.active(host)
    if profile is None:
        return
    for path in reversed(_profiles(host, profile.split())):
        section = ""
        for number, line in enumerate((host.text(path) or "").splitlines(), 1):
            if (head := re.match(r"\s*\[([^\]]+)\]", line)) is not None:
                section = head[1]
                continue
            match = re.match(r"\s*([^#;=\s]+)\s*=\s*[><]?\s*(.*?)\s*$", line)
            if match is None:
                continue
            value = _tuned_value(section, match[1], match[2], change)
            if value is not None:
                yield Owner(f"TuneD profile {profile}", f"{path}:{number}", value, wins=True)


def _tuned_value(section: str, name: str, value: str, change: Change) -> str | None:
    if section == "sysctl" and change.mechanism == "sysctl" and name == change.key:
        return value
    if section == "sysfs" and change.mechanism == "sysfs" and name == change.key:
        return value
    if section == "bootloader" and change.mechanism == "cmdline" and name.startswith("cmdline"):
        for word in value.split():
            if word.lstrip("+-").partition("=")[0] == change.key:
                return word.partition("=")[2]
    if change.mechanism == "sysfs" and section == "cpu":
        for plugin, part in (
            ("governor", "scaling_governor"),
            ("energy_performance_preference", "energy_performance_preference"),
        ):
            if name == plugin and change.key.endswith(part):
                return value
    if (
        change.mechanism == "sysfs"
        and section == "vm"
        and name.startswith("transparent_hugepage")
        and "transparent_hugepage" in change.key
    ):
        return value if name.endswith("defrag") == change.key.endswith("defrag") else None
    return None


def _modprobe(host: Host, change: Change) -> Iterator[Owner]:
    module, _, parameter = change.key.partition(".")
    for path in modprobe.files(host):
        if path == modprobe.FILE:
            continue
        for number, line in enumerate((host.text(path) or "").splitlines(), 1):
            if (match := modprobe.option(module, parameter).match(line)) is not None:
                yield Owner(path, f"{path}:{number}", match["value"].strip('"'))


def _limits(host: Host, change: Change) -> Iterator[Owner]:
    """Files that pam_limits reads behind kilter's, and lines for single users or groups, which win over ``*``."""
    mine = limits.FILE.rpartition("/")[2]
    names = [name for name in host.names("/etc/security/limits.d") if name.endswith(".conf")]
    for path in ["/etc/security/limits.conf", *(f"/etc/security/limits.d/{name}" for name in names)]:
        if path == limits.FILE:
            continue
        for number, line in enumerate((host.text(path) or "").splitlines(), 1):
            words = line.partition("#")[0].split()
            if len(words) == 4 and words[2] == change.key:
                later = path != "/etc/security/limits.conf" and path.rpartition("/")[2] > mine  # limits.conf is read first
                wins = later or words[0] not in ("*", "root")
                yield Owner(f"{path} for {words[0]}", f"{path}:{number}", words[3], wins=wins)


def _persistenced(host: Host, change: Change) -> Iterator[Owner]:
    if change.key.endswith("/persistence") and host.exists(
        "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service"
    ):
        yield Owner(
            "nvidia-persistenced", "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service", "1", wins=True
        )
