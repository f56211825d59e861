"""kilter's own workload file: YAML with the fields of :class:`kilter.facts.workload.Workload`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from kilter.facts.workload import KINDS, Workload
from kilter.intake.errors import UnusableInput

_MAX_BYTES = 4 << 20


def load_workload(path: str | Path) -> Workload:
    """Read a workload file. Raises UnusableInput, naming the field and what was expected."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UnusableInput(f"{path}: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise UnusableInput(f"{path}: larger than 4 MiB; expected a workload file, see 'kilter workload init'")
    try:
        tree = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe loaders)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise UnusableInput(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise UnusableInput(f"{path}: expected a mapping such as 'kind: inference', found {type(tree).__name__}")
    unknown = [str(key) for key in tree if key not in Workload.__struct_fields__]
    if unknown:
        raise UnusableInput(f"{path}: unknown field {unknown[0]!r}; known are {', '.join(Workload.__struct_fields__)}")
    try:
        workload = msgspec.convert(tree, Workload)
    except msgspec.ValidationError as error:
        raise UnusableInput(f"{path}: {error}") from None
    if workload.kind is not None and workload.kind not in KINDS:
        raise UnusableInput(f"{path}: kind {workload.kind!r}; expected one of {', '.join(KINDS)}")
    return workload


def dump_workload(workload: Workload) -> str:
    """The text of a workload file that :func:`load_workload` reads back."""
    return yaml.safe_dump(msgspec.to_builtins(workload), sort_keys=False, allow_unicode=True, width=100)
