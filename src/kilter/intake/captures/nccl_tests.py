"""nccl-tests (``all_reduce_perf`` and its sisters): the table of every version, behind launchers' tags, and the JSON file (``-J``).

Columns are read from the right by the header's own words, since ``redop`` and ``root`` are blank for some operations and absent in old
versions, and ``-I`` adds columns. ``N/A`` under ``#wrong`` means that validation was off: no value, not "none wrong".
algbw and busbw are GB/s (1e9). NVIDIA/nccl-tests: src/common.cu, src/util.cu, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from kilter.facts.event import Event
from kilter.facts.measure import Sample
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

TOOL = "nccl-tests"

_TAG = re.compile(
    r"^\s*(?:\[\d{1,5},\d{1,7}\](?:<std(?:out|err)>)?:?|\d{1,7}:|\[?[A-Za-z][\w.-]{0,100}\]?: ?(?=#|\s*\d{1,20}\s+\d{1,20}\s)) ?"
)
_OPERATION = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf\b"
)
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d{1,5}\s+)?Pid\s+(\d{1,10})\s+on\s+(\S{1,255})\s+device\s+(\d{1,4})\s+\[([^\]]{1,40})\]\s*(.{0,120})"
)
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S{1,40})")
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(-?\d{1,18})\s*(\w{0,20})")
_FAILURE = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}): Test (?P<what>NCCL|CUDA) failure (?P<where>\S{1,80}) '(?P<text>[^'\n]{0,200})'?"
)
_FAILURE_TAIL = re.compile(r"\.\. [\w.-]{1,255} pid \d{1,10}: Test failure")
_VERSION = re.compile(r"#\s*nccl-tests version (\S{1,40})(?:.*?nccl-library=(\d{1,9}))?")
_SETTINGS = re.compile(r"#\s*nThread \d")

#: Largest deviation that the old "error" column may show (DeltaMaxValue in common.cu of nccl-tests before 2.13).
MAX_DELTA = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}


def finite(text: str) -> float | None:
    """A number as printed; None for N/A, nan, inf and everything else."""
    if len(text) > 40:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class _Table:
    """One run: its header's words, ranks and rows."""

    def __init__(self, fragment: Fragment, operation: str) -> None:
        self.fragment = fragment
        self.operation = operation
        self.words: list[str] = []
        self.ranks: set[int] = set()
        self.rows = 0
        self.elided = False
        self.ended = False

    def header(self, words: list[str]) -> None:
        self.words = words

    @property
    def places(self) -> list[tuple[str, list[str]]]:
        """(place, words of its columns), in the order of the columns."""
        starts = [i for i, word in enumerate(self.words) if word in ("time", "cputime")]
        names = ("out", "in") if len(starts) == 2 else ("out",)
        ends = [*starts[1:], len(self.words)]
        return [(name, self.words[start:end]) for name, start, end in zip(names, starts, ends, strict=False)]

    def conditions(self, size: str) -> dict[str, str]:
        found = {"size_bytes": size}
        if self.operation:
            found["operation"] = self.operation
        if self.ranks:
            found["ranks"] = str(max(self.ranks) + 1)
        return found

    def row(self, number: int, tokens: list[str]) -> bool:
        places = self.places or [("out", ["time", "algbw", "busbw", "#wrong"]), ("in", ["time", "algbw", "busbw", "#wrong"])]
        width = sum(len(words) for _, words in places)
        left = tokens[: len(tokens) - width]
        if not 2 <= len(left) <= 6 or not left[0].isdecimal() or not left[1].isdecimal() or len(left[0]) > 18:
            return False
        conditions = self.conditions(left[0])
        names = [token for token in left[2:] if not token.lstrip("-").isdecimal()]
        if names:
            conditions["dtype"] = names[0]
        if len(names) > 1:
            conditions["redop"] = names[1]
        at = len(left)
        rows: list[Sample] = []
        for place, words in places:
            cells = dict(zip(words, tokens[at : at + len(words)], strict=False))
            at += len(words)
            rows += self._place(number, place, cells, conditions)
        if not rows:
            return False
        self.rows += 1
        self.fragment.snapshot.samples += rows
        return True

    def _place(self, number: int, place: str, cells: dict[str, str], conditions: dict[str, str]) -> list[Sample]:
        found = {**conditions, "place": place}
        wrong = finite(cells.get("#wrong", ""))
        error = finite(cells.get("error", ""))
        samples = []
        for word, metric, unit in (
            ("busbw", "busbw", "GB/s"),
            ("algbw", "algbw", "GB/s"),
            ("time", "time", "us"),
            ("cputime", "cpu_time", "us"),
        ):
            value = finite(cells.get(word, ""))
            if value is not None:
                samples.append(self._sample(number, metric, value, unit, found))
        if wrong is not None:
            samples.append(self._sample(number, "wrong", wrong, "values", found))
        elif error is not None:
            limit = MAX_DELTA.get(found.get("dtype", ""), 0.0)
            samples.append(self._sample(number, "max_error", error, "absolute", {**found, "limit": f"{limit:g}"}))
        return samples

    def _sample(self, number: int, metric: str, value: float, unit: str, conditions: dict[str, str]) -> Sample:
        return Sample(
            metric=metric, value=value, unit=unit, tool=TOOL, conditions=conditions, origin={"": self.fragment.ref(number)}
        )

    def close(self) -> None:
        if self.rows and not self.ended:
            self.fragment.note(f"nccl-tests table of {self.rows} rows has no closing line: cut short, or the run failed")
        if self.elided:
            self.fragment.note("rows of the nccl-tests table were left out; the printed average covers rows that are not here")


def _header(text: str) -> list[str] | None:
    words = text.lstrip("# \t").split()
    return words if words[:2] == ["size", "count"] and "busbw" in words else None


def parse(block: Block, fragment: Fragment) -> None:
    """Samples busbw, algbw (GB/s), time (us), wrong or max_error a row and place; average_busbw; out_of_bounds."""
    if block.lines and block.lines[0].lstrip().startswith("{"):
        _json(block, fragment)
        return
    match = _OPERATION.search(block.source.command)
    table = _Table(fragment, match.group(1) if match else "")
    for number, line in lines(block, fragment):
        text = line
        if tag := _TAG.match(line):
            text = line[tag.end() :]
        stripped = text.strip()
        if not stripped or "NCCL INFO" in text or "NCCL WARN" in text:
            continue
        if not stripped.startswith("#"):
            tokens = stripped.split()
            if tokens[0].isdecimal() and table.row(number, tokens):
                continue
            if found := _FAILURE.search(line):
                _failed(fragment, number, found)
                table.ended = True
            elif stripped in ("...", "…"):
                table.elided = True
            elif _FAILURE_TAIL.search(line):
                pass
            elif match := _OPERATION.search(stripped):
                table.close()
                table = _Table(fragment, match.group(1))
            else:
                fragment.unparsed(number, line)
            continue
        table = _comment(number, stripped, table, fragment)
    table.close()


def _comment(number: int, text: str, table: _Table, fragment: Fragment) -> _Table:
    """A line that starts with ``#``; a new run starts a new table."""
    words = _header(text)
    if words is not None:
        table.header(words)
    elif found := _RANK.match(text):
        if table.rows:
            table.close()
            table = _Table(fragment, table.operation)
        table.ranks.add(int(found.group(1)))
    elif found := _AVERAGE.match(text):
        value = finite(found.group(1))
        if value is not None:
            conditions = {**table.conditions(""), "rows": str(table.rows)}
            conditions.pop("size_bytes")
            fragment.snapshot.samples.append(table._sample(number, "average_busbw", value, "GB/s", conditions))
        table.ended = True
    elif found := _BOUNDS.match(text):
        conditions = {**table.conditions(""), "verdict": found.group(2)}
        conditions.pop("size_bytes")
        fragment.snapshot.samples.append(table._sample(number, "out_of_bounds", float(found.group(1)), "values", conditions))
    elif match := _OPERATION.search(text):
        if table.rows:
            table.close()
            table = _Table(fragment, match.group(1))
        table.operation = match.group(1)
    elif _SETTINGS.match(text) and table.rows:
        table.close()
        table = _Table(fragment, table.operation if not table.ended else "")
    elif (found := _VERSION.match(text)) and not fragment.source.version:
        fragment.source.version = found.group(1)
    return table


def _failed(fragment: Fragment, number: int, found: re.Match[str]) -> None:
    fragment.events.append(
        Event(
            kind="job.test_failed",
            text=f"{found.group('what')} failure at {found.group('where')}: {found.group('text').strip(' /')}",
            node=found.group("host"),
            source=fragment.source.name,
            line=number,
            fields={"tool": TOOL},
        )
    )


def _json(block: Block, fragment: Fragment) -> None:
    """``-J`` files, JSON_FILE_VERSION 3. The dump of the whole environment in it is not read."""
    try:
        content: Any = msgspec.json.decode("\n".join(block.lines).encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        fragment.note(f"nccl-tests JSON that cannot be read: {error}")
        for number, line in block.numbered():
            fragment.unparsed(number, line[:200])
        return
    if not isinstance(content, dict) or not isinstance(content.get("results"), list):
        fragment.note("JSON without nccl-tests results")
        return
    match = _OPERATION.search(" ".join(str(a) for a in content.get("args") or [])[:4096]) or _OPERATION.search(
        block.source.command
    )
    table = _Table(fragment, match.group(1) if match else "")
    config = content.get("config")
    devices = config.get("devices") if isinstance(config, dict) else None
    table.ranks = {d["rank"] for d in devices or [] if isinstance(d, dict) and isinstance(d.get("rank"), int)}
    first = block.first_line
    for result in content["results"]:
        if not isinstance(result, dict):
            continue
        conditions = table.conditions(str(result.get("size", "")))
        conditions.update({name: str(result[key]) for name, key in (("dtype", "type"), ("redop", "redop")) if result.get(key)})
        for place, key in (("out", "out_of_place"), ("in", "in_place")):
            cells = result.get(key)
            if isinstance(cells, dict):
                printed = {
                    "time": cells.get("time"),
                    "cputime": cells.get("cpu_time"),
                    "algbw": cells.get("alg_bw"),
                    "busbw": cells.get("bus_bw"),
                    "#wrong": cells.get("nwrong"),
                }
                fragment.snapshot.samples += table._place(
                    first, place, {k: str(v) for k, v in printed.items() if v is not None}, conditions
                )
    average = finite(str(content.get("average_bus_bandwidth", "")))
    if average is not None:
        rest = {**table.conditions(""), "rows": str(len(content["results"]))}
        rest.pop("size_bytes")
        fragment.snapshot.samples.append(table._sample(first, "average_busbw", average, "GB/s", rest))
