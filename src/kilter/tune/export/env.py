"""Variables of the job: KEY=VALUE for docker and schedulers, and a script that also takes variables away."""

from __future__ import annotations

import shlex

from kilter.tune.export.parts import Export, Parts


def script(found: Parts) -> str:
    """Lines for a shell."""
    add, remove = found.variables()
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(add.items())]
    return "".join(f"{line}\n" for line in [*lines, *(f"unset {name}" for name in sorted(remove))])


def make(found: Parts, name: str) -> Export:
    add, remove = found.variables()
    text = "".join(f"{key}={value}\n" for key, value in sorted(add.items()))
    text += "".join(f"# not set: {key}\n" for key in sorted(remove))
    return Export(files={f"{name}.env": text, f"{name}-env.sh": script(found)}, notes=found.left("env"))
