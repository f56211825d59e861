"""InfiniBand switches themselves, as ibswinfo shows them: fans, power supplies, temperature."""

from __future__ import annotations

import re

from kilter.diagnose.engine import Context, rule
from kilter.facts.fabric import FabricNode
from kilter.facts.finding import Cause, Evidence, Finding

_SWITCH = "ibswinfo -d lid-<lid>"
_FINE = {"ok", "good", "active", "present", "ready"}
_SILENT = {"", "n/a", "na", "unknown", "-", "not supported", "not available"}


def _state(text: str) -> str:
    """ "fine", "silent" (no value) or "bad" of a status word."""
    word = text.strip("[] ").lower()
    return "fine" if word in _FINE else "silent" if word in _SILENT else "bad"


def _switch(node: FabricNode, ctx: Context) -> None:
    if node.kind not in (None, "switch") or (node.kind is None and not node.fans):
        raise ctx.skip("not a switch")


@rule(
    "ib.switch.fan_error",
    "Fans of the switch are fine",
    scope="fabric",
    family="rdma",
    sop="SOP-THERM",
    hint=_SWITCH,
    sources=("stanford-rc/ibswinfo",),
    action="Look at the fan modules and the direction of their air flow; no need to drain the fabric.",
)
def fans(node: FabricNode, ctx: Context) -> Finding | None:
    """The switch says that its fans are not fine, or one stands still while others turn.

    The summary can be ERROR with all fans turning: one is then out of its band (wrong speed, wrong air flow direction).
    """
    _switch(node, ctx)
    if not node.fans:
        raise ctx.missing("fans of the switch")
    bad = [name for name, text in node.fans.items() if not text.isdecimal() and _state(text) == "bad"]
    speeds = {name: int(text) for name, text in node.fans.items() if re.fullmatch(r"\d{1,6}", text)}
    stopped = [name for name, speed in speeds.items() if speed == 0] if any(speeds.values()) else []
    if not bad and not stopped:
        if all(_state(text) == "silent" for text in node.fans.values()):
            raise ctx.missing("state of the fans")
        return None
    where = {name: ctx.where(node, f"fans/{name}") for name in (*bad, *stopped)}
    turning = [speed for speed in speeds.values() if speed]
    what = [f"{name}: {node.fans[name]}" for name in bad] + [f"{name} stands still" for name in stopped]
    return ctx.finding(
        "error" if stopped else "warning",
        ", ".join(what) + (f"; {len(turning)} fans turn at {min(turning)} to {max(turning)} rpm" if turning else ""),
        evidence=[Evidence(f"{name} = {node.fans[name]}", place) for name, place in where.items()],
        causes=[
            Cause("a fan module failed", "likely")
            if stopped
            else Cause("a fan is out of its band, or modules of two air flows", "likely")
        ],
    )


@rule(
    "ib.switch.psu_failed",
    "Power supplies of the switch are fine",
    scope="fabric",
    family="rdma",
    sop="SOP-PWR",
    hint=_SWITCH,
    sources=("stanford-rc/ibswinfo",),
    action="Check the feed and cord of that supply, then replace it; the switch runs without redundancy until then.",
)
def power(node: FabricNode, ctx: Context) -> Finding | None:
    """A power supply, its output or its fan is not OK. A supply without a status (N/A) is not judged."""
    _switch(node, ctx)
    if not node.power_supplies:
        raise ctx.missing("power supplies of the switch")
    bad = {name: text for name, text in node.power_supplies.items() if _state(text) == "bad"}
    if not bad:
        return None
    units = {name.split()[0] for name in bad}
    total = {name.split()[0] for name in node.power_supplies}
    return ctx.finding(
        "error",
        f"{', '.join(f'{name}: {text}' for name, text in bad.items())}; {len(total - units)} of {len(total)} supplies are fine",
        evidence=[Evidence(f"{name} = {text}", ctx.where(node, f"power_supplies/{name}")) for name, text in bad.items()],
        causes=[Cause("no mains at that supply", "likely", "its light, the rack's feed"), Cause("supply broken", "possible")],
    )


@rule(
    "ib.switch.overheat",
    "Switch is cool",
    scope="fabric",
    family="rdma",
    sop="SOP-THERM",
    hint=_SWITCH,
    sources=("stanford-rc/ibswinfo: warning thresholds of 95 (HDR) and 105 (NDR) C that switches report",),
    action="Check fans, blanking panels and inlet temperature of the rack.",
)
def overheat(node: FabricNode, ctx: Context) -> Finding | None:
    """The switch chip is at 95 C or more, the lowest warning threshold that switches report; 105 C is an error."""
    _switch(node, ctx)
    value = ctx.need(node, FabricNode.temperature_c)
    if value < 95:
        return None
    return ctx.finding(
        "error" if value >= 105 else "warning",
        f"switch chip at {value} C",
        missing=["the switch's own warning threshold"],
        confidence="medium",
    )
