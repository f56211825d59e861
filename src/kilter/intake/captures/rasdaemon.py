"""rasdaemon: ``ras-mc-ctl --summary|--errors|--error-count`` and the daemon's log lines.

Events have the kinds of the kernel log (``edac``, ``aer``, ``machine_check``), so that the same rules judge them. Summaries carry counts without
a time. Formats: mchehab/rasdaemon util/ras-mc-ctl.in and ras-*-handler.c; log lines from the linux-edac list; the summary of version 1.0 from its
util/ras_db.py.
"""

from __future__ import annotations

import re

from kilter.facts.event import Clock, Event
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.log_time import read_stamp
from kilter.intake.fragment import Block, Fragment
from kilter.intake.ras_once import READER
from kilter.knowledge.machine_check import machine_check_fields

_SECTION = re.compile(
    r"(?P<name>Memory controller|PCIe AER|MCE|Extlog|ARM processor|Devlink|devlink|Disk|Memory failure|CXL[\w ]*|Signal)"
    r" (?:events|errors|records)(?: summary)?:\s*$"
)
_NONE = re.compile(r"No [\w ]+ (?:errors|events)\.?\s*$")
_MEMORY_SUM = re.compile(
    r"(?P<type>[\w ()-]+?) on DIMM Label\(s\): '(?P<label>[^']*)' location: (?P<at>\S+) errors: (?P<count>\d{1,12})"
)
_COUNT_FIRST = re.compile(r"(?P<count>\d{1,12}) (?P<type>.+?)(?: errors?)?(?:: (?P<message>.*))?$")
_ROW = re.compile(r"\d+ (?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [+-]\d{4})?) (?P<rest>.*)$")
_MEMORY = re.compile(
    r"(?P<count>\d{1,9}) (?P<type>Corrected|Uncorrected|Fatal|Deferred|Info)\w* error\(?s?\)?: ?(?P<what>.*?)(?: (?:at|on) (?P<label>.+?))?"
    r"(?: (?:location:|\(mc:).*)?$"
)
_PCI = re.compile(r"(?<![0-9a-f:])(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![0-9a-f])", re.I)
_SEVERITY = re.compile(r"(Uncorrected|Uncorrectable|Corrected|Correctable)(?: \((Non-Fatal|Fatal)\))?|\b(Fatal)\b", re.I)
_LOG = re.compile(
    r"(?P<kind>mc_event|aer_event|mce_record|extlog_mem_event|arm_event):\s+(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [+-]\d{4})?) (?P<rest>.*)$"
)
#: What the daemon says of itself.
_CHATTER = re.compile(r"(?:.{0,300}\s)?rasdaemon(?:\[\d+\])?: |overriding event \(\d{1,6}\) |Calling ras_\w+|ras-mc-ctl: ")
_LABELS = re.compile(r"Label\s+CE\s+UE\s*$")
_LABEL_ROW = re.compile(r"(?P<label>\S.*?)\s+(?P<ce>\d{1,12})\s+(?P<ue>\d{1,12})\s*$")
_PY_KIND = re.compile(r"\s+(?P<kind>mc_event|aer_event|mce_record|extlog_event):(?: (?P<count>\d{1,12}) event\(s\))?\s*$")
_PY_ROW = re.compile(r"\s+err_type=(?P<type>[^,]+)(?:, label=(?P<label>.+?))?(?:, [^:]*)?: (?P<count>\d{1,12}) event\(s\)")
_AER_NAMES = {
    "receiver error": "RxErr",
    "bad tlp": "BadTLP",
    "bad dllp": "BadDLLP",
    "replay_num rollover": "Rollover",
    "relay_num rollover": "Rollover",
    "replay timer timeout": "Timeout",
    "advisory non-fatal": "NonFatalErr",
    "data link protocol": "DLP",
    "surprise down": "SDES",
    "poisoned tlp": "TLP",
    "flow control protocol": "FCP",
    "completion timeout": "CmpltTO",
    "completer abort": "CmpltAbrt",
    "unexpected completion": "UnxCmplt",
    "receiver overflow": "RxOF",
    "malformed tlp": "MalfTLP",
    "ecrc": "ECRC",
    "unsupported request": "UnsupReq",
}


def parse(block: Block, fragment: Fragment) -> None:
    """Memory errors with DIMM label, PCIe errors with device where printed, machine checks; other sections are kept as unplaced when they count."""
    section = ""
    for number, line in lines(block, fragment):
        text = line.strip()
        if not text or _NONE.match(text) or text.startswith("Hostname:"):
            continue
        if match := _SECTION.match(text):
            section = match.group("name")
        elif match := _PY_KIND.match(line):
            section = {"mc_event": "Memory controller", "aer_event": "PCIe AER", "mce_record": "MCE"}.get(
                match.group("kind"), "Extlog"
            )
            if match.group("count") and section == "MCE" and int(match.group("count")):
                _add(fragment, number, text, "machine_check", count=int(match.group("count")))
        elif _LABELS.match(text):
            section = "labels"
        elif match := _LOG.search(line):
            _log_line(fragment, number, match, read_stamp(line, year=2000).node)
        elif not (section and _row(fragment, number, line, section)) and not _CHATTER.match(text):
            fragment.unparsed(number, line)


def _row(fragment: Fragment, number: int, line: str, section: str) -> bool:
    text = line.strip()
    if section == "labels":
        match = _LABEL_ROW.match(text)
        if match:
            for name, column in (("CE", "ce"), ("UE", "ue")):
                if count := int(match.group(column)):
                    _add(fragment, number, text, "edac", severity=name, count=count, label=match.group("label"))
        return match is not None
    dated = _ROW.match(text)
    if section == "Memory controller":
        if match := _MEMORY_SUM.match(text) or _PY_ROW.match(line):
            groups = match.groupdict()
            label = groups.get("label") or ""
            _add(fragment, number, text, "edac", severity=_ce_ue(groups["type"]), count=int(groups["count"]), label=label)
        elif dated:
            _memory(fragment, number, dated.group("rest"), dated.group("time"))
        return bool(match or dated)
    if section == "PCIe AER":
        if dated:
            _aer(fragment, number, dated.group("rest"), dated.group("time"))
        elif match := _COUNT_FIRST.match(text) or _PY_ROW.match(line):
            groups = match.groupdict()
            _aer(fragment, number, f"{groups['type']} {groups.get('message') or ''}", "", int(groups["count"]))
        else:
            return False
        return True
    if section == "MCE":
        if dated:
            _mce(fragment, number, dated.group("rest"), dated.group("time"))
            return True
        if match := _COUNT_FIRST.match(text):
            _add(fragment, number, text, "machine_check", severity=_mce_severity(text), count=int(match.group("count")))
            return True
    return False


def _ce_ue(word: str) -> str:
    low = word.lower()
    return "UE" if low.startswith(("uncorrect", "fatal", "deferred", "ue")) else "CE"


def _mce_severity(text: str) -> str:
    low = text.lower()
    if "uncorrected" in low or "fatal" in low or "processor context corrupt" in low:
        return "fatal" if "fatal" in low or "context corrupt" in low else "uncorrected"
    return "corrected" if re.search(r"\bcorrected|threshold", low) else ""


def _memory(fragment: Fragment, number: int, rest: str, time: str, node: str = "") -> None:
    match = _MEMORY.match(rest)
    severity = _ce_ue(match.group("type") if match else rest)
    count = int(match.group("count")) if match else 1
    label = (match.group("label") or "") if match else ""
    _add(fragment, number, rest, "edac", severity=severity, count=count, label=label, time=time, node=node)


def _aer(fragment: Fragment, number: int, rest: str, time: str, count: int = 1, node: str = "") -> None:
    device = _PCI.search(rest)
    found = _SEVERITY.search(rest)
    severity = "Corrected"
    if found:
        word, kind, fatal = found.groups()
        severity = "Uncorrected (Fatal)" if fatal else f"{word} ({kind})" if kind else word
    low = rest.lower()
    errors = " ".join(name for words, name in _AER_NAMES.items() if words in low)
    event = _add(fragment, number, rest, "aer", severity=severity, time=time, node=node)
    event.severity = severity
    event.fields = {"reader": READER} | ({"type": "", "errors": errors} if errors else {})
    event.count = max(count, 1)
    event.device = (pci_address(device.group(0)) or "") if device else ""


_CPU = re.compile(r"\bcpu= ?(0x[0-9a-f]{1,8}|\d{1,5})\b|\bCPU (\d{1,5}),")
_BANK = re.compile(r"\bbank= ?(0x[0-9a-f]{1,8}|\d{1,3})\b")
_STATUS = re.compile(r"\bstatus= ?(?:0x)?([0-9a-f]{1,16})\b")


def _mce(fragment: Fragment, number: int, rest: str, time: str, node: str = "") -> None:
    event = _add(fragment, number, rest, "machine_check", severity=_mce_severity(rest), time=time, node=node)
    for name, pattern in (("cpu", _CPU), ("bank", _BANK)):
        if match := pattern.search(rest):
            event.fields[name] = str(int(match.group(match.lastindex or 1), 0))
    if match := _STATUS.search(rest):
        status = int(match.group(1), 16)
        fields = machine_check_fields(status)
        event.severity = event.severity or fields.pop("severity")
        event.fields = {**fields, **event.fields}


def _log_line(fragment: Fragment, number: int, match: re.Match[str], node: str) -> None:
    kind, time, rest = match.group("kind", "time", "rest")
    if kind in ("mc_event", "extlog_mem_event"):
        _memory(fragment, number, rest, time, node)
    elif kind == "aer_event":
        _aer(fragment, number, rest, time, node=node)
    else:
        _mce(fragment, number, rest, time, node)


def _add(
    fragment: Fragment,
    number: int,
    text: str,
    kind: str,
    *,
    severity: str = "",
    count: int = 1,
    label: str = "",
    time: str = "",
    node: str = "",
) -> Event:
    stamp = read_stamp(_colon(time), year=2000) if time else None
    fields = {"reader": READER} | ({"severity": severity} if severity else {})
    if kind == "edac":
        fields |= {"count": str(count)} | ({"label": label.strip()} if label.strip() else {})
    event = Event(
        kind=kind,
        text=text.strip()[:400],
        node=node or fragment.source.node,
        time=stamp.time if stamp else None,
        clock=stamp.clock if stamp else Clock.NONE,
        uncertainty_s=stamp.uncertainty_s if stamp else 0.0,
        severity=severity,
        source=fragment.source.name,
        line=number,
        fields=fields,
        count=1 if kind == "edac" else max(count, 1),
    )
    fragment.events.append(event)
    return event


def _colon(time: str) -> str:
    """The daemon's "2024-05-16 10:21:24 -0700" in the form that log_time reads."""
    day, _, rest = time.partition(" ")
    clock, _, zone = rest.partition(" ")
    return f"{day}T{clock}{zone}"
