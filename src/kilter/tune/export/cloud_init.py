"""cloud-init user data: files written at the first boot, and what has to be run after them (cloudinit.readthedocs.io, write_files, runcmd)."""

from __future__ import annotations

import yaml

from kilter.tune.export.parts import IN_FILES, Export, Parts, removals


def make(found: Parts, name: str) -> Export:
    files = found.files()
    document: dict[str, object] = {}
    add, _ = found.arguments()
    if add:
        files["/etc/default/grub.d/zz-kilter.cfg"] = "".join(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {word}"\n' for word in add)
    if files:
        document["write_files"] = [
            {"path": path, "content": text, "owner": "root:root", "permissions": "0644"} for path, text in files.items()
        ]
    run: list[list[str]] = []
    if found.of("sysctl"):
        run.append(["sysctl", "--system"])
    if found.of("sysfs"):
        run.append(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/kilter.conf"])
    verbs = {"enabled": "enable", "disabled": "disable", "masked": "mask", "started": "start", "stopped": "stop"}
    run += [["systemctl", verbs[word], unit] for unit, word in found.units()]
    if add:
        run.append(["update-grub"])
        document["power_state"] = {"mode": "reboot", "message": "kilter changed the boot line", "condition": True}
    if run:
        document["runcmd"] = run
    text = "#cloud-config\n" + (yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000) if document else "{}\n")
    notes = [*removals(found, *IN_FILES, "cmdline"), *found.left(*IN_FILES, "cmdline", "unit")]
    return Export(files={f"{name}.yaml": text}, notes=notes)
