"""An Ansible role: ansible.builtin and ansible.posix modules, with check mode and handlers."""

from __future__ import annotations

import yaml

from kilter.tune.export.parts import IN_FILES, Export, Parts, removals

_STATES: dict[str, dict[str, object]] = {
    "enabled": {"enabled": True},
    "disabled": {"enabled": False},
    "masked": {"masked": True},
    "started": {"state": "started"},
    "stopped": {"state": "stopped"},
}


def _dump(value: object) -> str:
    return "---\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)


def make(found: Parts, name: str) -> Export:
    tasks: list[dict[str, object]] = []
    handlers: dict[str, dict[str, object]] = {}

    def handler(title: str, argv: list[str]) -> str:
        handlers[title] = {"name": title, "ansible.builtin.command": {"argv": argv}}
        return title

    for item in found.of("sysctl"):
        change = item.change
        if change.value is not None:
            setting: dict[str, object] = {
                "name": change.key,
                "value": change.value,
                "sysctl_file": "/etc/sysctl.d/99-zz-kilter.conf",
                "sysctl_set": True,
                "ignoreerrors": True,
            }
            tasks.append({"name": f"{item.id}: {change.key}", "ansible.posix.sysctl": setting})
    for path, text in found.files().items():
        if path.startswith("/etc/sysctl.d/"):
            continue
        task: dict[str, object] = {
            "name": f"File {path}",
            "ansible.builtin.copy": {"dest": path, "content": _raw(text), "owner": "root", "group": "root", "mode": "0644"},
        }
        folder = path.rpartition("/")[0]
        tasks.append({"name": f"Folder {folder}", "ansible.builtin.file": {"path": folder, "state": "directory", "mode": "0755"}})
        if path.startswith("/etc/tmpfiles.d/"):
            task["notify"] = handler("Write values of sysfs", ["systemd-tmpfiles", "--create", path])
        elif "/udev/" in path:
            task["notify"] = handler("Read rules of udev", ["udevadm", "control", "--reload"])
        elif "/systemd/" in path:
            task["notify"] = handler("Read units", ["systemctl", "daemon-reload"])
        tasks.append(task)
    for unit, word in found.units():
        state = _STATES[word]
        tasks.append({"name": f"Unit {unit} {word}", "ansible.builtin.systemd_service": {"name": unit, **state}})
    add, remove = found.arguments()
    if add:
        text = "".join(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {word}"\n' for word in add)
        when = "ansible_facts['os_family'] == 'Debian'"
        tasks.append(
            {
                "name": "Boot line (Debian, Ubuntu)",
                "ansible.builtin.copy": {"dest": "/etc/default/grub.d/zz-kilter.cfg", "content": _raw(text), "mode": "0644"},
                "when": when,
                "notify": handler("Make the boot menu", ["update-grub"]),
            }
        )
    if add or remove:
        argv = (
            ["grubby", "--update-kernel=ALL"]
            + ([f"--args={' '.join(add)}"] if add else [])
            + ([f"--remove-args={' '.join(remove)}"] if remove else [])
        )
        tasks.append(
            {
                "name": "Boot line (RHEL, Fedora)",
                "ansible.builtin.command": {"argv": argv},
                "when": "ansible_facts['os_family'] == 'RedHat'",
                "changed_when": True,
            }
        )
    files = {f"roles/{name}/tasks/main.yml": _dump(tasks)}
    if handlers:
        files[f"roles/{name}/handlers/main.yml"] = _dump(list(handlers.values()))
    files[f"{name}.yml"] = _dump([{"name": f"Settings of kilter ({name})", "hosts": "all", "become": True, "roles": [name]}])
    notes = [
        *removals(found, *IN_FILES),
        *([f"to be taken off the boot line on Debian by hand: {', '.join(remove)}"] if remove else []),
    ]
    return Export(files=files, notes=[*notes, *found.left(*IN_FILES, "cmdline", "unit")])


class _Unsafe(str):
    """A text that Ansible takes as it is, with what looks like a template in it."""


def _raw(text: str) -> str:
    return _Unsafe(text)


yaml.SafeDumper.add_representer(_Unsafe, lambda dumper, data: dumper.represent_scalar("!unsafe", str(data), style="|"))
