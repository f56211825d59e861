"""NodeWright (NVIDIA/nodewright, formerly Skyhook): a resource whose package "tuning" takes sysctl, grub and ulimit settings
(NVIDIA/nodewright-packages, tuning/README.md; API group skyhook.nvidia.com/v1alpha1)."""

from __future__ import annotations

import yaml

from kilter.tune.export.parts import Export, Parts, removals


def make(found: Parts, name: str) -> Export:
    maps: dict[str, str] = {}
    settings = [f"{i.change.key}={' '.join(i.change.value.split())}" for i in found.of("sysctl") if i.change.value is not None]
    if settings:
        maps["sysctl.conf"] = "".join(f"{line}\n" for line in settings)
    add, remove = found.arguments()
    if add:
        maps["grub.conf"] = "".join(f"{word}\n" for word in add)
    limits = [f"{i.change.key}={i.change.value}" for i in found.of("limits") if i.change.value is not None]
    if limits:
        maps["ulimit.conf"] = "".join(f"{line}\n" for line in limits)
    for path, text in found.files().items():
        if path.startswith("/etc/systemd/system/") and ".service.d/" in path:
            maps[f"service_{path.split('/')[4].removesuffix('.service.d')}.conf"] = text
    package: dict[str, object] = {
        "version": "1.1.6",
        "image": "ghcr.io/nvidia/skyhook-packages/tuning",
        "interrupt": {"type": "reboot"} if add else {"type": "restart_all_services"},
        "configMap": maps,
    }
    resource = {
        "apiVersion": "skyhook.nvidia.com/v1alpha1",
        "kind": "Skyhook",
        "metadata": {"name": name},
        "spec": {
            "nodeSelectors": {"matchLabels": {"nvidia.com/gpu.present": "true"}},
            "interruptionBudget": {"count": 1},
            "packages": {"tuning": package},
        },
    }
    daemons = [
        i.change.key
        for i in found.of("dropin")
        if i.change.key.partition("/")[2].partition(".")[0] in ("Login", "Manager", "Journal")
    ]
    notes = [
        *removals(found, "sysctl", "limits", "dropin"),
        *(f"to be taken off the boot line by hand: {word}" for word in remove),
    ]
    notes.append("check version and image of the package against your operator's release")
    return Export(
        files={f"{name}.yaml": yaml.safe_dump(resource, sort_keys=False, width=1000)},
        notes=[*notes, *found.left("sysctl", "cmdline", "limits", *(["dropin"] if daemons == [] else []))],
    )
