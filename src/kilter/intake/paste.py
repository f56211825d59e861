"""One text -> fragments: split at prompts and headers, hand each piece to its parser, scan everything for log lines.

Nothing is decided by file names. What no parser places is counted and sampled, so that the user sees what was not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from kilter.facts.base import Source
from kilter.facts.case import Input
from kilter.intake.captures import STARTS, Capture, bug_report, by_command, capture_of, log_time, nccl
from kilter.intake.captures.bounded import is_absurd
from kilter.intake.documents import read_document
from kilter.intake.fragment import Block, Fragment
from kilter.intake.logs import Logs

_COMMANDS = (
    "nvidia-smi|xpu-smi|lspci|lscpu|dmesg|journalctl|cat|head|tail|grep|ibstat|ibstatus|ibv_devinfo|ibdev2netdev|ethtool|numactl|sysctl|ulimit|env|printenv|uname|"
    "lsmod|modinfo|df|free|ip|ls|dcgmi|nvidia-bug-report\\.sh|mpirun|srun|torchrun|python3?|systemctl|nvidia-fabricmanager|show_gids|mlnx_qos|perfquery|nv-fabricmanager|docker|kubectl|"
    "ps|smartctl|nvme|ibnetdiscover|ibswinfo|cma_roce_mode|cma_roce_tos|iblinkinfo|ibqueryerrors|rdma|ibdiagnet|mlxlink|mlxconfig|mst|ofed_info|dkms|dmidecode|nvidia-imex-ctl|chronyc|timedatectl|numastat|sinfo|squeue|sacct|scontrol|sdiag|ipmitool|ipmi-sel|ras-mc-ctl"
)
#: A shell prompt with a command, a file header of head/tail, or a header of kilter's collector.
PROMPT = re.compile(
    rf"^(?=\S)(?:"
    rf"\[?(?:\([\w.-]+\) ?)?(?P<user>[\w.-]+)@(?P<host>[\w.-]+)[: ][^\n#$]{{0,120}}?\]?[#$] (?P<c1>[^\n]+)"
    rf"|(?:[#$%>]|\++) ?(?P<c2>(?:sudo +)?(?:{_COMMANDS})\b[^\n]*)"
    rf"|### (?:kilter: )?(?P<c3>(?<=kilter: )[^\n]+|stderr)"
    rf"|{bug_report.HEADER}"
    rf"|==> (?P<file>[^\n]+) <=="
    rf")$",
    re.M,
)

SAMPLE = 5
#: No single output is longer; what stands behind so many lines of one is counted, not read.
MAX_LINES = 2_000_000
#: A text of 256 MiB has about four million lines of the length that tools print.
MAX_TEXT_LINES = 4_000_000
#: A text larger than this is first sampled; when the samples are nothing but log lines, it is read as a log alone.
LARGE = 8 << 20


class _Piece(msgspec.Struct):
    start: int
    end: int
    capture: Capture | None
    command: str
    node: str


def _at_lines(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """As ``pattern.finditer``, of a pattern that begins with ``^``, which would be tried at every character."""
    match, find = pattern.match, text.find
    position, size = 0, len(text)
    while position < size:
        if (found := match(text, position)) is not None:
            yield found
            end = found.end()
            if end > position and text[end - 1] == "\n":
                position = end
                continue
            position = end
        position = find("\n", position) + 1 or size


def _pieces(text: str) -> list[_Piece]:
    """Cut ``text`` at every start of a capture and at every prompt."""
    marks: list[tuple[int, re.Match[str], bool]] = [(m.start(), m, True) for m in _at_lines(PROMPT, text)]
    marks += [(m.start(), m, False) for m in _at_lines(STARTS, text)]
    marks.sort(key=lambda mark: mark[0])
    pieces = [_Piece(0, len(text), None, "", "")]
    command = ""
    node = bug_report.node(text) if bug_report.is_bug_report(text) else ""
    for start, match, is_prompt in marks:
        last = pieces[-1]
        if is_prompt:
            command = (
                next((match.group(name) for name in ("c1", "c2", "c3") if match.group(name)), "")
                or match.group("file")
                or match.group("section")
                or ""
            )
            node = match.group("host") or node
            last.end = start
            after = match.end() + 1
            pieces.append(_Piece(min(after, len(text)), len(text), by_command(command) if command else None, command, node))
            continue
        if start < last.start:
            continue  # inside the prompt line itself
        capture = capture_of(match)
        if last.capture is not None and ((last.capture is capture and capture.repeats) or last.capture.tool == capture.inside):
            continue
        last.end = start
        pieces.append(_Piece(start, len(text), capture, command, node))
    return [piece for piece in pieces if piece.end > piece.start]


def _parse(capture: Capture, block: Block, fragment: Fragment) -> None:
    try:
        capture.parser()(block, fragment)
    except Exception as error:  # a parser's bug must cost one block, not the run
        fragment.note(
            f"reader of {capture.tool} failed at line {block.first_line} ({type(error).__name__}: {error}); please report this capture"
        )
        for number, line in block.numbered():
            fragment.unparsed(number, line)


class _Unplaced:
    """Counts lines that nobody placed, apart from those that are log lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.sample: list[str] = []
        self.kernel_lines = 0
        self.last = ""
        self.was_counted = False

    def add(self, number: int, line: str, *, event_lines: set[int]) -> None:
        if line == self.last and number not in event_lines:  # the same again, as in floods and bombs
            self.count += self.was_counted
            return
        self.last, self.was_counted = line, False
        if not line.strip():
            return
        if log_time.looks_like_kernel_log(line) or (line.startswith("{") and '"MESSAGE"' in line):
            self.kernel_lines += 1
            return
        if number in event_lines or ("NCCL " in line and not is_absurd(line) and nccl.is_line(line)):
            return
        self.count += 1
        self.was_counted = True
        if len(self.sample) < SAMPLE:
            self.sample.append(f"{number}: {line.strip()[:120]}")


def is_one_log(text: str) -> bool:
    """Whether samples of a large text hold only log lines."""
    step = max(len(text) // 8, 1)
    for offset in range(0, len(text), step):
        lines = text[offset : offset + 8192].splitlines()[1:-1]
        if not lines and len(text) - offset >= 8192:
            return False  # inside one long line
        likes = sum(1 for line in lines if log_time.looks_like_kernel_log(line) or "NCCL " in line or '"MESSAGE"' in line)
        if likes < 0.9 * len(lines):
            return False
    return True


def _end_of_line(text: str, number: int) -> int:
    """Where line ``number`` (from 1) ends."""
    end, step = 0, 1 << 20
    while (lines := text.count("\n", end, end + step)) < number and end < len(text):
        number -= lines
        end += step
    for _ in range(number):
        end = text.find("\n", end) + 1 or len(text)
    return end


#: Controls that texts do not hold: all of C0 but backspace, tab, line ends, form feed and escape.
_CONTROLS = dict.fromkeys([*range(8), 11, *range(14, 27), *range(28, 32)])


def _is_binary(head: str) -> bool:
    return head.count("\x00") > len(head) // 100 or len(head) - len(head.translate(_CONTROLS)) > len(head) // 20


def read_text(name: str, text: str, *, year: int) -> tuple[list[Fragment], Input]:
    """Everything that ``text`` holds. ``year`` stands in for log forms that print none."""
    summary = Input(name=name, lines=text.count("\n") + (not text.endswith("\n") and bool(text)))
    if _is_binary(text[:65536]):
        summary.notes.append("binary data; expected text")
        summary.unrecognised_lines = summary.lines
        return [], summary
    document = read_document(name, text)
    if document is not None:
        summary.tools.append(document.source.tool)
        summary.notes += document.notes
        return [document], summary
    fragments: list[Fragment] = []
    unplaced = _Unplaced(name)
    logs = Logs(name, year=year)
    logs.scan(text)
    event_lines = logs.event_lines
    if len(text) > LARGE and is_one_log(text):
        unplaced.kernel_lines = summary.lines - logs.job_lines
    else:
        if summary.lines > MAX_TEXT_LINES:
            end = _end_of_line(text, MAX_TEXT_LINES)
            unplaced.count += summary.lines - MAX_TEXT_LINES
            summary.notes.append(f"more than {MAX_TEXT_LINES:,} lines; of the rest only the log lines were read")
            text = text[:end]
        for fragment, rest in _blocks(name, text):
            if fragment is not None:
                fragments += [fragment, *fragment.more]
                summary.notes += fragment.notes
                rest = fragment.unplaced
                if fragment.source.tool and fragment.source.tool not in summary.tools:
                    summary.tools.append(fragment.source.tool)
            for number, line in rest:
                unplaced.add(number, line, event_lines=event_lines)
    is_kernel_log = bool(unplaced.kernel_lines or logs.kernel.events or logs.kernel.facts)
    fragments += logs.fragments(summary, is_kernel_log=is_kernel_log)
    summary.unrecognised_lines = unplaced.count
    summary.unrecognised_sample = unplaced.sample
    if not summary.tools and not summary.notes and not summary.unrecognised_lines and not unplaced.kernel_lines and text.strip():
        summary.notes.append("command lines without output")
    return fragments, summary


_WRITTEN = re.compile(r"\S[^\n]*")


def _written(text: str, start: int, end: int, number: int) -> Iterator[tuple[int, str]]:
    """(line number, text) of each line that is not blank; ``number`` is that of the line at ``start``. Never all at once."""
    for match in _WRITTEN.finditer(text, start, end):
        number += text.count("\n", start, match.start())
        start = match.start()
        yield number, text[text.rfind("\n", 0, start) + 1 : match.end()].rstrip("\r")


def _blocks(name: str, text: str) -> Iterator[tuple[Fragment | None, Iterable[tuple[int, str]]]]:
    number = 1
    counted = 0
    for piece in _pieces(text):
        number += text.count("\n", counted, piece.start)
        counted = piece.start
        if piece.capture is None:
            if piece.command == "stderr":
                continue  # what a collected tool said beside its output; log lines in it are found by the scan of the whole text
            yield None, _written(text, piece.start, piece.end, number)
            continue
        lines = text[piece.start : piece.end].split("\n", MAX_LINES)
        rest = lines.pop() if len(lines) > MAX_LINES or lines[-1] == "" else ""
        lines = [line.rstrip("\r") for line in lines]
        source = Source(name=name, tool=piece.capture.tool, command=piece.command, node=piece.node)
        fragment = Fragment(source)
        for at, line in enumerate(lines):
            if is_absurd(line):
                fragment.unparsed(number + at, line)
                lines[at] = ""
        _parse(piece.capture, Block(source=source, lines=lines, first_line=number), fragment)
        if rest:
            fragment.note(f"{piece.capture.tool}: more than {MAX_LINES:,} lines; the rest was not read")
            yield None, _written(rest, 0, len(rest), number + MAX_LINES)
        yield fragment, []
