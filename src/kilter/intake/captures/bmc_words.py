"""What the words of a BMC's event log mean: one name a kind of trouble, whichever vendor and tool printed it.

Sensor types and event texts: IPMI 2.0 specification, tables 42-2 (generic) and 42-3 (sensor-specific offsets), as ipmitool and FreeIPMI spell
them; Redfish message texts of iDRAC, iLO, XCC and OpenBMC. :func:`what` gives "" for ordinary content (presence, boot, clock, audit).
"""

from __future__ import annotations

import re

from kilter.facts.pci import pci_address


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.I)


_POWER = _any(r"power (?:supply|unit|input)", r"\bpsu?\s?[-_#]?\d", r"\bpsu\b", r"\bps redundancy")
_FAN = _any(r"\bfan", r"fan\b")
_TEMPERATURE = _any(r"temp", r"thermal", r"\binlet\b", r"\bambient\b")
_INLET = _any(r"inlet", r"ambient", r"\bamb\b", r"intake", r"front panel", r"air ?in")
_MEMORY = _any(r"\bmemory", r"\bdimm", r"\becc\b")
_CPU = _any(r"\bprocessor", r"\bcpu", r"caterr", r"mcerr", r"\bierr\b")
_DRIVE = _any(r"drive slot", r"\bdrive (?:bay|fault)", r"\bdisk\b", r"\bdrive\b")

#: (what, sensor must match, event must match); first match wins
_TABLE: tuple[tuple[str, re.Pattern[str] | None, re.Pattern[str]], ...] = (
    ("watchdog_reset", _any(r"watchdog"), _any(r"hard reset", r"power cycle", r"power down", r"reset")),
    ("os_stop", None, _any(r"run-?time critical stop", r"linux kernel panic", r"os (?:stop|crash)")),
    (
        "cpu_ierr",
        _CPU,
        _any(r"\bierr\b", r"caterr", r"mcerr", r"machine check", r"internal error", r"\bcpu error", r"\buncorrectable"),
    ),
    ("thermal_trip", _CPU, _any(r"thermal trip")),
    ("psu_predictive", _POWER, _any(r"predictive failure", r"predicted")),
    (
        "redundancy_lost",
        _POWER,
        _any(r"redundancy (?:is )?(?:lost|degraded)", r"non-redundant", r"not redundant", r"redundancy has been lost"),
    ),
    ("fan_redundancy_lost", _FAN, _any(r"redundancy (?:is )?(?:lost|degraded)", r"non-redundant", r"not redundant")),
    (
        "power_lost",
        _any(r"power unit"),
        _any(r"ac lost", r"input lost", r"soft-?power control failure", r"failure detected", r"interlock"),
    ),
    ("power_cycle", _any(r"power unit", r"chassis"), _any(r"power cycle", r"240va")),
    (
        "psu_input_lost",
        _POWER,
        _any(
            r"\b(?:ac|dc|input)(?: power)?(?: is| has been)? lost",
            r"lost or out-of-range",
            r"input out-of-range",
            r"lost (?:ac|input|power)",
            r"power input.{0,60}\blost",
            r"input power.{0,60}\b(?:lost|missing)",
        ),
    ),
    (
        "psu_failed",
        _POWER,
        _any(
            r"\bfail(?:ed|ure)\b",
            r"(?:power supply|psu) fault",
            r"\bfault\b",
            r"critical",
            r"non-recoverable",
            r"over ?current",
            r"over ?voltage",
            r"under ?voltage",
        ),
    ),
    (
        "fan_failed",
        _FAN,
        _any(
            r"lower (?:critical|non-recoverable)",
            r"transition to (?:critical|non-recoverable)",
            r"\bfail",
            r"\bfault\b",
            r"below (?:the )?(?:minimum|lower critical)",
            r"stopped",
        ),
    ),
    (
        "temperature_critical",
        _TEMPERATURE,
        _any(
            r"upper (?:critical|non-recoverable)",
            r"transition to (?:critical|non-recoverable)",
            r"over-?temperature",
            r"greater than the upper critical",
            r"above (?:the )?(?:upper )?critical",
            r"thermal trip",
        ),
    ),
    ("memory_ue", _MEMORY, _any(r"\buncorrect(?:able|ed)", r"multi-?bit", r"parity", r"\bue\b")),
    (
        "memory_ce_limit",
        _MEMORY,
        _any(r"logging limit", r"rate (?:is )?exceeded", r"threshold (?:is )?exceeded", r"correctable.*(?:limit|threshold|rate)"),
    ),
    (
        "memory_fault",
        _MEMORY,
        _any(
            r"memory device disabled",
            r"scrub failed",
            r"configuration error",
            r"training (?:error|fail)",
            r"not functional",
            r"faulty",
            r"post package repair fail",
        ),
    ),
    ("memory_ce", _MEMORY, _any(r"\bcorrect(?:able|ed)\b")),
    ("drive_fault", _DRIVE, _any(r"drive fault", r"predictive failure", r"in (?:critical|failed) array", r"\bfail(?:ed|ure)\b")),
    (
        "pcie_fatal",
        None,
        _any(
            r"bus (?:fatal|uncorrectable) error",
            r"pci (?:perr|serr)",
            r"\bpci-?e?\b.*\b(?:fatal|uncorrect)",
            r"(?<!non-)(?<!non )fatal (?:error|pci|bus)",
            r"completion timeout",
        ),
    ),
    (
        "pcie_correctable",
        None,
        _any(r"bus (?:correctable error|degraded)", r"\bpci-?e?\b.*(?:\bcorrectable|degraded|width|bandwidth)"),
    ),
    ("pcie_fatal", _any(r"slot\s?/\s?connector", r"critical interrupt", r"pci"), _any(r"fault status", r"\bfault\b", r"fatal")),
)

_OVER = _any(
    r"fully redundant",
    r"redundancy (?:regained|restored|is restored)",
    r"transition to ok",
    r"returned to normal",
    r"within (?:normal )?range",
    r"is (?:now )?(?:normal|operating normally|restored)",
    r"\brestored\b",
)


def what(sensor: str, event: str) -> str:
    """The kind of trouble that an entry speaks of, "over" for a return to normal, "" for ordinary content."""
    sensor, event = sensor[:200], event[:400]
    if _OVER.search(event):
        return "over"
    both = f"{sensor} {event}"
    for name, needs, says in _TABLE:
        if (needs is None or needs.search(both)) and says.search(event):
            if name == "temperature_critical" and _INLET.search(both):
                return "inlet_hot"
            if name == "cpu_ierr" and _MEMORY.search(event) and not re.search(r"ierr|caterr|mcerr|machine check", event, re.I):
                continue
            return name
    if re.search(r"caterr|ierr|mcerr", sensor, re.I) and re.search(r"state asserted|transition to", event, re.I):
        return "cpu_ierr"
    return ""


_BDF = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](?![0-9a-fA-F])")
_NUMBER = r"(?: ?(?:number)? ?[=:#]? ?)(0x[0-9a-f]{1,2}|[0-9a-f]{1,2}h|\d{1,3})\b"
_BUS = re.compile(rf"\bbus{_NUMBER}[ ,;:]{{0,4}}(?:pci )?dev(?:ice)?{_NUMBER}[ ,;:]{{0,4}}func?(?:tion)?{_NUMBER}", re.I)
_SLOT = _any(r"\bslot(?: ?(?:number|#|:|=))? ?(\d{1,3}|[A-Z]{1,2}\d{0,2})\b")


def _value(text: str) -> int:
    text = text.lower()
    return int(text[:-1], 16) if text.endswith("h") else int(text, 16 if text.startswith("0x") else 10)


def place(text: str) -> dict[str, str]:
    """``device`` (PCI address) and ``slot`` that an entry names. Plain numbers behind "bus" are decimal, as iDRAC prints them."""
    found: dict[str, str] = {}
    text = text[:600]
    if match := _BDF.search(text):
        found["device"] = pci_address(match.group(0)) or ""
    elif match := _BUS.search(text):
        bus, device, function = (_value(group) for group in match.groups())
        if bus < 256 and device < 32 and function < 8:
            found["device"] = f"0000:{bus:02x}:{device:02x}.{function}"
    if match := _SLOT.search(text):
        found["slot"] = match.group(1)
    return {key: value for key, value in found.items() if value}
