"""``dcgmi diag``, ``dcgmi health``, ``dcgmi discovery -l`` (tables and JSON), and health lines of the DCGM host engine's log.

Layouts are those that DCGM 2 to 4 print (NVIDIA/DCGM dcgmi/Diag.cpp, Health.cpp, DcgmiOutput.cpp and their tests). Up to 3.x a row of the
diagnostic names the GPUs of each result ("Pass - GPUs: 0, 2"); 4.x prints the result of the test and below it one line an entity
("GPU0: Pass"). Messages are cut into cells of 45 characters in the middle of words. "Successfully ran diagnostic" says only that the run
ended, so it is no result.
"""

from __future__ import annotations

import re
from typing import Any

from kilter.facts.base import Reason
from kilter.facts.host import Service
from kilter.facts.measure import DiagnosticTest
from kilter.facts.pci import pci_address
from kilter.intake.captures import bounded
from kilter.intake.fragment import Block, Fragment

_DIAG, _HEALTH = "dcgmi diag", "dcgmi health"
#: Name of DCGM in ``Software.services``.
SERVICE = "nvidia-dcgm"

_RULER = re.compile(r"[|+][-=+|\s]*$")
_SECTION = re.compile(r"[|+]-----  +[A-Za-z]")
_RESULT = re.compile(r"(Pass|Fail|Warn|Skip|Not Run|Error)(?:ed|ped|ing)?\b\s*(?:-\s*(All|GPUs?:? *[\d, ]+))?", re.I)
_ENTITY_RESULT = re.compile(r"([A-Za-z][A-Za-z ]*?) ?(\d+): *(\w[\w ]*)?$")
_ENTITY = re.compile(r"([A-Za-z]+) ?(\d+)$")
_GPU_OF_TEXT = re.compile(r"\bGPU (\d{1,4})\b")
_FOUND = re.compile(r"(\d{1,5}) (\w{1,30}?)s? found\b")
_HEALTH_LOG = re.compile(r"\[\[Health\]\] Detected an? (\w+) in health system (\w[\w ]*): '(.*)'?\s*$")
_ERROR = re.compile(r"Error: (.+)")
_WORDS = {"warning": "warn", "failure": "fail", "healthy": "pass", "skipped": "skip"}
#: Characters of a message in one cell of the diagnostic's table (DATA_INFO_TAG_LEN of Diag.cpp).
_CELL = 45
_METADATA = {"DCGM Version", "Driver Version Detected", "EUD Test Version", "CPU EUD Test Version", "Number of CPUs Detected"}
MAX_JSON = 16 << 20


def _word(text: str) -> str:
    """pass, fail, warn, skip; another word as printed."""
    word = text.strip()
    low = word.lower()
    return _WORDS.get(low) or (low if low in ("pass", "fail", "warn", "skip") else word)


class _Diag:
    """Rows of one diagnostic table."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.summary: DiagnosticTest | None = None
        self.results: list[DiagnosticTest] = []  # of the current test, one an entity
        self.message: list[str] = []
        self.message_for = ""
        self.is_info = False
        self.done: list[DiagnosticTest] = []

    def add(self, name: str, result: str, device: str, line: int) -> DiagnosticTest:
        return DiagnosticTest(tool=_DIAG, name=name, result=result, device=device, origin={"": self.fragment.ref(line)})

    def row(self, name: str, cell: str, raw: str, line: int) -> bool:
        """One table row; ``raw`` is the second cell with its spaces."""
        if not name:
            return self.continued(cell, raw, line)
        self.end_message()
        kind, _, entity = name.partition(":")
        if kind in ("Warning", "Info", "Error"):
            self.is_info = kind == "Info"
            self.message_for = _device(entity.strip())
            self.message = [_cell(raw)]
            return self.summary is not None or bool(self.results)
        if name in _METADATA or name.endswith("IDs Detected"):
            self.metadata(name, cell, line)
            return True
        self.end_test()
        return self.result(name, cell, line)

    def metadata(self, name: str, cell: str, line: int) -> None:
        if name == "DCGM Version":
            _version(self.fragment, cell, line)
        elif name == "Driver Version Detected" and re.match(r"\d", cell):
            self.fragment.snapshot.software.put("driver_version", cell, self.fragment.ref(line))

    def result(self, name: str, cell: str, line: int) -> bool:
        match = _RESULT.match(cell)
        if match is None:
            self.summary = self.add(name, cell or "not printed", "", line)
            return bool(cell)
        where = match[2] or ""
        numbers = re.findall(r"\d+", where)
        if numbers:
            self.results += [self.add(name, _word(match[1]), f"GPU {number}", line) for number in numbers]
        elif self.summary is None:
            self.summary = self.add(name, _word(match[1]), "", line)
        return True

    def continued(self, cell: str, raw: str, line: int) -> bool:
        """A row without a name: another result of the test, or more of its message."""
        current = self.summary or (self.results[0] if self.results else None)
        entity = _ENTITY_RESULT.match(cell)
        if entity is not None and current is not None and (entity[3] is None or _RESULT.match(entity[3])):
            self.end_message()
            # An entity's warning is printed as "Fail"; only the test's own row tells the two apart (HelperDisplayDiagResult).
            word = _word(entity[3] or "")
            if self.summary is not None and self.summary.result == "warn" and word == "fail":
                word = "warn"
            self.results.append(self.add(current.name, word or "not run", f"{entity[1]} {entity[2]}", line))
            return True
        if current is not None and re.match(r"(?:Pass|Fail|Warn|Skip) - ", cell):
            self.end_message()
            return self.result(current.name, cell, line)
        if self.message:
            self.message.append(_cell(raw))
            return True
        return not cell

    def end_message(self) -> None:
        text = " ".join("".join(self.message).split())
        device = self.message_for
        self.message, self.message_for = [], ""
        tests = [*self.results, *([self.summary] if self.summary is not None else [])]
        if not text or not tests:
            return
        if not device and (match := _GPU_OF_TEXT.search(text)) is not None:
            device = f"GPU {match[1]}"
        bad = [test for test in tests if test.result not in ("pass", "skip")]
        chosen = [test for test in tests if test.device == device] if device else []
        for test in chosen or ([] if self.is_info else bad) or tests[-1:]:
            test.message = f"{test.message}; {text}" if test.message else text

    def end_test(self) -> None:
        self.end_message()
        summary = self.summary
        same = summary is not None and any(test.result == summary.result for test in self.results)
        if summary is not None and not same:
            self.done.append(summary)
        elif summary is not None and summary.message:
            for test in self.results:
                test.message = test.message or (summary.message if test.result == summary.result else None)
        self.done += self.results
        self.summary, self.results = None, []


def _cell(raw: str) -> str:
    """The text of a message's cell as it was before it was cut: 45 characters, of which the last may be a space."""
    text = raw[1:] if raw.startswith(" ") else raw
    return text[:_CELL] if len(text) >= _CELL else text.rstrip() + " "


def _device(text: str) -> str:
    match = _ENTITY.match(text)
    return f"{match[1]} {match[2]}" if match else text


def _version(fragment: Fragment, version: str, line: int) -> None:
    if re.match(r"\d", version):
        fragment.source.version = fragment.source.version or version
        service = fragment.snapshot.software.services.setdefault(SERVICE, Service(name=SERVICE))
        service.put("version", version, fragment.ref(line))


class _Health:
    """Rows of ``dcgmi health -c``: a tree of entity group, entity, "Errors", system."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.group = ""
        self.entity = ""
        self.tests: list[DiagnosticTest] = []
        self.open: DiagnosticTest | None = None

    def row(self, left: str, right: str, line: int) -> bool:
        name = left.strip().removeprefix("->").strip()
        depth = (len(left) - len(left.lstrip())) // 3 if "->" in left else -1
        if not name:
            if self.open is not None and right:
                self.open.message = f"{self.open.message} {right}" if self.open.message else right
                return True
            return not right
        self.open = None
        if name.startswith("Overall Health"):
            self.add("Overall Health", right or name.partition(":")[2], "", line)
        elif depth < 0:
            self.group, self.entity = name, ""
            return not right
        elif name.isdecimal():
            self.entity = name
        elif name != "Errors":
            self.open = self.add(name, right, f"{self.group} {self.entity}".strip(), line)
        return True

    def add(self, name: str, result: str, device: str, line: int) -> DiagnosticTest:
        test = DiagnosticTest(tool=_HEALTH, name=name, result=_word(result), device=device, origin={"": self.fragment.ref(line)})
        self.tests.append(test)
        return test


class _Text:
    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.table = ""  # diag, health, discovery
        self.diag = _Diag(fragment)
        self.health = _Health(fragment)
        self.attached: int | None = None
        self.listed = 0
        self.closed = True

    def line(self, number: int, text: str) -> bool:
        body = text.strip()
        if body.startswith("Successfully ran diagnostic"):
            self.table = self.table or "diag"
            return True
        if _RULER.match(body):
            self.closed = self.table != "" and body.startswith("+-")
            return True
        if _SECTION.match(body) is not None:
            self.diag.end_test()
            self.table, self.closed = "diag", False
            return True
        if not body.startswith("|"):
            return self.plain(number, body)
        cells = body.removesuffix("|")[1:].split("|")
        if len(cells) == 1:
            title = cells[0].strip()
            if title.startswith("Overall Health"):  # DCGM 1 and 2: "Overall Health: Healthy"
                return self.health.row(title, "", number)
            if title == "Health Monitor Report":
                self.table = "health"
            return title in ("Health Monitor Report", "Switch ID", "")
        if len(cells) != 2:
            return False
        left, right = cells
        head = (left.strip(), right.strip())
        if head == ("Diagnostic", "Result"):
            self.diag.end_test()
            self.table, self.closed = "diag", False
            return True
        if head[1] == "Device Information":
            self.table = "discovery" if head[0] == "GPU ID" else "other"
            return True
        if self.table == "health":
            return self.health.row(left[1:] if left.startswith(" ") else left, head[1], number)
        if self.table == "discovery":
            return self.discovered(head[0], head[1], number)
        if self.table == "other":
            return False
        self.table, self.closed = "diag", False
        return self.diag.row(head[0], head[1], right, number)

    def discovered(self, index: str, text: str, line: int) -> bool:
        ref = self.fragment.ref(line)
        if re.fullmatch(r"[0-9]{1,4}", index):
            self.fragment.accelerator(line).put("index", int(index), ref)
            self.listed += 1
        gpus = self.fragment.snapshot.accelerators
        key, _, value = text.partition(":")
        value = value.strip()
        if not gpus or not value:
            return False
        field = {"Name": "name", "PCI Bus ID": "pci_address", "Device UUID": "uuid"}.get(key.strip())
        if field is None:
            return False
        if value.startswith("<<<") or value in ("Not Specified", "Not Found", "Not Supported", "Insf. Permission"):
            gpus[-1].lacks(field, Reason.NOT_READABLE, f"dcgmi prints {value!r}")
        else:
            gpus[-1].put(field, pci_address(value) if field == "pci_address" else value, ref)
        return True

    def plain(self, number: int, body: str) -> bool:
        if (found := _FOUND.match(body)) is not None:
            if found[2].upper() == "GPU":
                self.attached = int(found[1])
                self.fragment.snapshot.put("accelerators_attached", self.attached, self.fragment.ref(number))
                if self.fragment.snapshot.accelerators is None:
                    self.fragment.snapshot.accelerators = []
            self.table = "other"
            return True
        if (log := _HEALTH_LOG.search(body)) is not None:
            test = self.health.add(f"{log[2]} system", log[1], "", number)
            test.message = log[3].rstrip("'")
            if (gpu := _GPU_OF_TEXT.search(log[3])) is not None:
                test.device = f"GPU {gpu[1]}"
            return True
        if (error := _ERROR.match(body)) is not None:
            tool = _HEALTH if "health" in body.lower() else _DIAG
            self.fragment.note(f"{tool} did not run: {error[1][:200]}")
            test = DiagnosticTest(tool=tool, name="run", result="not run", message=error[1][:500])
            test.origin[""] = self.fragment.ref(number)
            self.health.tests.append(test)
            return True
        return False

    def finish(self) -> None:
        self.diag.end_test()
        if self.table == "diag" and not self.closed:
            self.fragment.note("the table of dcgmi diag is cut short; tests after the cut are not known")
        if self.attached is not None and self.listed < self.attached and self.table == "discovery":
            self.fragment.note(f"dcgmi discovery: {self.attached} GPUs found, {self.listed} in the text")


def _texts(value: object) -> list[tuple[str, str]]:
    """(message, code) of the "warnings" or "info" of a JSON result, in any of their shapes."""
    found: list[tuple[str, str]] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            found.append((item, ""))
        elif isinstance(item, dict):
            text = item.get("warning", item.get("warnings"))
            if isinstance(text, str):
                code = item.get("error_id", item.get("error_code", ""))
                found.append((text, str(code) if isinstance(code, (int, str)) else ""))
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _json_result(
    name: str, result: dict[str, Any], fragment: Fragment, line: int, *, device: str | None = None
) -> list[DiagnosticTest]:
    status = result.get("status")
    if not isinstance(status, str):
        return []
    if device is not None:
        devices = [device]
    elif "entity_id" in result:
        devices = [f"{result.get('entity_group') or 'entity'} {result['entity_id']}"]
    else:  # 3.x: "gpu_ids": "0" or "0,1,2", "gpu_id": 0
        devices = [f"GPU {n}" for n in re.findall(r"\d+", str(result.get("gpu_ids", result.get("gpu_id", ""))))] or [""]
    warnings, info = _texts(result.get("warnings")), _texts(result.get("info"))
    message = "; ".join(text for text, _ in warnings or info) or None
    code = next((code for _, code in warnings if code), None)
    return [
        DiagnosticTest(
            tool=_DIAG, name=name, result=_word(status), device=one, message=message, code=code, origin={"": fragment.ref(line)}
        )
        for one in devices
    ]


def _json_diag(root: dict[str, Any], report: dict[str, Any], lines: dict[str, int], fragment: Fragment, first: int) -> None:
    metadata = root.get("metadata")
    about: dict[str, Any] = {**(metadata if isinstance(metadata, dict) else {}), **report}
    for key, value in about.items():
        word = key.lower()
        if isinstance(value, str) and word in ("version", "dcgm_version", "dcgm version"):
            _version(fragment, value, lines.get(key, first))
        elif isinstance(value, str) and word.startswith("driver") and "version" in word and re.match(r"\d", value):
            fragment.snapshot.software.put("driver_version", value, fragment.ref(lines.get(key, first)))
    error = report.get("runtime_error")
    tests: list[DiagnosticTest] = []
    if isinstance(error, str):
        tests.append(
            DiagnosticTest(tool=_DIAG, name="run", result="not run", message=error[:500], origin={"": fragment.ref(first)})
        )
    for category in _list(report.get("test_categories")):
        for test in _list(category.get("tests") if isinstance(category, dict) else None):
            name = test.get("name") if isinstance(test, dict) else None
            if not isinstance(name, str):
                continue
            line = lines.get(name, first)
            found = [t for r in _list(test.get("results")) if isinstance(r, dict) for t in _json_result(name, r, fragment, line)]
            summary = test.get("test_summary")
            if isinstance(summary, dict) and not any(t.result == _word(str(summary.get("status"))) for t in found):
                found += _json_result(name, summary, fragment, line, device="")
            tests += found
    _keep(fragment, tests)


def _json_health(body: dict[str, Any], fragment: Fragment, first: int) -> None:
    health = _Health(fragment)

    def children(node: object) -> dict[str, Any]:
        inner = node.get("children") if isinstance(node, dict) else None
        return inner if isinstance(inner, dict) else {}

    def value(node: object) -> str:
        word = node.get("value") if isinstance(node, dict) else None
        return word if isinstance(word, str) else ""

    for group, node in body.items():
        if group == "Overall Health":
            health.add(group, value(node), "", first)
        for entity, below in children(node).items():
            for system, state in children(children(below).get("Errors")).items():
                test = health.add(system, value(state), f"{group} {entity}", first)
                overflow = state.get("overflow") if isinstance(state, dict) else None
                parts = [part if isinstance(part, str) else value(part) for part in _list(overflow)]
                test.message = " ".join(part for part in parts if part) or None
    _keep(fragment, health.tests)


def _keep(fragment: Fragment, tests: list[DiagnosticTest]) -> None:
    if tests:
        fragment.snapshot.diagnostics = [*(fragment.snapshot.diagnostics or []), *tests]


def _json(block: Block, fragment: Fragment) -> None:
    text = "\n".join(block.lines)
    if len(text) > MAX_JSON:
        fragment.note("JSON of dcgmi is larger than 16 MiB and was not read")
        return
    try:
        import json

        start = text.index("{")
        root, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        fragment.note(f"JSON of dcgmi is cut or broken ({str(error)[:100]}); nothing of it was read")
        for number, line in block.numbered():
            fragment.unparsed(number, line[:200])
        return
    first = block.first_line + text.count("\n", 0, start)
    lines: dict[str, int] = {}
    for number, line in block.numbered():
        for match in re.finditer(r'"([^"]{1,60})"', line[:4096]):
            lines.setdefault(match[1], number)
    report = root.get("DCGM Diagnostic", root.get("DCGM GPU Diagnostic")) if isinstance(root, dict) else None
    if isinstance(report, dict):
        _json_diag(root, report, lines, fragment, first)
    elif isinstance(root, dict) and isinstance(root.get("body"), dict):
        _json_health(root["body"], fragment, first)
    last = block.first_line + text.count("\n", 0, end)
    for number, line in block.numbered():
        if number > last or number < first:
            fragment.unparsed(number, line[:200])


_VERSION_LINE = re.compile(r"version ?: (\d+(?:\.\d+)+)$", re.I)


def _versions(block: Block, fragment: Fragment) -> None:
    """``version: 3.3.5``; older ones print "Version : 2.4.6" and lines about the build."""
    for number, text in bounded.lines(block, fragment):
        if (match := _VERSION_LINE.match(text.strip())) is not None:
            _version(fragment, match[1], number)
        elif text.strip() and not re.match(r"[A-Z][A-Za-z ]{1,20} ?: ", text.strip()):
            fragment.unparsed(number, text)


def parse(block: Block, fragment: Fragment) -> None:
    """Results into ``snapshot.diagnostics``, GPUs of ``discovery`` into ``snapshot.accelerators``."""
    opening = next((line.strip() for line in block.lines if line.strip()), "")
    if block.source.tool == "dcgmi --version":
        _versions(block, fragment)
        return
    if opening.startswith("{"):
        _json(block, fragment)
        return
    reader = _Text(fragment)
    for number, text in bounded.lines(block, fragment):
        if text.strip() and not reader.line(number, text):
            fragment.unparsed(number, text)
    reader.finish()
    _keep(fragment, [*reader.diag.done, *reader.health.tests])
