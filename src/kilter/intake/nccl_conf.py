"""``/etc/nccl.conf``: variables that NCCL takes where the environment does not set them."""

from __future__ import annotations


def variables(text: str) -> dict[str, tuple[str, int]]:
    """Name -> (value, line). As NCCL reads it (src/misc/param.cc, setEnvFile): ``#`` in the first column makes a comment, a line without
    ``=`` counts for nothing, the first of several settings wins, and blanks belong to name and value."""
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            found.setdefault(name, (value, number))
    return found
