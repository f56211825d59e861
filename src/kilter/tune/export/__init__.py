"""A plan in the form of somebody else's tool: TuneD, Ansible, cloud-init, a shell script, images, operators, Slurm."""

from __future__ import annotations

import importlib

from kilter.facts.plan import Plan
from kilter.tune.export.parts import Export, Parts, parts

#: Form -> what it is.
FORMS = {
    "tuned": "a TuneD profile",
    "ansible": "an Ansible role",
    "cloud-init": "cloud-init user data",
    "sh": "a POSIX shell script with its undo",
    "mkosi": "a fragment of mkosi.conf with its tree of files",
    "containerfile": "a Containerfile for a bootc image",
    "nodewright": "a NodeWright (Skyhook) resource for Kubernetes",
    "machineconfig": "an OpenShift MachineConfig and Tuned resource",
    "slurm": "a task prolog for Slurm jobs",
    "env": "variables of the job as KEY=VALUE",
}


def export(plan: Plan, form: str, *, name: str = "kilter") -> Export:
    """Files of ``form`` for what the plan recommends; what the form cannot say is in the notes. Raises KeyError for an unknown form."""
    if form not in FORMS:
        raise KeyError(form)
    module = importlib.import_module(f"kilter.tune.export.{form.replace('-', '_')}")
    made: Export = module.make(parts(plan), name)
    return made


__all__ = ["FORMS", "Export", "Parts", "export"]
