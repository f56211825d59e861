"""nvbandwidth, text and JSON (``-j``): one sample a cell of each matrix, and the sum as printed.

Cells of a device with itself (0.00) and N/A are no measurements; the tool's own "min" counts N/A as 0 and is not read. "Waived" tests were
not run. The unit stands in the description line: GB/s (1e9), or ns for latencies. NVIDIA/nvbandwidth: output.cpp, json_output.cpp.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kilter.facts.measure import DiagnosticTest, Sample
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nccl_tests import finite
from kilter.intake.fragment import Block, Fragment

TOOL = "nvbandwidth"
MAX_JSON = 16 << 20

_RUNNING = re.compile(r"\s*Running (?:multinode )?(\w{1,80})\.")
_UNIT = re.compile(r"\((GB/s|ns|us|MB/s)\)\s*$")
_SUM = re.compile(r"\s*SUM (\w{1,80}) (\S{1,40})")
_DEVICE = re.compile(r"\s*Device (\d{1,3}): (.{1,100}?)(?: \(([0-9a-fA-F:.]{7,20})\))?\s*$")
_VERSION = re.compile(r"\s*nvbandwidth Version: (\S{1,40})")
_DRIVER = re.compile(r"\s*Driver Version: (\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)")
_CUDA = re.compile(r"\s*CUDA (Runtime|Driver) Version: (\d{4,6})\s*$")
_PLAIN = re.compile(r"\s*(?:Built from Git|NOTE:|Performance can vary|MPI version|Process \d|Running (?:in|on)|\(multinode\))")
_FAILED = re.compile(r"\s*(?:\[?(?:ERROR|Error|CUDA_ERROR)\w*\]?[: ]|ERROR in running test|Invalid value when checking)")


def cuda_version(number: int) -> str:
    """12040 -> "12.4" (CUDART_VERSION: 1000 x major + 10 x minor)."""
    return f"{number // 1000}.{number % 1000 // 10}"


class _Test:
    def __init__(self, name: str) -> None:
        self.name = name
        self.unit = ""
        self.columns: list[str] = []


def _cell(fragment: Fragment, number: int, test: _Test, row: str, column: str, printed: str) -> None:
    value = finite(printed)
    if value is None or (value == 0 and row == column):
        return
    conditions = {"row": row, "column": column}
    fragment.snapshot.samples.append(
        Sample(
            metric=test.name,
            value=value,
            unit=test.unit or "GB/s",
            tool=TOOL,
            conditions=conditions,
            origin={"": fragment.ref(number)},
        )
    )


def _sum(fragment: Fragment, number: int, test: _Test, printed: str) -> None:
    value = finite(printed)
    if value is not None:
        fragment.snapshot.samples.append(
            Sample(
                metric=test.name,
                value=value,
                unit=test.unit or "GB/s",
                tool=TOOL,
                conditions={"aggregate": "sum"},
                origin={"": fragment.ref(number)},
            )
        )


def parse(block: Block, fragment: Fragment) -> None:
    """Samples named after the tests, by row and column; device names and versions where printed."""
    if any(line.lstrip().startswith(("{", '"nvbandwidth"')) for line in block.lines[:16]):
        _json(block, fragment)
        return
    test: _Test | None = None
    waived = 0
    for number, line in lines(block, fragment):
        text = line.strip()
        if not text or _PLAIN.match(line):
            continue
        if found := _RUNNING.match(line):
            test = _Test(found.group(1))
        elif found := _SUM.match(line):
            _sum(fragment, number, test if test and test.name == found.group(1) else _Test(found.group(1)), found.group(2))
        elif text.startswith("Waived"):
            waived += 1
        elif test is not None and (found := _UNIT.search(text)):
            test.unit = found.group(1)
        elif test is not None and re.fullmatch(r"[\d.\sN/Ae+-]{1,4096}", text):
            tokens = text.split()
            if all(token.isdecimal() for token in tokens) and (not test.columns or tokens == test.columns):
                test.columns = tokens
            elif tokens[0].isdecimal() and test.columns and len(tokens) - 1 <= len(test.columns):
                for column, printed in zip(test.columns, tokens[1:], strict=False):
                    _cell(fragment, number, test, tokens[0], column, printed)
            else:
                fragment.unparsed(number, line)
        elif not _about(fragment, number, line):
            if _FAILED.match(line):
                fragment.note(f"nvbandwidth reports an error: {text[:120]}")
                _failed(fragment, number, test.name if test else "nvbandwidth", text)
            else:
                fragment.unparsed(number, line)
    if waived:
        fragment.note(f"{waived} nvbandwidth tests waived by the tool: not run on this machine")


def _failed(fragment: Fragment, number: int, name: str, text: str) -> None:
    if fragment.snapshot.diagnostics is None:
        fragment.snapshot.diagnostics = []
    fragment.snapshot.diagnostics.append(
        DiagnosticTest(tool=TOOL, name=name, result="fail", message=text[:300], origin={"": fragment.ref(number)})
    )


def _about(fragment: Fragment, number: int, line: str) -> bool:
    """Versions and devices."""
    software = fragment.snapshot.software
    if found := _VERSION.match(line):
        fragment.source.version = found.group(1).lstrip("v")
    elif found := _DRIVER.match(line):
        software.put("driver_version", found.group(1), fragment.ref(number))
    elif found := _CUDA.match(line):
        if found.group(1) == "Driver":
            software.put("cuda_driver_version", cuda_version(int(found.group(2))), fragment.ref(number))
    elif found := _DEVICE.match(line):
        gpu = fragment.accelerator(number)
        gpu.put("index", int(found.group(1)), fragment.ref(number))
        gpu.put("name", found.group(2), fragment.ref(number))
        if found.group(3):
            from kilter.facts.pci import pci_address

            gpu.put("pci_address", pci_address(found.group(3)), fragment.ref(number))
    else:
        return False
    return True


def _document(block: Block) -> tuple[Any, int]:
    """The JSON object between other messages, and the line it starts on."""
    decoder = json.JSONDecoder()
    text = "\n".join(block.lines)[:MAX_JSON]
    tries = 0
    for match in re.finditer(r"^[ \t]*\{", text, re.M):
        tries += 1
        if tries > 16:
            break
        try:
            content, _ = decoder.raw_decode(text, match.end() - 1)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict) and isinstance(content.get("nvbandwidth"), dict):
            return content, block.first_line + text.count("\n", 0, match.start())
    return None, block.first_line


def _json(block: Block, fragment: Fragment) -> None:
    content, first = _document(block)
    if content is None:
        fragment.note("nvbandwidth JSON that cannot be read: cut short or damaged")
        for number, line in block.numbered():
            fragment.unparsed(number, line[:200])
        return
    root = content["nvbandwidth"]
    if isinstance(driver := root.get("Driver Version"), str):
        fragment.snapshot.software.put("driver_version", driver, fragment.ref(first))
    if isinstance(root.get("git_version"), str) and root["git_version"]:
        fragment.source.version = root["git_version"].lstrip("v")
    waived = 0
    for case in root.get("testcases") or []:
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            continue
        test = _Test(case["name"][:80])
        status = str(case.get("status", ""))
        if found := _UNIT.search(str(case.get("bandwidth_description", "")).strip()[:200]):
            test.unit = found.group(1)
        waived += status == "Waived"
        if status in ("Error", "Failed"):
            _failed(fragment, first, test.name, str(case.get("error", status)))
        matrix = case.get("bandwidth_matrix")
        for row, cells in enumerate(matrix if isinstance(matrix, list) else []):
            for column, printed in enumerate(cells if isinstance(cells, list) else []):
                _cell(fragment, first, test, str(row), str(column), str(printed))
        if case.get("sum") is not None:
            _sum(fragment, first, test, str(case["sum"]))
    error = root.get("error") or content.get("error")
    if isinstance(error, str) and error:
        _failed(fragment, first, "nvbandwidth", error)
    if waived:
        fragment.note(f"{waived} nvbandwidth tests waived by the tool: not run on this machine")
