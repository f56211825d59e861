"""Network interfaces: counters of drops, pause and of the cloud's allowances."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.network import NetInterface

_ETHTOOL = "ethtool -S <interface>, twice, ten seconds apart"
_MLX5 = ("torvalds/linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",)


def _statistics(interface: NetInterface, ctx: Context) -> dict[str, int]:
    if not interface.statistics:
        raise ctx.missing("ethtool statistics")
    return interface.statistics


def _line(ctx: Context, interface: NetInterface, name: str) -> Evidence:
    return Evidence(
        f"{name} = {interface.statistics[name]}", ctx.where(interface, f"statistics/{name}") or ctx.where(interface, "statistics")
    )


@rule(
    "net.rx_discards_phy",
    "NIC does not drop received packets",
    scope="interface",
    family="network",
    sop="SOP-CONG",
    hint=_ETHTOOL,
    sources=_MLX5,
    action="Read the rate. Spread queues and cores; check PCIe width, NUMA and IOMMU of the NIC; for RoCE use PFC on one priority.",
)
def discards(interface: NetInterface, ctx: Context) -> Finding | None:
    """Packets dropped at the port because the host did not take them in time. A share above 1 in 10,000 matters."""
    statistics = _statistics(interface, ctx)
    if "rx_discards_phy" not in statistics:
        raise ctx.skip("driver has no such counter")
    drops, packets = statistics["rx_discards_phy"], statistics.get("rx_packets_phy", 0)
    if drops == 0 or (packets and drops / packets < 1e-4):
        return None
    share = f" ({drops / packets:.1%} of what arrived)" if packets else ""
    return ctx.finding(
        "warning",
        f"{drops} packets dropped at the port{share}",
        evidence=[_line(ctx, interface, n) for n in ("rx_discards_phy", "rx_packets_phy") if n in statistics],
        causes=[
            Cause("slow receiver: CPU, PCIe or IOMMU of this host", "likely", "rx_out_of_buffer grows too"),
            Cause("lossy class without PFC", "possible", "rx_prio*_discards"),
        ],
        missing=["a second reading: totals have no rate"],
    )


@rule(
    "net.rx_out_of_buffer",
    "Receive queues have buffers",
    scope="interface",
    family="network",
    sop="SOP-CONG",
    hint=_ETHTOOL,
    sources=_MLX5,
    action="Longer receive rings (ethtool -G), more queues, interrupts on the NIC's NUMA node.",
)
def out_of_buffer(interface: NetInterface, ctx: Context) -> Finding | None:
    """Packets dropped because software gave the queue no buffers. A share above 1 in 10,000 matters."""
    statistics = _statistics(interface, ctx)
    name = next((n for n in ("rx_out_of_buffer", "out_of_buffer") if n in statistics), None)
    if name is None:
        raise ctx.skip("driver has no such counter")
    packets = max(statistics.get("rx_packets", 0), statistics.get("rx_packets_phy", 0))
    if statistics[name] == 0 or (packets and statistics[name] / packets < 1e-4):
        return None
    return ctx.finding(
        "warning",
        f"{statistics[name]} packets found no receive buffer",
        evidence=[_line(ctx, interface, name)],
        missing=["a second reading: totals have no rate"],
    )


@rule(
    "net.global_pause_sent",
    "Host does not pause the network",
    scope="interface",
    family="network",
    sop="SOP-CONG",
    hint=_ETHTOOL,
    sources=(*_MLX5, "research: section 3, rx against tx pause"),
    action="Find why this host is slow; for RoCE replace global pause by PFC on the RDMA priority.",
)
def pause(interface: NetInterface, ctx: Context) -> Finding | None:
    """This host sent many global pause frames: it is the slow end. Received pause would make it a victim."""
    statistics = _statistics(interface, ctx)
    sent = statistics.get("tx_pause_ctrl_phy", statistics.get("tx_global_pause"))
    if sent is None:
        raise ctx.skip("driver has no such counter")
    packets = statistics.get("rx_packets_phy", 0)
    if sent < 1000 or (packets and sent / packets < 1e-5):
        return None
    names = [n for n in ("tx_pause_ctrl_phy", "tx_global_pause", "tx_global_pause_duration") if n in statistics]
    return ctx.finding(
        "warning",
        f"{sent} global pause frames sent: the receiver cannot keep up",
        evidence=[_line(ctx, interface, n) for n in names],
        causes=["slow receiver: CPU, PCIe, IOMMU or NUMA placement"],
        missing=["a second reading: totals have no rate"],
    )


@rule(
    "net.aws.allowance_exceeded",
    "Instance stays inside its network allowance",
    scope="interface",
    family="network",
    sop="SOP-CONG",
    hint=_ETHTOOL,
    sources=("AWS ENA driver documentation: *_allowance_exceeded",),
    action="Read twice; if it grows, use a larger instance, EFA, or spread the traffic.",
    also=("net.aws.*",),
)
def allowance(interface: NetInterface, ctx: Context) -> Iterator[Finding]:
    """AWS shaped or dropped traffic of this instance at some time. A total since the interface came up, and no NIC fault."""
    statistics = _statistics(interface, ctx)
    names = [n for n in statistics if n.endswith("_allowance_exceeded")]
    if not names:
        raise ctx.skip("no ENA interface")
    for name in names:
        if statistics[name]:
            yield ctx.finding(
                "warning",
                f"{name.removesuffix('_allowance_exceeded').replace('_', ' ')} allowance exceeded {statistics[name]} times since the interface came up",
                id=f"net.aws.{name}",
                evidence=[_line(ctx, interface, name)],
                missing=["a second reading: totals have no rate"],
            )


@rule(
    "net.link_errors",
    "Cable and transceiver are clean",
    scope="interface",
    family="network",
    sop="SOP-IB",
    hint=_ETHTOOL,
    sources=(*_MLX5, "knowledge: ib_counters.yaml (ethtool)"),
    action="Clean or swap cable and transceiver.",
)
def link_errors(interface: NetInterface, ctx: Context) -> Finding | None:
    """CRC or symbol errors at the port, or many link-down events. A few since boot are normal."""
    statistics = _statistics(interface, ctx)
    limits = {"rx_crc_errors_phy": 1000, "rx_symbol_err_phy": 1000, "rx_crc_errors": 1000, "link_down_events_phy": 10}
    present = [n for n in limits if n in statistics]
    if not present:
        raise ctx.skip("driver has no such counter")
    high = [n for n in present if statistics[n] >= limits[n]]
    return (
        ctx.finding(
            "warning",
            "errors of the physical link: " + ", ".join(f"{n} {statistics[n]}" for n in high),
            evidence=[_line(ctx, interface, n) for n in high],
            missing=["a second reading: totals have no rate"],
            confidence="medium",
        )
        if high
        else None
    )
