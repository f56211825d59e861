"""Slurm: a task prolog, which speaks to the job's environment by what it prints (man slurm.conf, TaskProlog)."""

from __future__ import annotations

import shlex

from kilter.tune.export.parts import Export, Parts


def make(found: Parts, name: str) -> Export:
    add, remove = found.variables()
    lines = [
        "#!/bin/sh",
        f"# TaskProlog of slurm.conf, written by kilter ({name}): lines that it prints change the task's environment.",
    ]
    lines += [f"printf '%s\\n' {shlex.quote(f'export {key}={value}')}" for key, value in sorted(add.items())]
    lines += [f"printf '%s\\n' {shlex.quote(f'unset {key}')}" for key in sorted(remove)]
    notes = [
        "limits of jobs under Slurm: PropagateResourceLimitsExcept=MEMLOCK,STACK in slurm.conf and LimitMEMLOCK=infinity for slurmd.service"
    ]
    return Export(
        files={"task-prolog.sh": "\n".join(lines) + "\n"}, notes=[*(notes if found.of("limits") else []), *found.left("env")]
    )
