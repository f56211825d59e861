"""The readers of log lines together: kernel, NCCL, PyTorch, tracebacks. A line can stand anywhere, also inside another output."""

from __future__ import annotations

from kilter.facts.base import Source
from kilter.facts.case import Input
from kilter.intake.captures import kernel_log, nccl, torch_log, tracebacks
from kilter.intake.captures.bounded import is_absurd
from kilter.intake.fragment import Fragment

#: A line without any of these is no event of any reader.
MARKS: tuple[str, ...] = tuple(dict.fromkeys((*kernel_log.MARKS, *nccl.MARKS, *torch_log.MARKS, *tracebacks.MARKS)))


class Logs:
    """What the readers found in one text."""

    def __init__(self, name: str, *, year: int) -> None:
        self.name = name
        self.kernel = kernel_log.KernelLog(name, year=year)
        self.nccl = nccl.NcclLog(name, year=year)
        self.torch = torch_log.TorchLog(name, year=year)
        self.tracebacks = tracebacks.Tracebacks(name, year=year)

    def scan(self, text: str) -> None:
        """All lines of ``text``, each by the readers whose marks it holds."""
        for marks, reader in (
            (kernel_log.MARKS, self.kernel),
            (nccl.MARKS, self.nccl),
            (torch_log.MARKS, self.torch),
            (tracebacks.MARKS, self.tracebacks),
        ):
            for number, line in kernel_log.marked_lines(text, marks):
                if not is_absurd(line):
                    reader.feed(number, line)

    def feed(self, number: int, line: str) -> None:
        """One line that holds one of :data:`MARKS`."""
        if is_absurd(line):
            return
        if any(mark in line for mark in nccl.MARKS):
            self.nccl.feed(number, line)
        if any(mark in line for mark in torch_log.MARKS):
            self.torch.feed(number, line)
        if any(mark in line for mark in tracebacks.MARKS):
            self.tracebacks.feed(number, line)
        if any(mark in line for mark in kernel_log.MARKS):
            self.kernel.feed(number, line)

    @property
    def event_lines(self) -> set[int]:
        """Numbers of the lines that made an event."""
        return {e.line for reader in (self.kernel, self.torch, self.tracebacks) for e in reader.events}

    @property
    def job_lines(self) -> int:
        """How many lines belong to a job's log."""
        return self.nccl.lines + self.torch.lines + self.tracebacks.lines

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
        if self.torch.lines or self.tracebacks.lines:
            fragment = Fragment(Source(name=self.name, tool="job log"))
            fragment.events = [*self.torch.events, *self.tracebacks.events]
            fragment.collectives = self.torch.records
            found.append(fragment)
        summary.tools += [one.source.tool for one in found]
        return found

    def _kernel(self) -> Fragment:
        nodes = {event.node for event in self.kernel.events if event.node}
        fragment = Fragment(Source(name=self.name, tool="kernel log", node=nodes.pop() if len(nodes) == 1 else ""))
        fragment.events = self.kernel.events
        for name, (value, line) in self.kernel.facts.items():
            part, _, field = name.partition(".")
            getattr(fragment.snapshot, part).put(field, value, fragment.ref(line))
        return fragment
