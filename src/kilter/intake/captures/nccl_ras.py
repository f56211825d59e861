"""NCCL RAS (``ncclras``, or the socket on port 28028): the text status of NCCL 2.24 and later, and JSON of 2.28.7 and later.

Lists of single ranks are printed only for outliers (at most 10, or at most a quarter), so a count without a list is normal.
NVIDIA/nccl: src/ras/client_support.cc; NCCL documentation, Troubleshooting, RAS.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kilter.facts.event import Event
from kilter.facts.measure import RankState
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nvbandwidth import cuda_version
from kilter.intake.fragment import Block, Fragment

_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3}\S{0,40}) compiled with CUDA (\S{1,20})")
_DRIVER = re.compile(r"CUDA runtime version (-?\d{1,6}), driver version (-?\d{1,6})")
_GROUP = re.compile(
    r"\s*(\d{1,6})\s+(\d{1,9})\s+(\d{1,7})\s+(\d{1,5}(?:-\d{1,5})?)\s+(\d{1,9})\s+(\d{1,9})\s+([A-Z]{2,16})\s+([A-Z,]{2,40})\s*$"
)
_COMM = re.compile(r"#(\d{1,6}-\d{1,9}) \(([0-9a-fA-Fx]{1,20})\) (INCOMPLETE|ERROR|MISMATCH)")
_SECTION = re.compile(r"(INCOMPLETE|DEAD|TIMEOUT)\s*$")
_PROCESS = re.compile(r"\s*Process (\d{1,10}) on node (\S{1,100}) managing GPUs? (.{1,200})$")
_RANK = re.compile(
    r"\s*Rank (\d{1,9})(?: has status (?P<status>[A-Z]+)| has launched up to operation (?P<count>\d{1,18})"
    r"| has (?P<none>not launched any operations)| reported (?P<error>[\w ]{1,40}?))?"
    r" -- (?:GPU (?P<gpu>\S{1,10}(?: \(NVML \d{1,3}\))?) managed by process (?P<pid>\d{1,10}) on node (?P<node>\S{1,100})"
    r"|\[process information not found\])"
)
_MANY = re.compile(
    r"\s*(\d{1,9}) ranks (?:have status ([A-Z]+)|have launched up to operation (\d{1,18})"
    r"|have (not) launched any operations|reported ([\w ]{1,40}))\s*$"
)
_COUNTS = re.compile(r"\s*Communicator ranks have different (\w{1,40}) operation counts")
_COUNTED = re.compile(
    r"\s*(?:Missing communicator data from (\d{1,9}) (job process|rank)"
    r"|(\d{1,9}) job process(?:es)? (?:is|are) considered dead|Encountered (\d{1,9}) communication timeout)"
)
_ERRORS_ON = re.compile(r"\s*(Initialization|Asynchronous) errors? on (\d{1,9}) ranks?")
_PLAIN = re.compile(
    r"\s*(?:=+\s*$|Job summary|Errors\s*$|Warnings\s*$|Communicators\.\.\.|Nodes\s+Processes|\(total\)|per node|per process"
    r"|Processes\s|Group\s+Comms|#\s+in group|"
    r"The (?:outlier|missing)|Communicator ranks have different status"
    r"|\[could not find|Node \S+ running process|OK\s*$|SERVER PROTOCOL|CLIENT PROTOCOL|[\d\s]{3,80}$)"
)
_RESULTS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}
IN_PROGRESS = 7


def _event(fragment: Fragment, number: int, kind: str, text: str, node: str = "", device: str = "", **fields: str) -> None:
    fragment.events.append(
        Event(
            kind=kind,
            text=text,
            node=node,
            device=device,
            source=fragment.source.name,
            line=number,
            fields={k: v for k, v in fields.items() if v},
        )
    )


def parse(block: Block, fragment: Fragment) -> None:
    """Rank states; events nccl.ras.dead, nccl.ras.missing, nccl.ras.error, nccl.ras.mismatch, nccl.ras.timeout."""
    first = next((line.lstrip("\ufeff \t") for line in block.lines if line.strip()), "")
    if first.startswith("{"):
        _json(block, fragment)
        return
    reader = _Text(fragment)
    for number, line in lines(block, fragment):
        if line.strip():
            reader.line(number, line)
    if not reader.table:
        fragment.note("RAS output without its table of communicators: the query timed out, or the output was cut short")


class _Text:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.communicator = ""
        self.section = ""  # INCOMPLETE, DEAD, ERROR, MISMATCH, TIMEOUT
        self.operation = ""
        self.pending = ""  # what the ranks listed below have in common
        self.table = False

    def line(self, number: int, line: str) -> None:
        fragment = self.fragment
        if found := _VERSION.search(line):
            fragment.source.version = found.group(1)
            fragment.snapshot.software.put("nccl_version", found.group(1), fragment.ref(number))
        elif found := _DRIVER.search(line):
            if int(found.group(2)) > 0:
                fragment.snapshot.software.put("cuda_driver_version", cuda_version(int(found.group(2))), fragment.ref(number))
        elif found := _GROUP.match(line):
            self.table = True
            _event(
                fragment,
                number,
                "nccl.ras.group",
                line.strip(),
                status=found.group(7),
                errors=found.group(8),
                comms=found.group(2),
                ranks=found.group(5),
            )
        elif "No communicator data collected" in line:
            self.table = True
            _event(fragment, number, "nccl.ras.empty", line.strip())
        elif found := _COMM.match(line.strip()):
            self.communicator, self.section, self.operation, self.pending = found.group(2), found.group(3), "", ""
        elif found := _SECTION.match(line.strip()):
            self.communicator, self.section, self.operation, self.pending = "", found.group(1), "", ""
        elif found := _COUNTED.match(line):
            self._counted(number, line)
        elif found := _COUNTS.match(line):
            self.operation, self.pending = found.group(1), ""
            _event(fragment, number, "nccl.ras.mismatch", line.strip(), communicator=self.communicator, operation=self.operation)
        elif found := _ERRORS_ON.match(line):
            _event(
                fragment,
                number,
                "nccl.ras.error",
                line.strip(),
                communicator=self.communicator,
                count=found.group(2),
                phase=found.group(1).lower(),
            )
        elif found := _MANY.match(line):
            self.pending = next(g for g in found.groups()[1:] if g)
            if not self.operation and found.group(2):
                _event(fragment, number, "nccl.ras.mismatch", line.strip(), communicator=self.communicator)
        elif found := _RANK.match(line):
            self._rank(number, line, found)
        elif found := _PROCESS.match(line):
            kind = "nccl.ras.dead" if self.section == "DEAD" else "nccl.ras.missing"
            _event(fragment, number, kind, line.strip(), node=found.group(2), pid=found.group(1), gpus=found.group(3))
        elif not _PLAIN.match(line):
            fragment.unparsed(number, line)

    def _counted(self, number: int, line: str) -> None:
        kind = {"DEAD": "nccl.ras.dead", "TIMEOUT": "nccl.ras.timeout"}.get(self.section, "nccl.ras.missing")
        if "considered dead" in line:
            kind = "nccl.ras.dead"
        elif "communication timeout" in line:
            kind = "nccl.ras.timeout"
        _event(self.fragment, number, kind, line.strip(), communicator=self.communicator)

    def _rank(self, number: int, line: str, found: re.Match[str]) -> None:
        node = found.group("node") or ""
        state = RankState(
            rank=int(found.group(1)),
            node=node,
            communicator=self.communicator,
            detail=line.strip()[:300],
            origin={"": self.fragment.ref(number)},
        )
        count = found.group("count") or (
            "0" if found.group("none") or self.pending == "not" else self.pending if self.pending.isdecimal() else ""
        )
        if self.operation and count:
            state.counts = {self.operation: int(count)}
        if self.section == "INCOMPLETE":
            state.state = "MISSING"
        elif self.section == "ERROR":
            state.state = "ERROR"
            state.detail = found.group("error") or self.pending or state.detail
        else:
            state.state = found.group("status") or (self.pending if self.pending.isupper() else "")
        self.fragment.rank_states.append(state)
        if state.state in ("MISSING", "ERROR"):
            kind = "nccl.ras.missing" if state.state == "MISSING" else "nccl.ras.error"
            _event(
                self.fragment,
                number,
                kind,
                line.strip(),
                node=node,
                device=f"rank {state.rank}",
                communicator=self.communicator,
                rank=str(state.rank),
            )


def _json(block: Block, fragment: Fragment) -> None:
    try:
        content: Any = msgspec.json.decode("\n".join(block.lines).encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        fragment.note(f"RAS JSON that cannot be read (cut short?): {error}")
        for number, line in block.numbered():
            fragment.unparsed(number, line[:200])
        return
    if not isinstance(content, dict) or not isinstance(content.get("communicators"), list):
        fragment.note("JSON without RAS communicators")
        return
    first = block.first_line
    if isinstance(version := content.get("nccl_version"), str):
        fragment.source.version = version
        fragment.snapshot.software.put("nccl_version", version, fragment.ref(first))
    for communicator in content["communicators"]:
        if isinstance(communicator, dict):
            name = str(communicator.get("hash", ""))
            for rank in communicator.get("ranks") or []:
                _json_rank(fragment, first, name, rank)
            for rank in communicator.get("missing_ranks") or []:
                _json_missing(fragment, first, name, rank)
    ras = content.get("ras")
    if isinstance(ras, dict) and isinstance(ras.get("timeouts_count"), int) and ras["timeouts_count"] > 0:
        _event(fragment, first, "nccl.ras.timeout", f"{ras['timeouts_count']} timeouts while gathering data")


def _json_rank(fragment: Fragment, line: int, communicator: str, entry: object) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("rank"), int):
        return
    found = entry.get("status")
    status: dict[str, Any] = found if isinstance(found, dict) else {}
    word = "RUNNING"
    if status.get("abort_flag"):
        word = "ABORT"
    elif status.get("finalize_called") or status.get("destroy_flag"):
        word = "FINALIZE"
    elif status.get("init_state") not in (0, None):
        word = "INIT"
    counts = entry.get("collective_counts")
    state = RankState(
        rank=entry["rank"],
        node=str(entry.get("host", "")),
        communicator=communicator,
        state=word,
        origin={"": fragment.ref(line)},
    )
    if isinstance(counts, dict):
        state.counts = {str(k): v for k, v in counts.items() if isinstance(v, int)}
    for key in ("init_state", "async_error"):
        code = status.get(key)
        if isinstance(code, int) and code not in (0, IN_PROGRESS):
            state.detail = f"{key}: {_RESULTS.get(code, code)}"
            text = f"rank {state.rank} {state.detail}"
            _event(
                fragment,
                line,
                "nccl.ras.error",
                text,
                node=state.node,
                device=f"rank {state.rank}",
                communicator=communicator,
                rank=str(state.rank),
            )
    fragment.rank_states.append(state)


def _json_missing(fragment: Fragment, line: int, communicator: str, entry: object) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("rank"), int):
        return
    found = entry.get("status")
    status: dict[str, Any] = found if isinstance(found, dict) else {}
    node = str(entry.get("host", ""))
    dead, silent = bool(status.get("considered_dead")), bool(status.get("unresponsive"))
    word = "DEAD" if dead else "MISSING" if silent else "NOCOMM"
    fragment.rank_states.append(
        RankState(rank=entry["rank"], node=node, communicator=communicator, state=word, origin={"": fragment.ref(line)})
    )
    if dead or silent:
        kind = "nccl.ras.dead" if dead else "nccl.ras.missing"
        text = (
            f"rank {entry['rank']} on {node}, process {entry.get('pid', '?')}: {'considered dead' if dead else 'does not answer'}"
        )
        _event(
            fragment,
            line,
            kind,
            text,
            node=node,
            device=f"rank {entry['rank']}",
            communicator=communicator,
            rank=str(entry["rank"]),
        )
