"""The merged time line on a terminal."""

from __future__ import annotations

from kilter.facts.event import Clock, Event
from kilter.report.plain import plain, utc


def clock_text(time: float | None, event: Event) -> str:
    """Time of a moment: wall clock to the millisecond, or seconds since boot, or a blank."""
    if time is not None:
        return utc(time, "%m-%d %H:%M:%S.%f")[:18]
    if event.time is not None and event.clock is Clock.BOOT:
        return f"boot+{event.time:.3f}s"
    return "no time"


def line(time: float | None, uncertainty: float, event: Event, *, width: int, node_width: int) -> str:
    """One event on one line of at most ``width`` columns."""
    stamp = clock_text(time, event)
    unsure = f"±{uncertainty:.1f}" if time is not None and uncertainty >= 0.1 else ""
    repeat = f" x{event.count}" if event.count > 1 else ""
    head = f"{stamp:<18} {unsure:<6} {plain(event.node)[:node_width]:<{node_width}} "
    where = f" [{plain(event.where.rsplit('/', 1)[-1])[-40:]}]"
    room = width - len(head) - len(where) - len(repeat)
    text = plain(event.text[: 4 * width])
    text = text if len(text) <= room else text[: max(room - 3, 10)] + "..."
    return f"{head}{text}{repeat}{where}"
