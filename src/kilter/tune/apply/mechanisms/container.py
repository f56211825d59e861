"""Docker's configuration: values of /etc/docker/daemon.json by their path, ``default-ulimits.memlock.Hard``. containerd and CRI-O are set
through their units (``dropin`` of LimitMEMLOCK)."""

from __future__ import annotations

import json
import re
from typing import Any

from kilter.facts.applied import Reading
from kilter.facts.plan import Change
from kilter.tune.apply.host import Host
from kilter.tune.apply.mechanisms.base import Base, Mechanism, Refuse, Skip
from kilter.tune.apply.steps import Put, Step

FILE = "/etc/docker/daemon.json"


class Container(Base):
    def _tree(self, host: Host) -> dict[str, Any]:
        text = host.text(FILE)
        try:
            tree = json.loads(text) if text and text.strip() else {}
        except ValueError as error:
            raise Refuse(f"{FILE} is no JSON: {error}") from None
        if not isinstance(tree, dict):
            raise Refuse(f"{FILE} is no JSON object")
        return tree

    def _path(self, change: Change) -> list[str]:
        if not re.fullmatch(r"docker/[\w.-]+", change.key):
            raise Refuse(f"{change.key!r} is no docker/path.of.a.value such as docker/default-ulimits.memlock.Hard")
        return change.key.partition("/")[2].split(".")

    def read(self, host: Host, change: Change) -> Reading:
        path = self._path(change)
        if not host.exists("/etc/docker") and not host.has("dockerd"):
            return Reading(missing="Docker is not installed")
        node: Any = self._tree(host)
        for name in path:
            node = node.get(name) if isinstance(node, dict) else None
        return Reading(
            persistent=None if node is None else json.dumps(node) if not isinstance(node, str) else node, has_runtime=False
        )

    def needs(self, host: Host, change: Change) -> str:
        return "a restart of docker.service, and new containers"

    def steps(self, host: Host, change: Change) -> list[Step]:
        path = self._path(change)
        if not host.exists("/etc/docker") and not host.has("dockerd"):
            raise Skip("Docker is not installed")
        tree = self._tree(host)
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise Refuse(f"{FILE}: {name} is no object")
        if change.value is None:
            node.pop(path[-1], None)
        else:
            node[path[-1]] = _value(change.value)
        return [Put(FILE, (json.dumps(tree, indent=4) + "\n").encode())]


def _value(text: str) -> Any:
    """Numbers, true and false as JSON has them; anything else is a text."""
    return json.loads(text) if re.fullmatch(r"-?\d{1,18}|true|false", text) else text


MECHANISMS: dict[str, Mechanism] = {"container": Container()}
