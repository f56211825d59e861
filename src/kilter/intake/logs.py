"""The readers of log lines together: kernel, NCCL, PyTorch, tracebacks, Slurm. A line can stand anywhere, also inside another output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kilter.facts.base import Source
from kilter.facts.case import Input
from kilter.intake.captures import kernel_log, nccl, slurm_log, step_log, torch_log, tracebacks
from kilter.intake.captures.bounded import is_absurd
from kilter.intake.fragment import Fragment

#: A line without any of these is no event of any reader but NCCL's.
MARKS: tuple[str, ...] = tuple(
    dict.fromkeys((*kernel_log.MARKS, *torch_log.MARKS, *tracebacks.MARKS, *step_log.MARKS, *slurm_log.MARKS))
)
#: Characters of text looked at together for lines of NCCL.
PIECE = 4 << 20


class _Reader(Protocol):
    def feed(self, number: int, line: str, /) -> object: ...


class Logs:
    """What the readers found in one text."""

    def __init__(self, name: str, *, year: int) -> None:
        self.name = name
        self.failure = ""
        self.kernel = kernel_log.KernelLog(name, year=year)
        self.nccl = nccl.NcclLog(name, year=year)
        self.torch = torch_log.TorchLog(name, year=year)
        self.tracebacks = tracebacks.Tracebacks(name, year=year)
        self.slurm = slurm_log.SlurmLog(name, year=year)
        self.steps = step_log.StepLog(name)
        self._readers: tuple[tuple[tuple[str, ...], _Reader], ...] = (
            (torch_log.MARKS, self.torch),
            (tracebacks.MARKS, self.tracebacks),
            (step_log.MARKS, self.steps),
            (slurm_log.MARKS, self.slurm),
            (kernel_log.MARKS, self.kernel),
        )

    def scan(self, text: str) -> None:
        """All lines of ``text``, each by the readers whose marks it holds."""
        first = 1
        start = 0
        while start < len(text):
            end = text.find("\n", start + PIECE) + 1 or len(text)
            piece = text[start:end]
            self.feed_nccl(first, nccl.telling(piece))
            first += piece.count("\n")
            start = end
        for marks, reader in self._readers:
            for number, line in kernel_log.marked_lines(text, marks):
                if not is_absurd(line):
                    self._feed(reader, number, line)

    def feed(self, number: int, line: str) -> None:
        """One line that holds one of :data:`MARKS`."""
        if is_absurd(line):
            return
        for marks, reader in self._readers:
            for mark in marks:
                if mark in line:
                    self._feed(reader, number, line)
                    break

    def feed_nccl(self, first: int, lines: Iterable[nccl.Telling]) -> None:
        """What :func:`nccl.telling` found in a text whose first line has the number ``first``."""
        for index, times, line in lines:
            if not is_absurd(line):
                try:
                    self.nccl.feed(first + index, line, times)
                except Exception as error:
                    self._failed(first + index, error)

    def _feed(self, reader: _Reader, number: int, line: str) -> None:
        try:
            reader.feed(number, line)
        except Exception as error:
            self._failed(number, error)

    def _failed(self, number: int, error: Exception) -> None:
        """A reader's bug must cost one line, not the run."""
        if not self.failure:
            self.failure = f"a log reader failed at line {number} ({type(error).__name__}: {error}); please report this line"

    @property
    def event_lines(self) -> set[int]:
        """Numbers of the lines that made an event."""
        steps = {s.origin[""][1] for s in self.steps.samples}
        return steps | {e.line for reader in (self.kernel, self.torch, self.tracebacks, self.slurm) for e in reader.events}

    @property
    def job_lines(self) -> int:
        """How many lines belong to a job's log."""
        return self.nccl.lines + self.torch.lines + self.tracebacks.lines + self.slurm.lines + len(self.steps.samples)

    def fragments(self, summary: Input, *, is_kernel_log: bool) -> list[Fragment]:
        """What was found, ready to be merged. ``is_kernel_log``: the text is a kernel log even if it tells of nothing."""
        found = []
        if is_kernel_log:
            found.append(self._kernel())
        if self.nccl.lines:
            fragment = Fragment(Source(name=self.name, tool="NCCL log"))
            fragment.jobs.append(self.nccl.finish())
            fragment.events = self.nccl.events
            found.append(fragment)
        if self.torch.lines or self.tracebacks.lines or self.steps.samples:
            self.torch.settle()
            fragment = Fragment(Source(name=self.name, tool="job log"))
            fragment.events = [*self.torch.events, *self.tracebacks.events]
            fragment.collectives = self.torch.records
            fragment.snapshot.samples = self.steps.samples
            found.append(fragment)
        if self.slurm.events:
            fragment = Fragment(Source(name=self.name, tool="Slurm log"))
            fragment.events = self.slurm.events
            found.append(fragment)
        summary.tools += [one.source.tool for one in found]
        summary.notes += [self.failure] if self.failure else []
        return found

    def _kernel(self) -> Fragment:
        nodes = {event.node for event in self.kernel.events if event.node}
        fragment = Fragment(Source(name=self.name, tool="kernel log", node=nodes.pop() if len(nodes) == 1 else ""))
        fragment.events = self.kernel.events
        for name, (value, line) in self.kernel.facts.items():
            part, _, field = name.partition(".")
            getattr(fragment.snapshot, part).put(field, value, fragment.ref(line))
        return fragment
