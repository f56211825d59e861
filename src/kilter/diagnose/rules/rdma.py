"""RDMA ports: state, rate, flaps, counters."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort

Pair = tuple[RdmaDevice, RdmaPort]
_IBSTAT = "ibstat, or grep -r . /sys/class/infiniband"
#: IBTA counters that stop at their largest value (PMA PortCounters); 8-bit ones stop at 255, 4-bit ones at 15.
SATURATES = {
    "link_downed": 255,
    "link_error_recovery": 255,
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_xmit_discards": 65535,
    "VL15_dropped": 65535,
}
#: Default rate in Gbit/s of the adapter family's fastest port (product briefs of ConnectX-4 to -8); the board can be a slower one.
_FAMILY_GBPS = {"MT4115": 100, "MT4119": 100, "MT4123": 200, "MT4129": 400, "MT4131": 800}


def _siblings(snapshot: Snapshot, port: RdmaPort, device: RdmaDevice) -> list[Pair]:
    """Other ports of the node with the same link layer (and adapter type, where known)."""
    return [
        (d, p)
        for d in snapshot.rdma or []
        for p in d.ports
        if p is not port
        and p.link_layer == port.link_layer
        and (d.hca_type == device.hca_type or None in (d.hca_type, device.hca_type))
    ]


def _netdev(snapshot: Snapshot, device: RdmaDevice, port: RdmaPort) -> NetInterface | None:
    for interface in snapshot.nics or []:
        if (port.netdev and interface.name == port.netdev) or (
            device.pci_address and interface.pci_address == device.pci_address
        ):
            return interface
    return None


def _counter_line(ctx: Context, port: RdmaPort, name: str) -> str:
    """Where a counter was read; texts of sysfs give each its own line."""
    return ctx.where(port, f"counters.{name}") or ctx.where(port, f"counters/{name}") or ctx.where(port, "counters")


@rule(
    "ib.port_down",
    "RDMA ports are up",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=("InfiniBand Architecture Specification: port and physical states", "research: failure modes 34 and 37"),
    action="Check cable, transceiver and the switch port; an unused port can be set aside.",
)
def port_down(pair: Pair, ctx: Context) -> Finding | None:
    """A port is DOWN while siblings of its kind are ACTIVE. A port that nobody cabled (Disabled, or all ports down) is not a fault."""
    device, port = pair
    state = ctx.need(port, RdmaPort.state)
    physical = ctx.known(port, RdmaPort.physical_state)
    if state != "DOWN":
        return None
    others = _siblings(ctx.snapshot, port, device)
    up = [p for _, p in others if p.state == "ACTIVE"]
    if physical in ("Disabled", "Sleep"):
        return ctx.finding("info", f"port is down ({physical})")
    if len(up) >= max(1, len(others) / 2):
        return ctx.finding(
            "error",
            f"port is down ({physical or 'physical state unknown'}) while {len(up)} of {len(others)} siblings are up",
            causes=[
                Cause("cable or transceiver", "likely", "link light, ethtool -m"),
                Cause("switch port shut down", "possible", "switch"),
                Cause("port never meant to be used", "possible", "same port on the other nodes"),
            ],
        )
    return ctx.finding("info", f"port is down ({physical or 'physical state unknown'})")


@rule(
    "ib.port_stuck_init",
    "Subnet manager brought every port up",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=("InfiniBand Architecture Specification: INIT until the subnet manager configures the port",),
    action="Check the subnet manager of that fabric segment (sminfo, opensm or UFM); keep the node out of jobs until ACTIVE.",
)
def stuck_init(pair: Pair, ctx: Context) -> Finding | None:
    """The physical link is up, but the port stays in INIT or ARMED: no subnet manager reached it. Cables are not the suspect."""
    _, port = pair
    state = ctx.need(port, RdmaPort.state)
    if state not in ("INIT", "ARMED"):
        return None
    physical = ctx.known(port, RdmaPort.physical_state)
    if port.link_layer == "Ethernet":
        raise ctx.skip("Ethernet ports need no subnet manager")
    if physical not in (None, "LinkUp"):
        return None
    return ctx.finding(
        "error",
        f"port is {state} with the link up: no subnet manager configured it",
        causes=[
            Cause("no subnet manager on this segment", "likely", "sminfo; several ports of one leaf"),
            Cause("partition or LID limit of the manager", "possible", "its log"),
        ],
    )


@rule(
    "ib.rate_degraded",
    "RDMA ports run at their rate",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=("InfiniBand Architecture Specification: link width and speed", "research: failure mode 37"),
)
def rate(pair: Pair, ctx: Context) -> Finding | None:
    """Rate below that of the siblings, below full width, or below what the interface of the same port says.

    All ports alike and slower than the adapter family's best can be a choice (slower switch): then it is information.
    """
    device, port = pair
    if port.state != "ACTIVE":
        raise ctx.skip("port is not active")
    value = ctx.need(port, RdmaPort.rate_gbps)
    text = ctx.known(port, RdmaPort.rate_text) or ""
    others = [p.rate_gbps for _, p in _siblings(ctx.snapshot, port, device) if p.state == "ACTIVE" and p.rate_gbps is not None]
    best = max(others, default=0.0)
    same = f" on {sum(1 for r in others if r == value) + 1} of {len(others) + 1} ports"
    width = text.split("X")[0] if "X" in text else ""
    if (
        port.link_layer == "InfiniBand"
        and width.isdecimal()
        and int(width) < 4
        and not any(t and t.startswith(f"{width}X") for t in (p.rate_text for _, p in _siblings(ctx.snapshot, port, device)))
    ):
        return ctx.finding(
            "error",
            f"link is only {text}: lanes are missing",
            action="Reseat or swap cable and transceiver.",
            causes=["bad lane of the cable or transceiver"],
        )
    if others and value < best and statistics.median(others) > value:
        return ctx.finding(
            "error",
            f"{value:g} Gbit/s ({text or 'speed not printed'}), siblings run at {best:g}",
            action="Check switch port speed and cable; reseat.",
            causes=[
                Cause("cable or transceiver of a slower kind, or a bad lane", "likely", "swap with a sibling"),
                Cause("switch port profile", "possible", "switch"),
            ],
        )
    interface = _netdev(ctx.snapshot, device, port)
    if (
        interface is not None
        and interface.speed_mbps
        and interface.speed_mbps >= 1.5 * value * 1000
        and port.link_layer == "InfiniBand"
    ):
        everywhere = bool(others) and all(r == value for r in others)
        return ctx.finding(
            "error",
            f"{value:g} Gbit/s ({text}), the interface was set up for {interface.speed_mbps / 1000:g}"
            + (same if everywhere else ""),
            evidence=[ctx.fact(interface, "speed_mbps")],
            action="Compare with the fleet; check the switch port's speed setting and the cable type.",
            causes=[Cause("switch port profile or wrong switch: all ports alike", "likely", "switch port speed")]
            if everywhere
            else ["cable or switch port"],
            confidence="medium",
        )
    family = _FAMILY_GBPS.get(device.hca_type or "")
    if family is not None and port.link_layer == "InfiniBand" and value < family / 1.5:
        return ctx.finding(
            "info",
            f"{value:g} Gbit/s{same}; adapters of this family reach {family}",
            confidence="low",
            missing=["which rate this board (PSID) and switch are made for"],
            action="Compare with the fleet's norm.",
        )
    return None


@rule(
    "ib.link_flapping",
    "RDMA links are stable",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=(
        "knowledge: ib_counters.yaml (link_downed)",
        "leptonai/gpud: 3 flaps in 12 h; Azure/azurehpc-health-checks: 5 in 24 h",
    ),
    action="Inspect or swap cable and transceiver; clear the counter (perfquery -x) and watch it for a day.",
)
def flapping(pair: Pair, ctx: Context) -> Iterator[Finding]:
    """link_downed far above the siblings', or carrier losses of the port's interface. A reboot of the peer adds one to all of them.

    A counter at its largest value (255) has stopped counting: the number is a lower bound.
    """
    device, port = pair
    downs = port.counters.get("link_downed")
    interface = _netdev(ctx.snapshot, device, port)
    losses = interface.carrier_down_count if interface is not None else None
    if downs is None and losses is None:
        raise ctx.missing("link_downed counter")
    others = _siblings(ctx.snapshot, port, device)
    usual_downs = statistics.median([p.counters["link_downed"] for _, p in others if "link_downed" in p.counters] or [0])
    usual_losses = statistics.median(
        [
            i.carrier_down_count
            for d, p in others
            if (i := _netdev(ctx.snapshot, d, p)) is not None and i.carrier_down_count is not None
        ]
        or [0]
    )
    if downs is not None and downs >= usual_downs + 5:
        at_least = "at least " if downs >= SATURATES["link_downed"] else ""
        yield ctx.finding(
            "error",
            f"link went down {at_least}{downs} times, siblings {usual_downs:g}",
            evidence=[Evidence(f"link_downed = {downs}", _counter_line(ctx, port, "link_downed"))],
            causes=[
                Cause("cable or transceiver", "likely", "swap with a sibling port"),
                Cause("switch port", "possible", "counter of the far end"),
            ],
        )
    elif losses is not None and interface is not None and losses >= usual_losses + 5:
        yield ctx.finding(
            "error",
            f"{interface.name} lost its carrier {losses} times, siblings {usual_losses:g}",
            subject=Subject("port", f"{device.name} ({interface.name})", ctx.node),
            evidence=[ctx.fact(interface, "carrier_down_count")],
            causes=[Cause("cable or transceiver", "likely", "swap with a sibling port")],
        )


@rule(
    "ib.counter_saturated",
    "Port counters still count",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=(
        "InfiniBand Architecture Specification: PortCounters saturate",
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    action="perfquery -x (or perfquery -R) to clear; read again after an hour.",
    also=("ib.counter_saturated.*",),
)
def saturated(pair: Pair, ctx: Context) -> Iterator[Finding]:
    """A counter stands at its largest value and tells no more. Only error counters that mean a fault are judged."""
    _, port = pair
    if not port.counters:
        raise ctx.missing("port counters")
    for name in ("link_downed", "link_error_recovery", "symbol_error"):
        if port.counters.get(name) == SATURATES[name]:
            yield ctx.finding(
                "warning",
                f"{name} stands at {SATURATES[name]}, the largest value it can hold",
                id=f"ib.counter_saturated.{name}",
                evidence=[Evidence(f"{name} = {port.counters[name]}", _counter_line(ctx, port, name))],
            )


@rule(
    "ib.errors_above_siblings",
    "Error counters like the siblings'",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint=_IBSTAT,
    sources=("knowledge: ib_counters.yaml", "research: failure mode 36"),
    action="Clear the counters and read the rate; then clean or swap the cable.",
)
def errors(pair: Pair, ctx: Context) -> Finding | None:
    """Symbol errors, receive errors or link recoveries far above the siblings' of the node. Totals without a time are judged by comparison only."""
    device, port = pair
    if not port.counters:
        raise ctx.missing("port counters")
    others = _siblings(ctx.snapshot, port, device)
    high: list[str] = []
    for name in ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors"):
        mine = port.counters.get(name)
        theirs = [p.counters[name] for _, p in others if name in p.counters]
        if mine is not None and len(theirs) >= 2 and mine >= 100 and mine > 20 * (statistics.median(theirs) + 1):
            high.append(name)
    if not high:
        return None
    return ctx.finding(
        "warning",
        f"{', '.join(high)} far above the siblings",
        evidence=[Evidence(f"{name} = {port.counters[name]}", _counter_line(ctx, port, name)) for name in high],
        confidence="medium",
        missing=["the time over which they were counted"],
    )


@rule(
    "ib.netdev_down",
    "Interfaces of active ports are up",
    scope="port",
    family="rdma",
    sop="SOP-IB",
    hint="ip link; grep -r . /sys/class/net",
    sources=("Linux Documentation/networking/operstates.rst",),
    action="Find out why it is down before bringing it up again: carrier losses point to the cable.",
)
def netdev_down(pair: Pair, ctx: Context) -> Finding | None:
    """The port is ACTIVE, its network interface is down: IP over it (bootstrap, storage) fails while verbs may work."""
    device, port = pair
    if port.state != "ACTIVE":
        raise ctx.skip("port is not active")
    interface = _netdev(ctx.snapshot, device, port)
    if interface is None:
        raise ctx.missing("network interface of the port")
    if ctx.need(interface, NetInterface.operstate) != "down":
        return None
    up = [
        i
        for d, p in _siblings(ctx.snapshot, port, device)
        if (i := _netdev(ctx.snapshot, d, p)) is not None and i.operstate == "up"
    ]
    return ctx.finding(
        "error" if up else "info",
        f"{interface.name} is down while the port is ACTIVE" + (f"; {len(up)} sibling interfaces are up" if up else ""),
        subject=Subject("port", f"{device.name} ({interface.name})", ctx.node),
    )
