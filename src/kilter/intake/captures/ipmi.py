"""The BMC's word: ``ipmitool sel list|elist`` (plain, ``-v``, ``-c``), ``ipmitool sdr|sensor``, FreeIPMI ``ipmi-sel``, Redfish log entries.

Events are of kind ``bmc`` with ``fields``: ``sensor``, ``event``, ``direction`` (asserted, deasserted, state = as a sensor table shows it now)
and ``what`` (see bmc_words). Ordinary entries (log cleared, boot, presence, clock, audit) make no event. The BMC's clock is its own: times are
local unless the entry prints its zone, and "Pre-Init" entries have none.
Formats: ipmitool lib/ipmi_sel.c and ipmi_sdr.c, FreeIPMI ipmi-sel(8), DMTF Redfish LogEntry schema, outputs in influxdata/telegraf
(plugins/inputs/ipmi_sensor) and public listings.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from kilter.facts.event import Clock, Event
from kilter.facts.measure import Sample
from kilter.intake.captures.bmc_words import place, what
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

UTC = datetime.timezone.utc
_ROW = re.compile(r"\s*(?P<id>[0-9a-fA-F]{1,4})\s*(?P<sep>[|,])")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:\s*([AP]M))?(?:\s+(\S+))?$", re.I)
_DATE = re.compile(r"(\d{1,4})[/.-](\d{1,2}|[A-Za-z]{3})[/.-](\d{1,4})$")
_MONTHS = {
    name: n for n, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_VERBOSE = re.compile(r" ?(?P<key>[A-Z][\w .()/-]{2,24}?)\s*: ?(?P<value>.*)$")
_READING = re.compile(r"([-+]?\d+(?:\.\d+)?) ?(degrees C|RPM|Watts|Volts|Amps|percent|unspecified)?", re.I)
_BOOT = re.compile(r"system boot|boot completed|initiated by (?:power up|hard reset|warm reset)|S0/G0|os boot", re.I)
_UNITS = {
    "degrees c": ("temperature", "C"),
    "rpm": ("fan", "RPM"),
    "watts": ("power", "W"),
    "volts": ("voltage", "V"),
    "amps": ("current", "A"),
}
_BAD = {"cr": "critical", "nr": "non-recoverable", "ucr": "upper critical", "lcr": "lower critical"}
_BAD |= {"unr": "upper non-recoverable", "lnr": "lower non-recoverable"}
_SEVERE_REDFISH = {"critical", "warning"}


def moment(date: str, clock: str) -> tuple[float | None, Clock]:
    """(seconds, clock) of a date and time as BMC tools print them; (None, NONE) for Pre-Init, PostInit and what is no time.

    Month first as ipmitool prints; day first where only that makes a date (ipmitool 1.8.19 follows the locale).
    """
    day, time = _DATE.match(date.strip()), _CLOCK.match(clock.strip())
    if time is None:
        return None, Clock.NONE
    if day is None:
        return _free_date(date, *time.group(1, 2, 3))
    a, b, c = day.groups()
    hour, minute, second, half, zone = time.groups()
    try:
        if not b.isdecimal():  # 03-Mar-2026
            year, month, number = int(c), _MONTHS[b.lower()], int(a)
        elif len(a) == 4:
            year, month, number = int(a), int(b), int(c)
        else:
            month, number, year = int(a), int(b), int(c)
            if month > 12:
                month, number = number, month
        year += 2000 if year < 100 else 0
        hours = int(hour) % 12 + (12 if half.upper() == "PM" else 0) if half else int(hour)
        stamp = datetime.datetime(year, month, number, hours, int(minute), int(second), tzinfo=UTC).timestamp()
    except (ValueError, KeyError, OverflowError):
        return None, Clock.NONE
    # A BMC that never got the time counts from 1970: such a stamp says nothing.
    if year < 2000:
        return None, Clock.NONE
    return stamp, Clock.UTC if zone in ("UTC", "GMT", "Z") else Clock.LOCAL


def _free_date(date: str, hour: str, minute: str, second: str) -> tuple[float | None, Clock]:
    """FreeIPMI's ``Jan-31-2024``."""
    parts = date.strip().split("-")
    try:
        month = _MONTHS[parts[0].lower()]
        when = datetime.datetime(int(parts[2]), month, int(parts[1]), int(hour), int(minute), int(second), tzinfo=UTC)
    except (ValueError, KeyError, IndexError, OverflowError):
        return None, Clock.NONE
    return (when.timestamp(), Clock.LOCAL) if when.year >= 2000 else (None, Clock.NONE)


class _Log:
    """Adds events of one block; entries that mean nothing for health are counted, not kept."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.first = 0  # line of the first ordinary entry
        self.ordinary = 0
        self.last_boot = 0  # line of the last entry that says that the host started

    def add(
        self,
        number: int,
        *,
        sensor: str,
        event: str,
        direction: str,
        time: float | None = None,
        clock: Clock = Clock.NONE,
        severity: str = "",
        uncertainty_s: float = 0.5,
    ) -> None:
        kind = what(sensor, event)
        if not kind:
            self.first = self.first or number
            self.ordinary += 1
            if direction == "asserted" and _BOOT.search(event):
                self.last_boot = number
            return
        fields = {"sensor": sensor.strip(), "event": event.strip(), "direction": direction, "what": kind}
        found = place(f"{sensor} {event}")
        device = found.pop("device", "")
        self.fragment.events.append(
            Event(
                kind="bmc",
                text=" | ".join(part for part in (sensor.strip(), event.strip(), direction) if part)[:400],
                node=self.fragment.source.node,
                device=device,
                time=time,
                clock=clock,
                uncertainty_s=uncertainty_s if time is not None else 0.0,
                severity=severity,
                source=self.fragment.source.name,
                line=number,
                fields=fields | found,
            )
        )

    def finish(self) -> None:
        """Say that a log was read even when it held nothing but ordinary entries: such a BMC is healthy, not unknown."""
        for event in self.fragment.events:
            # A BMC that lost its own power with the host never logs that the input came back.
            if event.fields.get("what") == "psu_input_lost" and event.line < self.last_boot:
                event.fields["boot_after"] = "yes"
        if self.ordinary and not self.fragment.events:
            self.fragment.events.append(
                Event(
                    kind="bmc",
                    text=f"{self.ordinary} ordinary entries of the BMC",
                    node=self.fragment.source.node,
                    source=self.fragment.source.name,
                    line=self.first,
                    fields={"what": "ordinary"},
                )
            )


def parse(block: Block, fragment: Fragment) -> None:
    """One block of any of the tools named above, told apart by its lines."""
    start = next((line for line in block.lines if line.strip()), "")
    if start.lstrip().startswith(("{", "[")):
        _redfish(block, fragment)
        return
    log = _Log(fragment)
    record: _Record | None = None
    header: list[str] = []
    for number, line in lines(block, fragment):
        if not line.strip():
            continue
        if line.lstrip().startswith("SEL Record ID"):
            if record is not None:
                record.finish(log)
            record = _Record(number)
        elif record is not None and record.take(line):
            pass
        elif re.match(r"\s*(?:Record )?ID\s*[|,]\s*Date\s*[|,]", line):
            header = [cell.strip().lower() for cell in re.split("[|,]", line)]
        elif header and _ROW.match(line):
            _free_row(number, line, header, log)
        elif not (_sel_row(number, line, log) or _sensor_row(number, line, fragment, log)):
            if not re.match(r"\s*(?:SEL has no entries|SEL Information|Could not open device)", line):
                fragment.unparsed(number, line)
            elif "Could not open" in line:
                fragment.note(f"ipmitool had no access to the BMC: {line.strip()[:120]}")
    if record is not None:
        record.finish(log)
    log.finish()


def _direction(word: str) -> str:
    low = word.strip().lower()
    if low.startswith("deassert"):
        return "deasserted"
    return "asserted" if low.startswith("assert") else ""


def _sel_row(number: int, line: str, log: _Log) -> bool:
    """``id | date | time | sensor | event | Asserted [| reading]``, with commas for ``-c``; OEM records are shorter."""
    match = _ROW.match(line)
    if match is None:
        return False
    cells = [cell.strip() for cell in line[match.end() :].split(match.group("sep"))]
    if cells and cells[0].startswith("OEM record"):
        return True
    if cells and "kernel panic" in line.lower():
        time, clock = moment(*cells[:2]) if len(cells) > 1 else (None, Clock.NONE)
        log.add(number, sensor="OS", event=f"Linux kernel panic {cells[-1]}"[:200], direction="asserted", time=time, clock=clock)
        return True
    if len(cells) < 3:
        return False
    time, clock = moment(cells[0], cells[1])
    if time is None and not (cells[0].lower() in ("pre-init", "preinit", "postinit", "unknown", "") or _DATE.match(cells[0])):
        return False
    sensor = cells[2]
    event = cells[3] if len(cells) > 3 else ""
    direction = next((d for cell in cells[4:6] if (d := _direction(cell))), "")
    more = " ".join(cell for cell in cells[5:] if cell and not _direction(cell))
    log.add(number, sensor=sensor, event=f"{event} {more}".strip(), direction=direction or "asserted", time=time, clock=clock)
    return True


def _free_row(number: int, line: str, header: list[str], log: _Log) -> None:
    """A row of FreeIPMI ``ipmi-sel``: columns by the header; the last may hold separators of its own."""
    separator = "|" if "|" in line else ","
    cells = [cell.strip() for cell in line.split(separator, len(header) - 1)]
    row = dict(zip(header, cells, strict=False))
    time, clock = moment(row.get("date", ""), row.get("time", ""))
    event = row.get("event", "")
    direction = _direction(row.get("event direction", "")) or "asserted"
    # ipmi-sel names the state ("Nominal", "Warning", "Critical") when asked; without a word of trouble, the text decides.
    sensor = f"{row.get('type', '')} {row.get('name', '')}".strip()
    log.add(number, sensor=sensor, event=event, direction=direction, time=time, clock=clock, severity=row.get("state", ""))


class _Record:
    """One entry of ``ipmitool sel list -v`` or ``sel get``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: dict[str, str] = {}

    def take(self, line: str) -> bool:
        match = _VERBOSE.match(line[:300])
        if match is None:
            return line.startswith("   ")  # continuation of states and OEM details
        self.values.setdefault(match.group("key").strip(), match.group("value").strip())
        return True

    def finish(self, log: _Log) -> None:
        values = self.values
        words = values.get("Timestamp", "").split(None, 1)
        time, clock = moment(words[0], words[1]) if len(words) == 2 else (None, Clock.NONE)
        name = values.get("Sensor ID", "").partition(" (0x")[0]
        if not name and values.get("Sensor Number"):
            name = f"#0x{values['Sensor Number']}"
        event = values.get("Description", "")
        if "panic" in values.get("Record Type", "").lower():
            event = f"Linux kernel panic {values.get('Panic string', '')}"
        log.add(
            self.number,
            sensor=f"{values.get('Sensor Type', '')} {name}".strip(),
            event=event,
            direction=_direction(values.get("Event Direction", "")) or "asserted",
            time=time,
            clock=clock,
        )


def _sensor_row(number: int, line: str, fragment: Fragment, log: _Log) -> bool:
    """A row of ``sdr``, ``sdr elist`` or ``sensor``: name | reading ... | status."""
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) < 3 or not cells[0]:
        return False
    name = cells[0]
    if len(cells) >= 9:  # sensor: name | value | unit | status | six thresholds
        reading, status = f"{cells[1]} {cells[2]}", cells[3].lower()
        detail = ""
    elif len(cells) >= 5:  # sdr elist: name | 0Fh | ok | 10.1 | reading or states
        reading, status, detail = cells[4], cells[2].lower(), cells[4]
    else:  # sdr list: name | reading | ok
        reading, status, detail = cells[1], cells[2].lower(), ""
    if status not in {"ok", "ns", "nc", "unc", "lnc", "na", "u", *_BAD} and not status.startswith("0x"):
        return False
    match = _READING.match(reading)
    if match and match.group(2) and (known := _UNITS.get(match.group(2).lower())):
        conditions = {"sensor": name, "status": status}
        sample = Sample(
            metric=f"bmc.{known[0]}", value=float(match.group(1)), unit=known[1], tool="ipmitool", conditions=conditions
        )
        sample.origin[""] = fragment.ref(number)
        fragment.snapshot.samples.append(sample)
        if status in _BAD:
            word = _BAD[status] if " " in _BAD[status] else f"{'lower' if known[0] == 'fan' else 'upper'} {_BAD[status]}"
            log.add(number, sensor=f"{known[0]} {name}", event=f"{word} (reads {match.group(1)} {known[1]})", direction="state")
    elif detail:
        kind = "Power Supply" if re.search(r"\bPSU?\d|power supply|pwr", name, re.I) else ""
        for state in detail.split(","):
            log.add(number, sensor=f"{kind} {name}".strip(), event=state.strip(), direction="state")
    return True


def _redfish(block: Block, fragment: Fragment) -> None:
    """A LogEntryCollection, a list of entries, or single entries; of a cut-off document, the entries that are whole."""
    text = "\n".join(block.lines)
    log = _Log(fragment)
    decoder = json.JSONDecoder()
    try:
        document, _ = decoder.raw_decode(text.lstrip("\ufeff \t\r\n"))
        entries = _members(document)
    except (ValueError, RecursionError):
        entries = _whole_entries(text, decoder)
        fragment.note(f"Redfish log is cut short or damaged: {len(entries)} whole entries were read")
    before = len(fragment.events)
    # One pass for the line of each entry: an "Id" or "@odata.id" stands in each.
    starts = [n for n, line in enumerate(block.lines, block.first_line) if '"Message"' in line]
    for index, entry in enumerate(entries):
        number = starts[index] if len(starts) == len(entries) else block.first_line
        _redfish_entry(number, entry, log)
    for event in fragment.events[before:]:
        event.fields["log"] = "redfish"  # in any order: its times, not its lines, say what came first
    log.finish()


def _members(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [item for item in document if isinstance(item, dict)]
    if not isinstance(document, dict):
        return []
    members = document.get("Members") or document.get("Items")
    if isinstance(members, list):
        return [item for item in members if isinstance(item, dict)]
    return [document]


def _whole_entries(text: str, decoder: json.JSONDecoder) -> list[dict[str, Any]]:
    start = max(text.find('"Members"'), 0)
    entries: list[dict[str, Any]] = []
    position = text.find("{", text.find("[", start) if text.find("[", start) >= 0 else start)
    while position >= 0:
        try:
            entry, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        if isinstance(entry, dict):
            entries.append(entry)
        position = text.find("{", position)
    return entries


#: The part that a message speaks of; entries about one part are matched by it.
_PART = re.compile(r"\b(?:power supply|psu|fan|dimm|memory|slot|cpu|processor|disk|drive)[ _#-]{0,2}[\w.]*\d\w*", re.I)


def _redfish_entry(number: int, entry: dict[str, Any], log: _Log) -> None:
    def word(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    severity = word("Severity") or word("MessageSeverity")
    message = word("Message") or word("Description")
    code = word("EntryCode")
    part = _PART.search(message[:400])
    sensor = f"{word('SensorType')} {part.group(0) if part else ''}".strip()
    direction = "deasserted" if "deassert" in f"{code} {message}".lower() or entry.get("Resolved") is True else "asserted"
    time, clock = _iso(word("EventTimestamp") or word("Created"))
    event = f"{code} {message}" if code and code.lower() not in ("assert", "deassert") else message
    # "OK" entries that speak of a failure tell that it is over ("The power supply 1 is operating normally", "fan failure cleared").
    if severity and severity.lower() not in _SEVERE_REDFISH and direction == "asserted" and what(sensor, event) != "over":
        direction = "deasserted" if re.search(r"clear|restor|normal|recover", event, re.I) else direction
        if direction == "asserted" and severity.lower() in ("ok", "informational"):
            return
    sensor = sensor or _origin(entry)
    log.add(number, sensor=sensor, event=event, direction=direction, time=time, clock=clock, severity=severity)


def _origin(entry: dict[str, Any]) -> str:
    """Last parts of the resource that a Redfish entry is about."""
    links = entry.get("Links")
    origin = links.get("OriginOfCondition") if isinstance(links, dict) else None
    path = origin.get("@odata.id") if isinstance(origin, dict) else None
    return " ".join(path.rstrip("/").rsplit("/", 2)[-2:])[:80] if isinstance(path, str) else ""


def _iso(text: str) -> tuple[float | None, Clock]:
    text = text.strip()
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text):
        return None, Clock.NONE
    # Python 3.10 reads neither "Z" nor fractions of other than 3 or 6 digits.
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", text)
    assert match is not None
    zone = match.group(3) or ""
    try:
        when = datetime.datetime.fromisoformat(match.group(1)).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None, Clock.NONE
    if when < 946684800:  # before 2000: the BMC had no time
        return None, Clock.NONE
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        offset = (int(digits[:2]) * 60 + int(digits[2:])) * 60
        when -= offset if zone[0] == "+" else -offset
    return when + float(match.group(2) or 0), Clock.UTC if zone else Clock.LOCAL
