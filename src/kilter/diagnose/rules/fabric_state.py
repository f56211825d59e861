"""InfiniBand links as they stand: brought up or not, slower than both ends can, bit error rates, errors that rise while a tool looks."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.diagnose.fabric_links import Port, ports_of
from kilter.diagnose.rules.fabric import SPEEDS, below_usual, fabric_nodes
from kilter.facts.case import Case
from kilter.facts.fabric import FabricPort
from kilter.facts.finding import Cause, Evidence, Finding, Subject

_LINKINFO = "iblinkinfo -l"
_SPEC = "InfiniBand Architecture Specification: PortInfo (port states, link width and speed)"


def _told(ctx: Context, port: Port, facts: FabricPort, field: str, text: str) -> Evidence:
    return Evidence(f"{port.label}: {text}", ctx.where(facts, field))


def _lanes(text: str | None) -> int:
    return int(text[:-1]) if text and text[:-1].isdigit() else 0


def _slower(facts: FabricPort) -> str:
    """``1x, both ends support 4x`` where a tool says that the link could be more; "" else."""
    parts = []
    if _lanes(facts.width_possible) > _lanes(facts.width) > 0:
        parts.append(f"{facts.width}, both ends support {facts.width_possible}")
    if (
        facts.speed in SPEEDS
        and facts.speed_possible in SPEEDS
        and SPEEDS.index(facts.speed_possible) > SPEEDS.index(facts.speed)
    ):
        parts.append(f"{facts.speed}, both ends support {facts.speed_possible}")
    return "; ".join(parts)


@rule(
    "ib.link_below_possible",
    "Links run as wide and fast as both ends support",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_LINKINFO,
    sources=("linux-rdma/rdma-core infiniband-diags/ibdiag_common.c: get_max_msg", _SPEC),
    action="Reseat or swap the cable; check the enabled width and speed of both ports (ibportstate <lid> <port> query).",
)
def below_possible(case: Case, ctx: Context) -> Iterator[Finding]:
    """A link has fewer lanes or a lower speed than both of its ends support, as the tool itself says.

    One link among better ones has a bad cable or port. Where half of the links or more are alike, they are limited by a setting or by the
    cables that were bought, and that is information. A link that stands out among its siblings is told by ib.link_below_siblings.
    """
    nodes = fabric_nodes(case, ctx)
    up = [(port, facts) for port in ports_of(nodes) for facts in port.facts if facts.remote_guid and facts.state == "ACTIVE"]
    if not up:
        raise ctx.missing("width and speed of links")
    slow = {port.link: (port, facts, text) for port, facts in up if (text := _slower(facts))}
    links = {port.link for port, _ in up}
    usual: dict[str, int] = {}
    for _, _, text in slow.values():
        usual[text] = usual.get(text, 0) + 1
    alike = [text for text, number in usual.items() if number >= 3 and 2 * number >= len(links)]
    told = {port.link for port, _, far, _, _ in below_usual(nodes) if far == "switch"}
    for port, facts, text in slow.values():
        if text in alike or port.link in told:
            continue
        single = facts.width == "1x"
        yield ctx.finding(
            "error" if single else "warning",
            text + (f" (to {port.peer_label})" if port.peer_label else ""),
            subject=Subject("fabric_port", port.link),
            evidence=[_told(ctx, port, facts, "width_possible" if facts.width_possible else "speed_possible", text)],
            causes=[
                Cause("cable or transceiver", "likely", "swap with a sibling"),
                Cause("width or speed limited at one end", "possible", "ibportstate <lid> <port> query"),
            ],
            confidence="high" if single else "medium",
        )
    for text in alike:
        port, facts, _ = next(one for one in slow.values() if one[2] == text)
        yield ctx.finding(
            "info",
            f"{usual[text]} of {len(links)} links alike: {text}",
            subject=Subject("fabric", "all links"),
            evidence=[_told(ctx, port, facts, "width_possible" if facts.width_possible else "speed_possible", text)],
            causes=[Cause("limited by a setting or by the cables", "likely", "ibportstate <lid> <port> query")],
        )


@rule(
    "ib.fabric_port_not_active",
    "Cabled fabric ports are active",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint=_LINKINFO,
    sources=(_SPEC, "linux-rdma/rdma-core infiniband-diags/iblinkinfo.c"),
    action="Check that a subnet manager runs (sminfo) and reaches this port; then the cable.",
)
def not_active(case: Case, ctx: Context) -> Iterator[Finding]:
    """The link is up physically but the subnet manager has not made it active, or it is being retrained at this very moment.

    A port that is down and polls has no cable or a dead far end; listings are full of such ports, and nothing is said of them.
    """
    ports = [(port, facts) for port in ports_of(fabric_nodes(case, ctx)) for facts in port.facts if facts.state is not None]
    if not ports:
        raise ctx.missing("states of the fabric's ports")
    told: set[str] = set()
    for port, facts in ports:
        waiting = facts.state in ("INIT", "ARMED") and facts.physical_state in ("LinkUp", None)
        training = facts.physical_state in ("LinkErrorRecovery", "PortConfigurationTraining")
        if not (waiting or training) or port.link in told:
            continue
        told.add(port.link)
        state = f"{facts.state}/{facts.physical_state}" if facts.physical_state else str(facts.state)
        yield ctx.finding(
            "error" if waiting else "warning",
            (f"{state}: not brought up by the subnet manager" if waiting else f"{state}: the link is being retrained")
            + (f" (to {port.peer_label})" if port.peer_label else ""),
            subject=Subject("fabric_port", port.link),
            evidence=[_told(ctx, port, facts, "physical_state", state)],
            causes=[Cause("no subnet manager, or it cannot reach this port", "likely", "sminfo; the log of opensm")]
            if waiting
            else [Cause("cable or transceiver", "likely", "symbol_error and link_error_recovery of both ends")],
            confidence="high" if waiting else "medium",
        )


#: bit error rate above which ibdiagnet's own test complains
_BER = 1e-12


@rule(
    "ib.ber",
    "Bit error rates of links are low",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint="ibdiagnet --get_phy_info; mlxlink -d <device> -c",
    sources=(
        "NVIDIA ibdiagnet user manual, Bit Error Rate: default threshold 10^-12; symbol (HDR, NDR) or effective (EDR) errors count",
    ),
    action="Clean or swap the cable or transceiver; clear with ibdiagnet --pc --reset_phy_info, look again after ten minutes of traffic.",
)
def bit_error_rate(case: Case, ctx: Context) -> Iterator[Finding]:
    """The rate of errors left after correction is above 1e-12. The raw rate, before correction, is high on every PAM4 link and not judged.

    The symbol rate counts where it is known (HDR and newer), else the effective rate.
    """
    known = [
        (port, facts, name)
        for port in ports_of(fabric_nodes(case, ctx))
        for facts in port.facts
        for name in (["symbol"] if "symbol" in facts.ber else ["effective"] if "effective" in facts.ber else [])
    ]
    if not known:
        raise ctx.missing("bit error rates of links")
    told: set[str] = set()
    for port, facts, name in sorted(known, key=lambda one: -one[1].ber[one[2]]):
        value = facts.ber[name]
        if value <= _BER or port.link in told:
            continue
        told.add(port.link)
        yield ctx.finding(
            "warning",
            f"{name} bit error rate {value:.1e}" + (f" (to {port.peer_label})" if port.peer_label else ""),
            subject=Subject("fabric_port", port.link),
            evidence=[_told(ctx, port, facts, f"ber/{key}", f"{key} BER = {rate:.1e}") for key, rate in facts.ber.items()],
            causes=[Cause("cable or transceiver", "likely", "swap with a sibling"), Cause("dirty connector", "possible")],
            confidence="medium",
        )


#: counters that tell of a bad link when they rise, and by how much they must in one run of the tool
_RISING = {
    "symbol_error": 10,
    "port_rcv_errors": 10,
    "link_error_recovery": 1,
    "link_downed": 1,
    "local_link_integrity_errors": 1,
    "excessive_buffer_overrun_errors": 1,
}


@rule(
    "ib.errors_rising",
    "No link error counter rises while ibdiagnet runs",
    scope="case",
    family="rdma",
    sop="SOP-IB",
    hint="ibdiagnet --pc --pm_pause_time 600",
    sources=("NVIDIA/NVSentinel: rates of link counters", "NVIDIA ibdiagnet user manual: port counters"),
    action="Clean, reseat or swap that cable; run ibdiagnet again.",
)
def errors_rising(case: Case, ctx: Context) -> Iterator[Finding]:
    """Errors of a link that were counted while ibdiagnet ran (seconds to minutes): the link is bad now, not once.

    Symbol and receive errors count from 10. Discards, waits and errors that another link caused are not judged here.
    """
    known = [(port, facts) for port in ports_of(fabric_nodes(case, ctx)) for facts in port.facts if facts.growth]
    if not known:
        raise ctx.missing("counters over a run of ibdiagnet")
    for port, facts in known:
        bad = {name: value for name, value in facts.growth.items() if value >= _RISING.get(name, 1 << 62)}
        if bad:
            yield ctx.finding(
                "error" if "link_downed" in bad else "warning",
                ", ".join(f"{name} rose by {value}" for name, value in bad.items()) + " during the run of ibdiagnet",
                subject=Subject("fabric_port", port.link),
                evidence=[_told(ctx, port, facts, f"growth/{name}", f"{name} rose by {value}") for name, value in bad.items()],
                causes=[
                    Cause("cable or transceiver", "likely", "swap with a sibling"),
                    Cause("the host behind it was rebooted at that moment", "possible" if "link_downed" in bad else "unlikely"),
                ],
                missing=["how long ibdiagnet looked"],
                confidence="medium",
            )
