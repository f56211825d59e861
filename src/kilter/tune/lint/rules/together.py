"""Settings that contradict each other, where both are in force."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.tune.lint.report import MANUAL, Report, say
from kilter.tune.lint.rules.values import number
from kilter.tune.lint.setting import Setting, holds_for, meet

#: Variables that mean nothing once NCCL_IB_DISABLE is 1.
_OF_IB = ("NCCL_IB_HCA", "NCCL_IB_TIMEOUT", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_TC", "NCCL_IB_GID_INDEX")


def together_reports(found: list[Setting]) -> Iterator[Report]:
    """On settings of one job that are in force."""
    names: dict[str, list[Setting]] = {}
    for setting in found:
        names.setdefault(setting.name, []).append(setting)

    def cause(name: str, other: Setting) -> Setting | None:
        """The setting of ``name`` that is in force wherever ``other`` is, if one is."""
        return next((one for one in reversed(names.get(name, ())) if one.known and holds_for(one, other)), None)

    for name in _OF_IB:
        for setting in names.get(name, ()):
            off = cause("NCCL_IB_DISABLE", setting)
            if off is not None and off.value == "1":
                yield say(
                    "env.conflict", "warning", setting, f"has no effect: NCCL_IB_DISABLE=1 in line {off.line}", None, MANUAL
                )
    for setting in (*names.get("NCCL_PROTO", ()), *names.get("NCCL_ALGO", ())):
        tuner = cause("NCCL_TUNER_PLUGIN", setting)
        if tuner is not None and "ofi" in (tuner.value or "").lower():
            message = "with the tuner of aws-ofi-nccl 1.16.2 and older NCCL fails to start; later the tuner is off"
            yield say("env.conflict", "warning", setting, message, "", "aws/aws-ofi-nccl#982, #986")
    for setting in names.get("NCCL_GRAPH_STREAM_ORDERING", ()):
        mixing = cause("NCCL_GRAPH_MIXING_SUPPORT", setting)
        if setting.value == "0" and (mixing is None or mixing.value != "0"):
            message = "0 is unsupported with graph mixing, which is on by default"
            yield say("env.conflict", "warning", setting, message, "", MANUAL)
    for low_name, high_name in (("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS")):
        for setting in names.get(low_name, ()):
            other = next((one for one in names.get(high_name, ()) if meet(one, setting)), None)
            if other is None:
                continue
            low, high = number(setting.value or ""), number(other.value or "")
            if isinstance(low, int) and isinstance(high, int) and 0 < high < low:
                yield say("env.conflict", "error", setting, f"{low} is above {high_name}={high}", None, MANUAL)
