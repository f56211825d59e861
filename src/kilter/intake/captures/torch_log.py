"""PyTorch's distributed messages in job logs: the NCCL watchdog, the heartbeat monitor, and torchrun's summary of failed ranks.

They stand anywhere in a log, behind launchers' tags (``[rank3]:``, ``[default3]:``, ``[1,3]<stderr>:``, ``3: ``), so they are found line by line:
give :class:`TorchLog` each line that holds one of :data:`MARKS`. PyTorch 1.13 to 2.14.

Message texts: pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (WorkNCCL, watchdog, HeartbeatMonitor),
torch/distributed/elastic/multiprocessing/errors/__init__.py (ChildFailedError) and api.py; prefix: c10/util/Logging.cpp.
"""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

from kilter.facts.event import Clock, Event
from kilter.facts.measure import CollectiveRecord
from kilter.intake.captures.log_time import read_stamp

MARKS: tuple[str, ...] = (
    "Watchdog caught collective operation timeout",
    "detected by watchdog at work",
    "Timeout at NCCL work",
    "Received a dump signal due to",
    "Could not acquire GIL",
    "ProcessGroupNCCL's watchdog got stuck",
    "Heartbeat monitor timed out",
    "NCCL operations have failed or timed out",
    "NCCL operations have failed and timed out",
    "  host      : ",
    "  rank      : ",
    "  exitcode  : ",
    "  traceback : ",
    "Root Cause (first observed failure)",
    "failed (exitcode: ",
    "NO_OTHER_FAILURES",
)

#: Longer lines are cut: messages are short, and a progress bar may stand before them on the same line.
MAX_LINE = 16384
#: Distinct events and records kept of one log; more of them say nothing new.
MAX_EVENTS = 65536

_RANK_TAGS = (
    re.compile(r"\[rank ?(\d{1,7})\]"),
    re.compile(r"\[(?:default|trainer|worker)?(\d{1,7})\]:"),
    re.compile(r"\[\d{1,5},(\d{1,7})\]<std(?:err|out)>"),
    re.compile(r"\[PG [^\]\n]{0,200}Rank (\d{1,7})\]"),
    re.compile(r"\[Rank (\d{1,7})\]"),
    re.compile(r"^\s*(\d{1,7}): "),
)
_GROUP = re.compile(
    r"\[PG (?:ID (?P<id>\d{1,9}) )?(?:GUID |PG GUID )?(?P<guid>[^\s()\[\]]{1,80})?(?:\((?P<name>[^()\]\n]{0,80})\))? ?Rank \d{1,7}\]"
)
_GLOG = re.compile(r"\[?[EWIF](\d{1,2}?)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3,9})[ \d]*? ")
_RAY = re.compile(r"\(\w+ pid=\d+, ip=([\d.a-fA-F:]{3,45})\)")

_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), )?OpType=(?P<op>\w{1,60})"
    r"(?:, NumelIn=(?P<n_in>\d{1,18}))?(?:, NumelOut=(?P<n_out>\d{1,18}))?"
    r"(?:, (?:TensorShape|InputShape)=\[[^\]]{0,300}\])?(?:, Timeout\(ms\)=(?P<timeout>\d{1,18}))?\)(?: ran for (?P<ran>\d{1,18}) milliseconds)?"
)
_AT_WORK = re.compile(r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (?P<seq>\d{1,18})")
_STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18})(?:, last started (?:NCCL )?work: -?\d{1,18})?"
    r", last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})"
)
_DUMP_FROM = re.compile(
    r"Received a dump signal due to (?P<why>a collective timeout|[\w ]{1,60}?) from +(?:rank (?P<from>\d{1,7})|this local rank)"
)

#: Which job a line is of: a pod's name before its ordinal, or a job's number in front of the message.
_JOBS = (
    re.compile(
        r"\[pod/([\w.-]{1,200}?)(?:-(?:worker|master|launcher|leader|rank|node))?(?:-\d{1,5})?(?:-[a-z0-9]{5})?(?:/[\w.-]{1,200})?\]"
    ),
    re.compile(r"(?:^|[\s\[(])([\w.-]{1,200}?)-(?:worker|master|launcher|leader)-\d{1,5}\b"),
    re.compile(r"\b[Jj](?:ob|OB)(?:[ _-]?[Ii][Dd])?[ =:#]{1,3}(\d{1,12})\b"),
)
#: A watchdog that speaks again after this long, and after its own time limit, speaks of another run.
RUN_GAP_S = 600.0

_HOST = re.compile(r" {2}host {6}: (\S{1,255})")
_RANK = re.compile(r" {2}rank {6}: (\d{1,7})(?: \(local_rank: (\d{1,5})\))?")
_EXIT = re.compile(r" {2}exitcode {2}: (-?\d{1,5})(?: \(pid: (\d{1,10})\))?")
_TRACEBACK = re.compile(r" {2}traceback : (.{1,300})")
_SIGNAL = re.compile(r"Signal (\d{1,3}) \((SIG\w{1,10})\)")
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,5}) \(pid: (\d{1,10})\)")

SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


class Place(NamedTuple):
    """Who printed a line, and when."""

    rank: int | None
    node: str
    time: float | None
    clock: Clock
    uncertainty_s: float
    year_assumed: bool


def _glog_time(match: re.Match[str], year: int) -> float | None:
    month, day, hour, minute, second, fraction = match.groups()
    try:
        moment = datetime.datetime(year, int(month), int(day), int(hour), int(minute), int(second), tzinfo=datetime.timezone.utc)
    except (ValueError, OverflowError):
        return None
    return moment.timestamp() + float(f"0.{fraction}")


def rank_of(line: str) -> int | None:
    """The rank that a launcher's tag or the message's own prefix names; the global one before the group's."""
    head = line[:2048]
    for pattern in _RANK_TAGS:
        if match := pattern.search(head):
            return int(match.group(1))
    return None


def place_of(line: str, *, year: int) -> Place:
    """Rank, host and time of one log line, as far as its prefix tells."""
    rank = rank_of(line)
    stamp = read_stamp(line[:512], year=year)
    node = stamp.node
    if not node and (ray := _RAY.search(line[:512])):
        node = ray.group(1)
    if stamp.time is not None:
        return Place(rank, node, stamp.time, stamp.clock, stamp.uncertainty_s, stamp.year_assumed)
    if (match := _GLOG.search(line[:2048])) and (time := _glog_time(match, year)) is not None:
        return Place(rank, node, time, Clock.LOCAL, 0.0, True)
    return Place(rank, node, None, Clock.NONE, 0.0, False)


def group_of(line: str) -> str:
    """The process group of a message: its description where one is printed, else its GUID or number; "" before PyTorch 2.2."""
    match = _GROUP.search(line[:2048])
    if match is None:
        return ""
    name = match.group("name") or ""
    if name and name != "undefined":
        return name
    return (match.group("guid") or match.group("id") or "").strip()


def job_of(line: str) -> str:
    """The job that the tags in front of a message name, "" without."""
    head = line[:400].partition("ProcessGroupNCCL")[0]
    return next((match[1] for pattern in _JOBS if (match := pattern.search(head))), "")


class LineEvents:
    """Events of one log, with repeats of one message by one rank merged. Base of the scanners of job logs."""

    def __init__(self, source: str, *, year: int) -> None:
        self.source = source
        self.year = year
        self.lines = 0
        self.events: list[Event] = []
        self.dropped = 0
        self._seen: dict[tuple[str, str, str, str], Event] = {}

    def add(
        self, kind: str, text: str, line: int, place: Place, *, code: int | None = None, key: str = "", **fields: str | None
    ) -> Event:
        """One event; the same ``kind`` and ``key`` (default: the text) of the same rank and node is counted, not added."""
        device = f"rank {place.rank}" if place.rank is not None else ""
        mark = (kind, place.node, device, key or text)
        known = self._seen.get(mark)
        if known is not None:
            known.count += 1
            known.last_time = place.time if place.time is not None else known.last_time
            return known
        event = Event(
            kind=kind,
            text=text[:400],
            node=place.node,
            device=device,
            time=place.time,
            clock=place.clock,
            uncertainty_s=place.uncertainty_s,
            code=code,
            source=self.source,
            line=line,
            fields={name: value for name, value in fields.items() if value},
        )
        if place.rank is not None:
            event.fields["rank"] = str(place.rank)
        if place.year_assumed:
            event.fields["year"] = "assumed"
        if len(self.events) >= MAX_EVENTS:
            self.dropped += 1
            return event
        self._seen[mark] = event
        self.events.append(event)
        return event


class TorchLog(LineEvents):
    """Reads the lines of one log into events and collective records.

    ``records`` go into ``fragment.collectives``; their refs point at source 0.
    """

    def __init__(self, source: str, *, year: int) -> None:
        super().__init__(source, year=year)
        self.records: list[CollectiveRecord] = []
        self._open: dict[tuple[str, int, int], list[tuple[CollectiveRecord, Event]]] = {}
        self._failed: dict[str, Event] = {}
        self._entry: dict[str, str] = {}
        self._entry_line = 0
        self._root = False
        self._runs: dict[str, tuple[int, float, float]] = {}  # job -> run, time of its last message, its time limit in s

    def _job(self, line: str, place: Place) -> str:
        """The job and run of a message; "" for the first run of a log that names no job."""
        job = job_of(line)
        limit = re.search(r"Timeout\(ms\)=(\d{1,12})", line)
        limit_s = int(limit[1]) / 1000 if limit else 0.0
        run, last, known_s = self._runs.get(job, (0, place.time or 0.0, 0.0))
        limit_s = max(limit_s, known_s)
        if place.time is not None:
            run += abs(place.time - last) > max(limit_s, RUN_GAP_S)
            last = place.time
        self._runs[job] = (run, last, limit_s)
        return f"{job} run {run + 1}".strip() if run else job

    def settle(self) -> None:
        """After the last line: a job's name tells nothing where all lines are of one job."""
        if len(self._runs) != 1 or not (name := next(iter(self._runs))):
            return
        for record in self.records:
            record.job = record.job.removeprefix(name).strip()
        for event in self.events:
            if job := event.fields.pop("job", "").removeprefix(name).strip():
                event.fields["job"] = job

    def feed(self, number: int, line: str) -> None:
        """Read one line that holds one of :data:`MARKS`."""
        line = line.rstrip("\r\n")
        if len(line) > MAX_LINE:
            line = line[:2048] + line[-MAX_LINE + 2048 :]
        if "Root Cause (first observed failure)" in line:
            self._root = True
            self.lines += 1
        elif "NO_OTHER_FAILURES" in line:
            self.lines += 1
        elif match := _HOST.search(line):
            self._entry, self._entry_line = {"host": match.group(1)}, number
            self.lines += 1
        elif match := _RANK.search(line):
            self._field(number, rank=match.group(1), local_rank=match.group(2) or "")
        elif match := _EXIT.search(line):
            self._field(number, exitcode=match.group(1), pid=match.group(2) or "")
            self._rank_failed(number, line)
        elif match := _TRACEBACK.search(line):
            self._traceback(number, match.group(1))
        elif match := _FAILED.search(line):
            self._agent(number, line, match)
        else:
            self._message(number, line)

    # -- torchrun --

    def _field(self, number: int, **values: str) -> None:
        self.lines += 1
        if number - self._entry_line > 8:  # the line before was lost
            self._entry = {}
        self._entry.update({name: value for name, value in values.items() if value})
        self._entry_line = number

    def _rank_failed(self, number: int, line: str) -> None:
        entry = self._entry
        place = place_of(line, year=self.year)._replace(rank=int(entry["rank"]) if "rank" in entry else None)
        if entry.get("host"):
            place = place._replace(node=entry["host"])
        self._failure(number, place, entry)

    def _failure(self, number: int, place: Place, entry: dict[str, str]) -> None:
        code = int(entry["exitcode"])
        signal = SIGNALS.get(-code, "") if code < 0 else ""
        pid = entry.get("pid", "")
        known = self._failed.get(f"{place.node}/{pid}") or self._failed.get(f"/{pid}") if pid else None
        if known is not None:
            known.fields.update({name: value for name, value in entry.items() if value})
            if place.rank is not None:
                known.device = f"rank {place.rank}"
            known.node = place.node or known.node
        else:
            who = f"rank {place.rank}" if place.rank is not None else f"local rank {entry.get('local_rank', '?')}"
            text = f"{who} failed, exit code {code}" + (f" ({signal})" if signal else "") + (f", pid {pid}" if pid else "")
            known = self.add(
                "torch.rank_failed", text, number, place, code=code, key=f"{who}/{pid}/{code}", signal=signal, **entry
            )
            if pid:
                self._failed[f"{place.node}/{pid}"] = known
        if self._root:
            known.fields["first"] = "yes"
            self._root = False

    def _traceback(self, number: int, text: str) -> None:
        self.lines += 1
        pid = self._entry.get("pid", "")
        known = self._failed.get(f"{self._entry.get('host', '')}/{pid}") if pid and number - self._entry_line <= 3 else None
        if known is not None and "enable traceback" not in text:
            known.fields["traceback"] = text
            if match := _SIGNAL.search(text):
                known.fields["signal"] = match.group(2)

    def _agent(self, number: int, line: str, match: re.Match[str]) -> None:
        """The agent's own line; the summary that follows names the rank and the host of the same pid."""
        self.lines += 1
        place = place_of(line, year=self.year)._replace(rank=None)
        self._failure(number, place, {"exitcode": match.group(1), "local_rank": match.group(2), "pid": match.group(3)})

    # -- watchdog --

    def _message(self, number: int, line: str) -> None:
        place = place_of(line, year=self.year)
        group = group_of(line)
        job = self._job(line, place)
        status = _STATUS.search(line)
        counts = {"enqueued": status.group("enqueued"), "completed": status.group("completed")} if status else {}
        if match := _TIMEOUT.search(line):
            self._timeout(number, place, job, group, match)
        elif match := _AT_WORK.search(line):
            self._name_group(place, job, int(match.group("seq")), group)
            self.add(
                "torch.status",
                f"watchdog at work {match.group('seq')}" + _counts(counts),
                number,
                place,
                group=group,
                seq=match.group("seq"),
                job=job,
                code=None,
                key=f"{job}/{group}/{match.group('seq')}/{counts}",
                **counts,
            )
        elif match := _DUMP_FROM.search(line):
            origin = match.group("from")
            text = (
                f"dump signal because of {match.group('why')} from "
                + (f"rank {origin}" if origin else "this rank")
                + _counts(counts)
            )
            self.add(
                "torch.dump_signal",
                text,
                number,
                place,
                group=group,
                origin=origin,
                job=job,
                code=None,
                key=f"{job}/{group}/{text}",
                **counts,
            )
        elif "watchdog got stuck" in line or "Heartbeat monitor timed out" in line or "Could not acquire GIL" in line:
            kind = "GIL not acquired" if "GIL" in line and "Could not" in line else "watchdog thread made no progress"
            self.add("torch.heartbeat", kind, number, place, group=group)
        elif "NCCL operations have failed" in line:
            self.add(
                "torch.taken_down",
                "NCCL operations have failed or timed out; the process is taken down",
                number,
                place,
                group=group,
            )
        else:
            return
        self.lines += 1

    def _timeout(self, number: int, place: Place, job: str, group: str, match: re.Match[str]) -> None:
        seq, op = match.group("seq"), match.group("op").upper()
        size = f", {match.group('n_in')} elements in" if match.group("n_in") else ""
        text = f"{op} number {seq or '?'} timed out after {match.group('ran') or '?'} ms{size}"
        known = len(self.events)
        event = self.add(
            "torch.watchdog",
            text,
            number,
            place,
            key=f"{job}/{group}/{seq}/{op}",
            group=group,
            job=job,
            seq=seq,
            op=op,
            numel_in=match.group("n_in"),
            numel_out=match.group("n_out"),
            timeout_ms=match.group("timeout"),
            ran_ms=match.group("ran"),
        )
        if len(self.events) == known:
            return  # a repeat
        record = CollectiveRecord(
            rank=place.rank if place.rank is not None else -1, node=place.node, job=job, group=group, origin={"": (0, number)}
        )
        record.operation, record.state = op, "timed out"
        record.sequence = int(seq) if seq else None
        record.input_elements = int(match.group("n_in")) if match.group("n_in") else None
        record.output_elements = int(match.group("n_out")) if match.group("n_out") else None
        record.timeout_ms = float(match.group("timeout")) if match.group("timeout") else None
        record.duration_ms = float(match.group("ran")) if match.group("ran") else None
        self.records.append(record)
        if not group and seq:
            self._open.setdefault((job, record.rank, int(seq)), []).append((record, event))

    def _name_group(self, place: Place, job: str, seq: int, group: str) -> None:
        """PyTorch 2.2 to 2.7 name the group only in the line after the timeout."""
        if not group or place.rank is None:
            return
        for record, event in self._open.pop((job, place.rank, seq), []):
            record.group = event.fields["group"] = group


def _counts(counts: dict[str, str]) -> str:
    return f": enqueued up to {counts['enqueued']}, completed up to {counts['completed']}" if counts else ""
