"""Tables of ``kubectl get nodes``, ``get pods`` and ``get events``: columns by the header's names, parted by two blanks or more."""

from __future__ import annotations

import re

from kilter.facts.cluster import ClusterJob, ClusterNode
from kilter.intake.captures import container_logs
from kilter.intake.fragment import Fragment

_GAP = re.compile(r"[ \t]{2,}|\t")
_HEADERS = (
    "NAMESPACE",
    "LAST SEEN",
    "NAME",
    "STATUS",
    "TYPE",
    "REASON",
    "OBJECT",
    "MESSAGE",
    "READY",
    "RESTARTS",
    "NODE",
    "ROLES",
    "KIND",
    "SOURCE",
)
_RESTARTS = re.compile(r"(\d{1,9})(?:\s+\([^()]*ago\))?$")
_AGO = re.compile(r" \([\w ]{1,12} ago\)")
#: What ends an event's source, before its message: "default-scheduler  0/5 nodes", "kubelet, node1  Back-off".
_AGE = re.compile(r"(?:<unknown>|<invalid>|(?:\d+[dhmsy])+)(?:\s+\(x\d+ over (?:\d+[dhmsy])+\))?\s+")


def event_message(rest: str) -> str:
    """The message of a row of an Events section, behind its age and source."""
    match = _AGE.match(rest)
    rest = rest[match.end() :] if match else rest
    parts = _GAP.split(rest, maxsplit=1)
    if len(parts) == 2:
        return parts[1].strip()
    head, _, tail = rest.partition(" ")
    return (tail if head in ("default-scheduler", "kubelet", "kubelet,") else rest).strip()


def container_event(message: str, number: int, fragment: Fragment, *, node: str) -> None:
    """An event of kubelet that quotes a container runtime's error about GPUs."""
    event = container_logs.event_of(message)
    if event is not None:
        event.node, event.source, event.line = node, fragment.source.name, number
        fragment.events.append(event)


def parse(lines: list[tuple[int, str]], fragment: Fragment) -> None:
    """One table, or several below each other."""
    names: list[str] = []
    for number, text in lines:
        if not text.strip():
            continue
        if _is_header(text):
            names = [name.strip() for name in _GAP.split(text.strip())] if "  " in text or "\t" in text else text.split()
            continue
        row = _row(names, text)
        if row is None or not _place(row, number, fragment):
            fragment.unparsed(number, text[:200])


def _is_header(text: str) -> bool:
    words = text.strip()
    return words == words.upper() and words.startswith(_HEADERS) and ("STATUS" in words or "REASON" in words)


def _row(names: list[str], text: str) -> dict[str, str] | None:
    if not names:
        return None
    text = _AGO.sub("", text) if "RESTARTS" in names else text
    cells = _GAP.split(text.strip(), maxsplit=len(names) - 1)
    if len(cells) < min(len(names), 3):
        cells = text.split(None, len(names) - 1)
    return dict(zip(names, (cell.strip() for cell in cells), strict=False)) if len(cells) >= min(len(names), 3) else None


def _place(row: dict[str, str], number: int, fragment: Fragment) -> bool:
    if "MESSAGE" in row or "OBJECT" in row:
        return event_row(row, number, fragment)
    if "READY" in row and "STATUS" in row:
        return _pod(row, number, fragment)
    if "STATUS" in row and ("ROLES" in row or "VERSION" in row):
        return _node(row, number, fragment)
    return False


def _node(row: dict[str, str], number: int, fragment: Fragment) -> bool:
    name, status = row.get("NAME", ""), row["STATUS"]
    if not re.match(r"(?:Ready|NotReady|Unknown|SchedulingDisabled)", status) or not re.fullmatch(r"[\w.-]{1,253}", name):
        return False
    node = ClusterNode(name=name, scheduler="kubernetes", origin={"": fragment.ref(number)})
    node.put("state", status, fragment.ref(number))
    fragment.cluster_nodes.append(node)
    return True


def _pod(row: dict[str, str], number: int, fragment: Fragment) -> bool:
    name, ref = row.get("NAME", ""), fragment.ref(number)
    if not re.fullmatch(r"\d+/\d+", row["READY"]) or not re.fullmatch(r"[\w.-]{1,253}", name):
        return False
    space = row.get("NAMESPACE", "")
    pod = ClusterJob(id=f"{space}/{name}" if space else name, name=name, scheduler="kubernetes", origin={"": ref})
    pod.put("state", row["STATUS"] or None, ref)
    if match := _RESTARTS.match(row.get("RESTARTS", "")):
        pod.put("restarts", int(match.group(1)), ref)
    node = row.get("NODE", "")
    pod.put("nodes", [node] if node and node != "<none>" else None, ref)
    ready, _, total = row["READY"].partition("/")
    if pod.state == "Running" and ready != total:
        pod.put("reason", f"{ready} of {total} containers are ready", ref)
    fragment.cluster_jobs.append(pod)
    return True


def event_row(row: dict[str, str], number: int, fragment: Fragment) -> bool:
    """Place one event by the table's column names; False if it is none. A warning on a pod becomes the pod's reason."""
    kind, reason, message = row.get("TYPE", ""), row.get("REASON", ""), row.get("MESSAGE", "")
    if kind not in ("Normal", "Warning"):
        return False
    target = row.get("OBJECT", "")
    container_event(message, number, fragment, node=target.partition("/")[2] if target.startswith("node/") else "")
    what, _, name = target.partition("/")
    if (
        kind == "Warning"
        and what.lower() in ("pod", "pods")
        and name
        and reason in ("FailedScheduling", "BackOff", "UnexpectedAdmissionError")
    ):
        space = row.get("NAMESPACE", "")
        identity = f"{space}/{name}" if space else name
        pod = next((p for p in reversed(fragment.cluster_jobs[-200:]) if p.id == identity), None)
        if pod is None:
            pod = ClusterJob(id=identity, name=name, scheduler="kubernetes", origin={"": fragment.ref(number)})
            fragment.cluster_jobs.append(pod)
        pod.put("state", "Pending" if reason == "FailedScheduling" else pod.state, fragment.ref(number))
        pod.put("reason", f"{reason}: {message}"[:1000], fragment.ref(number))
    return True
