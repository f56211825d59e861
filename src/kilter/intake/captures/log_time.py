"""Times and hosts in front of log lines: dmesg, journalctl, syslog, /dev/kmsg, and launchers' tags before them."""

from __future__ import annotations

import datetime
import functools
import re
from typing import NamedTuple

from kilter.facts.event import Clock

UTC = datetime.timezone.utc


class Stamp(NamedTuple):
    """What a prefix says. ``end`` is where the message begins."""

    end: int
    time: float | None = None
    clock: Clock = Clock.NONE
    uncertainty_s: float = 0.0
    node: str = ""
    year_assumed: bool = False


_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan janv enero ene gen янв",
            "feb févr febr фев",
            "mar mär märz mars marzo мар",
            "apr avr abr апр",
            "may mai mag май мая",
            "jun juin giu июн",
            "jul juil lug июл",
            "aug août ago авг",
            "sep sept set сен",
            "oct okt ott окт",
            "nov ноя",
            "dec déc dez dic дек",
        ),
        1,
    )
    for name in names.split()
}
_CJK_MONTH = re.compile(r"(\d{1,2})(?:月|월)$")

_BOOT = re.compile(r"\[\s*(\d+\.\d+)\](?:\[\s*[TC]\d+\])? ?")
_DELTA = re.compile(r"\[\s*\+\d+\.\d+\] ?")  # dmesg -d: time since the line before, no time of its own
_CTIME = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4})\] ?")
_ISO = re.compile(
    r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|UTC|[+-]\d\d:?\d\d))?\]?(?: ([\w.-]+) (?:kernel|systemd-coredump)(?:\[\d+\])?:)? ?"
)
_SYSLOG = re.compile(r"(\S{1,8}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?: (\d{4}))? ([\w.-]+) ([\w.-]+)(?:\[\d+\])?: ")
_KERNEL = re.compile(
    r"(?:[^:\n]{1,12} +\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)\S* (?:[\w.-]+ )?kernel(?:\[\d+\])?: "
)
_KMSG = re.compile(r"(\d+),(\d+),(\d+),[^;\n]*;")
_LEVEL = re.compile(r"(?:<\d+>(?:1 )?|(?:kern|user|daemon|syslog) *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: )")
_PDSH = re.compile(r"([A-Za-z][\w.-]*): (?=\[ *\+?[\dA-Z]|<\d|\d{4}-\d\d-|[A-Z][a-z]{2} +\d+ \d\d:)")


def _month(word: str) -> int | None:
    match = _CJK_MONTH.match(word)
    if match:
        number = int(match.group(1))
        return number if 1 <= number <= 12 else None
    return _MONTHS.get(word.rstrip(".").lower()) or _MONTHS.get(word[:3].lower())


def _iso(match: re.Match[str]) -> Stamp | None:
    day, clock, fraction, zone, node = match.groups()
    try:
        moment = datetime.datetime.fromisoformat(f"{day}T{clock}")
    except (ValueError, OverflowError):
        return None
    offset = UTC
    if zone and zone not in ("Z", "UTC"):
        sign = -1 if zone[0] == "-" else 1
        digits = zone[1:].replace(":", "")
        minutes = int(digits[:2]) * 60 + int(digits[2:])
        if minutes >= 24 * 60:
            return None
        offset = datetime.timezone(sign * datetime.timedelta(minutes=minutes))
    time = moment.replace(tzinfo=offset).timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    return Stamp(match.end(), time, Clock.UTC if zone else Clock.LOCAL, 0.0 if fraction else 0.5, node or "")


def _syslog(match: re.Match[str], year: int) -> Stamp | None:
    word, day, hour, minute, second, fraction, printed_year, node, _ = match.groups()
    month = _month(word)
    if month is None:
        return None
    try:
        moment = datetime.datetime(int(printed_year or year), month, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    time = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    return Stamp(match.end(), time, Clock.LOCAL, 0.0 if fraction else 0.5, node, not printed_year)


@functools.lru_cache(maxsize=256)
def _ctime(text: str) -> float | None:
    """Seconds of ``Fri Nov  7 12:24:18 2025``, taken as UTC; None for a moment that does not exist. A log has many lines a second."""
    try:
        _, word, day, clock, year = text.split()
        hour, minute, second = clock.split(":")
        moment = datetime.datetime(int(year), _MONTHS[word.lower()], int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except (ValueError, KeyError, OverflowError):
        return None
    return moment.timestamp()


def read_stamp(line: str, *, year: int) -> Stamp:
    """Read the prefix of one line. ``year`` stands in where the form has none (classic syslog), and is marked as assumed.

    Forms: printk ``[12.345678]``, ``dmesg -T``, ``dmesg -x``, ``--time-format=iso``, ``/dev/kmsg`` records, journalctl short,
    short-iso and short-full, rsyslog's RFC 3339, localised month names, a pdsh host in front of any of them.
    """
    start = 0
    node = ""
    if not line.startswith("["):
        if match := _PDSH.match(line):
            node, start = match.group(1), match.end()
        if match := _LEVEL.match(line, start):
            start = match.end()
    if line.startswith("[", start):
        if match := _BOOT.match(line, start):
            return Stamp(match.end(), float(match.group(1)), Clock.BOOT, 0.0, node)
        if match := _DELTA.match(line, start):
            return Stamp(match.end(), node=node)
        if match := _CTIME.match(line, start):
            time = _ctime(match.group(1))
            # dmesg -T computes wall time from the boot clock; it drifts by seconds over suspend and NTP slews.
            return Stamp(match.end(), node=node) if time is None else Stamp(match.end(), time, Clock.LOCAL, 1.0, node)
    elif match := _KMSG.match(line, start):
        return Stamp(match.end(), int(match.group(3)) / 1e6, Clock.BOOT, 0.0, node)
    stamp = None
    if match := _ISO.match(line, start):
        stamp = _iso(match)
    elif match := _SYSLOG.match(line, start):
        stamp = _syslog(match, year)
    if stamp is None:
        return Stamp(start, node=node)
    if inner := _BOOT.match(line, stamp.end):  # journalctl of a console, rsyslog with printk.time
        stamp = stamp._replace(end=inner.end())
    return stamp if stamp.node or not node else stamp._replace(node=node)


def looks_like_kernel_log(line: str) -> bool:
    """Whether a line has the form of a kernel log line (not whether it says anything)."""
    head = line[:200]
    if _BOOT.match(head) or _DELTA.match(head) or _CTIME.match(head) or _KMSG.match(head):
        return True
    match = _LEVEL.match(head)
    return bool(match and (_BOOT.match(head, match.end()) or _ISO.match(head, match.end()))) or bool(_KERNEL.match(head))
