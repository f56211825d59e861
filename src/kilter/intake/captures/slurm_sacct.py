"""``sacct``: ended and running jobs, with ``-p``, ``-P``, another ``--delimiter``, or in columns. Steps (``12.batch``, ``12.0``) add to their job.

Columns go by the header's names (sacct --helpformat); without a header only rows with ``|`` are read, by what stands in them, and the report
says so. Source: Slurm's manual page of sacct 22.05, JOB STATE CODES.
"""

from __future__ import annotations

import re

from kilter.facts.base import Ref
from kilter.facts.cluster import ClusterJob
from kilter.intake.captures import slurm_values as values
from kilter.intake.captures.bounded import lines as bounded
from kilter.intake.captures.slurm_entities import put_job_gpus
from kilter.intake.fragment import Block, Fragment

#: The worst state of a job's steps counts, where the job itself only says that it failed or was cancelled.
_TELLING = ("NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "PREEMPTED")
_ID = re.compile(r"(\d{1,12}(?:_(?:\d{1,9}|\[[\d,%-]{1,200}\]))?(?:\+\d{1,4})?)(?:\.([\w+]{1,40}))?$")
_STATE = re.compile(
    r"(?:"
    + "|".join((*_TELLING, "COMPLETED", "FAILED", "CANCELLED", "RUNNING", "PENDING", "REQUEUED", "REVOKED", "SUSPENDED"))
    + r")\b"
)
_EXIT = re.compile(r"(\d{1,3}):(\d{1,3})$")
_RULE = re.compile(r"[- ]{6,}$")


def _header(line: str) -> list[str] | None:
    """Names of the columns in lower case, None for a line that is no header."""
    sign = next((one for one in "|;,\t" if one in line), None)
    names = [name.strip().split("%")[0].lower() for name in (line.split(sign) if sign else line.split())]
    return names if "jobid" in names and "state" in names else None


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.jobs: dict[str, ClusterJob] = {}

    def row(self, cells: dict[str, str], line: int) -> bool:
        match = _ID.match(cells.get("jobid", ""))
        state = _STATE.match(cells.get("state", ""))
        if match is None or state is None:
            return False
        ref = self.fragment.ref(line)
        job = self.jobs.get(match[1])
        if job is None:
            job = self.jobs[match[1]] = ClusterJob(id=match[1], origin={"": ref})
            self.fragment.cluster_jobs.append(job)
        (self._step if match[2] else self._job)(job, cells, state[0], ref)
        return True

    def _job(self, job: ClusterJob, cells: dict[str, str], state: str, ref: Ref) -> None:
        job.put("state", state, ref)
        for column, field in (("jobname", "name"), ("user", "user"), ("partition", "partition"), ("reason", "reason")):
            text = cells.get(column, "")
            job.put(field, None if values.nothing(text) else text, ref)
        job.put("nodes", values.hosts(cells.get("nodelist", "")), ref)
        job.put("n_nodes", values.number(cells.get("nnodes", "")), ref)
        job.put("cpus", values.number(cells.get("alloccpus", cells.get("ncpus", ""))), ref)
        job.put("run_time_s", values.duration(cells.get("elapsed", "").partition(".")[0]), ref)
        job.put("time_limit_s", values.duration(cells.get("timelimit", "")), ref)
        for column, field in (("submit", "submitted"), ("start", "started"), ("end", "ended")):
            job.put(field, values.moment(cells.get(column, "")), ref)
        put_job_gpus(job, total=cells.get("alloctres", "") or cells.get("reqtres", ""), ref=ref)
        self._exit(job, cells, ref)

    def _step(self, job: ClusterJob, cells: dict[str, str], state: str, ref: Ref) -> None:
        if state in _TELLING and job.state in (None, "FAILED", "CANCELLED", "COMPLETED"):
            job.put("state", state, ref)
        job.put("nodes", job.nodes or values.hosts(cells.get("nodelist", "")), ref)
        if not job.exit_code:
            self._exit(job, cells, ref)

    def _exit(self, job: ClusterJob, cells: dict[str, str], ref: Ref) -> None:
        match = _EXIT.match(cells.get("exitcode", ""))
        if match is not None:
            code, signal = int(match[1]), int(match[2])
            job.put("exit_code", code if code or not signal else 128 + signal, ref)


def _headerless(texts: list[str]) -> dict[str, str]:
    """Job, state, exit code, elapsed time and nodes of a row, by their forms."""
    cells: dict[str, str] = {}
    for text in texts:
        for column, form in (("jobid", _ID), ("state", _STATE), ("exitcode", _EXIT)):
            if column not in cells and form.match(text):
                cells[column] = text
                break
        else:
            if "elapsed" not in cells and re.fullmatch(r"(?:\d{1,4}-)?\d\d:\d\d:\d\d", text):
                cells["elapsed"] = text
            elif re.search(r"\d", text) and re.fullmatch(r"[a-zA-Z][\w.-]{0,120}(?:\[[\d,-]{1,500}\])?", text):
                cells["nodelist"] = text  # the last such text: names of jobs come first
    return cells


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.cluster_jobs``: one a job, with the worst that its steps tell."""
    reader = _Reader(fragment)
    names: list[str] | None = None
    spans: list[tuple[int, int]] = []
    sign = ""
    guessed = False
    for number, text in bounded(block, fragment, limit=1 << 14):
        if not text.strip():
            continue
        if (found := _header(text)) is not None:
            names, sign = found, next((one for one in "|;,\t" if one in text), "")
            spans = [match.span() for match in re.finditer(r"\S+", text)]
            continue
        if _RULE.match(text):
            spans = [match.span() for match in re.finditer(r"-+", text)]
            continue
        if names is not None and sign:
            texts = text.split(sign)
        elif names is not None:
            texts = [text[low:high].strip() for low, high in spans]
        else:
            texts = text.split("|")
        cells = (
            dict(zip(names, (t.strip() for t in texts), strict=False))
            if names is not None
            else _headerless([t.strip() for t in texts])
        )
        if len(texts) < 2 or not reader.row(cells, number):
            fragment.unparsed(number, text[:200])
        elif names is None:
            guessed = True
    if guessed:
        fragment.note(
            "sacct without a header: job, state, exit code, time and nodes were told by their forms; run it without -n to be sure"
        )
