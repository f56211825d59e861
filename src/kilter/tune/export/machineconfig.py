"""OpenShift: files, units and kernel arguments as a MachineConfig (Ignition 3.2), sysctls also fit the Node Tuning Operator."""

from __future__ import annotations

from urllib.parse import quote

import yaml

from kilter.tune.export.parts import IN_FILES, Export, Parts, removals


def make(found: Parts, name: str) -> Export:
    add, remove = found.arguments()
    files = [
        {"path": path, "mode": 0o644, "overwrite": True, "contents": {"source": f"data:,{quote(text)}"}}
        for path, text in found.files().items()
    ]
    states: dict[str, dict[str, object]] = {}
    for unit, word in found.units():
        one = states.setdefault(unit, {"name": unit})
        if word in ("enabled", "disabled"):
            one["enabled"] = word == "enabled"
        elif word == "masked":
            one["mask"] = True
    ignition: dict[str, object] = {"ignition": {"version": "3.2.0"}}
    if files:
        ignition["storage"] = {"files": files}
    if states:
        ignition["systemd"] = {"units": list(states.values())}
    spec: dict[str, object] = {"config": ignition}
    if add:
        spec["kernelArguments"] = add
    labels = {"machineconfiguration.openshift.io/role": "worker"}
    resource = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": f"99-worker-{name}", "labels": labels},
        "spec": spec,
    }
    notes = [
        *removals(found, *IN_FILES),
        *(f"a MachineConfig adds kernel arguments and takes none away: {word}" for word in remove),
    ]
    return Export(
        files={f"99-worker-{name}.yaml": yaml.safe_dump(resource, sort_keys=False, width=1000)},
        notes=[*notes, *found.left(*IN_FILES, "cmdline", "unit")],
    )
