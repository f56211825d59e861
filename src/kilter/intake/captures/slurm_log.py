"""Logs of slurmctld, slurmd and slurmstepd: nodes that do not answer, drains, prologs that fail, GPUs that are missing, jobs that were ended.

A line can stand in the daemon's own log (``[2026-12-01T00:39:06.123] error: ...``), in syslog, or (slurmstepd) in a job's output.
Texts: format strings of slurmctld, slurmd, slurmstepd and libslurm 22.05.8. Kinds begin with ``slurm.``: they are no lines of a kernel log.
"""

from __future__ import annotations

import re

from kilter.intake.captures import slurm_values as values
from kilter.intake.captures.torch_log import LineEvents, Place, place_of
from kilter.intake.fragment import Block, Fragment

MARKS = (
    "not responding",
    "now responding",
    "unexpectedly rebooted",
    "reported lower than configured",
    "gres.conf file ",
    "state set to D",
    "reason set to: ",
    "rolog fail",
    "pilog fail",
    "rolog launch failure",
    "draining the node",
    "Kill task failed",
    "on failed node ",
    " CANCELLED AT ",
    "due to node failure",
    "due to failure of node",
)
_HEAD = re.compile(r"(?:\[\d{4}-\d\d-\d\dT[\d:.]{8,16}\]|slurm(?:ctld|d|stepd)(?:\[\d{1,10}\])?:|\bslurmctld\b|\bslurmd\b)")
_STAMP = re.compile(r"^(?:\[\d{4}-\d\d-\d\dT[\d:.]{8,16}\] |.{0,100}?slurm(?:ctld|d|stepd|dbd)\[\d{1,10}\]: )")
_NAME = r"(?P<nodes>[\w.-]{1,120}(?:\[[\d,-]{1,500}\])?[\w.,\[\]-]{0,500})"
_JOB = r"(?:JobId=|StepId=|JOB |STEP )(?P<job>\d{1,12}(?:[_.+][\w.+\[\]-]{1,40})?)"
_KINDS = (
    ("slurm.node_lost", re.compile(rf"Nodes? {_NAME} not responding(?P<down>, setting DOWN)?")),
    ("slurm.node_back", re.compile(rf"Node {_NAME} now responding")),
    ("slurm.node_rebooted", re.compile(rf"Node {_NAME} unexpectedly rebooted|Node unexpectedly rebooted")),
    (
        "slurm.gpu_count",
        re.compile(
            rf"(?:(?:node |node=){_NAME}.{{0,80}}?)?gres/gpu(?::\w+)? count reported lower than configured "
            r"\((?P<have>\d{1,6}) < (?P<want>\d{1,6})\)"
        ),
    ),
    ("slurm.gpu_file", re.compile(r"(?:Waiting for|can't stat) gres\.conf file (?P<file>/dev/[\w/.-]{1,100})")),
    ("slurm.reason", re.compile(rf"update_node: node {_NAME} reason set to: (?P<reason>.{{1,300}})")),
    ("slurm.drained", re.compile(rf"(?:update_node|drain_nodes): node {_NAME} state set to (?P<state>DRAIN\w*|DOWN\w*)")),
    (
        "slurm.prolog",
        re.compile(r"(?:\[job (?P<job>\d{1,12})\] )?(?P<which>prolog|epilog) failed status=(?P<status>[\d:]{1,12})"),
    ),
    ("slurm.prolog", re.compile(rf"(?P<which>Prolog|Epilog)(?: or job env setup)? fail(?:ed|ure) on (?:node|host) {_NAME}")),
    ("slurm.prolog", re.compile(rf"(?P<which>Prolog) launch failure, {_JOB}")),
    ("slurm.kill_task", re.compile(r"Kill task failed")),
    (
        "slurm.job_ended",
        re.compile(
            rf"\*\*\* {_JOB} ON {_NAME} CANCELLED AT \S{{1,30}} DUE TO "
            r"(?P<why>TIME LIMIT|NODE FAILURE|PREEMPTION|JOB REQUEUE)"
        ),
    ),
    ("slurm.job_lost", re.compile(rf"Killing {_JOB} on failed node {_NAME}")),
    ("slurm.job_lost", re.compile(rf"requeue (?:job )?{_JOB} due to (?:failure of node {_NAME}|node failure)")),
)
#: These words also stand in other programs' lines; only lines of Slurm's daemons count.
_OWN = {"slurm.node_lost", "slurm.node_back", "slurm.prolog", "slurm.node_rebooted", "slurm.kill_task"}
_BAD = re.compile(r"(?:error|fatal): .{0,200}?\b(?:gpu|gres|nvml|nvidia)", re.I)


class SlurmLog(LineEvents):
    """Reads the lines of one log into events."""

    def feed(self, number: int, line: str) -> None:
        """Read one line that holds one of :data:`MARKS`."""
        line = line.rstrip("\r\n")[:4000]
        ours = _HEAD.search(line[:200]) is not None
        for kind, pattern in _KINDS:
            match = pattern.search(line)
            if match is None or (kind in _OWN and not ours):
                continue
            self.lines += 1
            self._add(kind, match, number, line)
            return

    def _add(self, kind: str, match: re.Match[str], number: int, line: str) -> None:
        fields: dict[str, str | None] = {name: value.strip(" ,.") for name, value in match.groupdict().items() if value}
        place = place_of(line, year=self.year)
        logged_on = "" if "slurmctld" in line else place.node  # the controller's own host is not the node meant
        names = values.hosts(fields.pop("nodes", None) or "") or [logged_on]
        text = _STAMP.sub("", line)[:300].strip()
        for name in names[:64]:
            at = Place(None, name, place.time, place.clock, place.uncertainty_s, place.year_assumed)
            key = "|".join(fields.get(part) or "" for part in ("job", "reason", "have", "want", "file", "which", "why", "down"))
            self.add(kind, text, number, at, code=None, key=key, **fields)


def parse(block: Block, fragment: Fragment) -> None:
    """The lines that tell something are read wherever they stand; others of the log say nothing. Errors that name a GPU and are not known
    go to ``unparsed``."""
    for number, line in block.numbered():
        text = line[:400]
        if _BAD.search(text) and not any(pattern.search(text) for _, pattern in _KINDS):
            fragment.unparsed(number, text[:200])
