"""RDMA over Ethernet: GID index, MTU, lossless classes, optical modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.nccl import NcclJob
from kilter.facts.network import Gid, NetInterface, RdmaDevice, RdmaPort

_GIDS = "show_gids; env | grep NCCL"
_NCCL_DOC = "NVIDIA NCCL documentation: NCCL_IB_GID_INDEX (chosen by itself since 2.21), NCCL_IB_ROCE_VERSION_NUM"
_INDEX = "NCCL_IB_GID_INDEX"
_MAX_NAMED = 4

Pair = tuple[RdmaDevice, RdmaPort]


def _is_roce(port: RdmaPort) -> bool | None:
    """Whether the port is Ethernet; None when nothing tells."""
    if port.link_layer is not None:
        return port.link_layer == "Ethernet"
    if any(gid.type == "RoCE v2" or gid.netdev for gid in port.gids or []):
        return True
    return None


def _roce_ports(snapshot: Snapshot) -> list[Pair]:
    """Ethernet RDMA ports that are up, or whose state is not known."""
    return [(d, p) for d in snapshot.rdma or [] for p in d.ports if _is_roce(p) and p.state in (None, "ACTIVE")]


def _name(pair: Pair) -> str:
    device, port = pair
    return device.name if len(device.ports) == 1 else f"{device.name}/{port.number}"


def _names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")


def _interface(snapshot: Snapshot, pair: Pair) -> NetInterface | None:
    device, port = pair
    for interface in snapshot.nics or []:
        if port.netdev is not None and interface.name == port.netdev:
            return interface
    if port.netdev is None and device.pci_address is not None:
        return next((i for i in snapshot.nics or [] if i.pci_address == device.pci_address), None)
    return None


def chosen(pair: Pair, hca: str) -> bool:
    """Whether ``NCCL_IB_HCA`` lets NCCL use a port: ``mlx5_0,mlx5_1:1`` by prefix, ``=`` exactly, ``^`` all but these."""
    device, port = pair
    text = hca.strip()
    if not text:
        return True
    exclude = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    text = text.removeprefix("=")
    hit = False
    for entry in text.split(","):
        name, _, number = entry.strip().partition(":")
        if not name:
            continue
        same = device.name == name if exact else device.name.startswith(name)
        hit = hit or (same and (not number.isdecimal() or int(number) == port.number))
    return hit != exclude


def _settings(case: Case, snapshot: Snapshot) -> list[tuple[str, str, Evidence]]:
    """(value of NCCL_IB_GID_INDEX, NCCL_IB_HCA, where it is set) for the node: its environment, or the log of a job on it."""
    found: list[tuple[str, str, Evidence]] = []
    variables = snapshot.environment.variables or {}
    if _INDEX in variables:
        where = snapshot.where(snapshot.environment.ref(f"variables.{_INDEX}"))
        found.append((variables[_INDEX], variables.get("NCCL_IB_HCA", ""), Evidence(f"{_INDEX}={variables[_INDEX]}", where)))
    for job in case.jobs:
        if _INDEX in job.environment and (not job.nodes or not snapshot.node or snapshot.node in job.nodes):
            ref = job.ref(f"environment/{_INDEX}")
            value = job.environment[_INDEX]
            where = f"{job.source}:{ref[1]}" if ref else job.source
            found.append((value, job.environment.get("NCCL_IB_HCA", ""), Evidence(f"{_INDEX} set to {value}", where)))
    return found


def _is_ipv4(gid: Gid) -> bool:
    groups = gid.gid.lower().split(":")
    return len(groups) == 8 and all(not group.strip("0") for group in groups[:5]) and groups[5] == "ffff"


def _fault(port: RdmaPort, index: int) -> tuple[str, str] | None:
    """(severity, what is wrong) with that index on a port with a known table."""
    gid = next((gid for gid in port.gids or [] if gid.index == index), None)
    if gid is None:
        return "error", f"index {index} does not exist"
    if "v1" in gid.type:
        return "error", f"index {index} is RoCE v1, which cannot be routed"
    if gid.type == "RoCE v2" and not _is_ipv4(gid):
        local = gid.gid.lower().startswith("fe80")
        return ("warning", f"index {index} is a link-local IPv6 address") if local else ("info", f"index {index} is IPv6")
    return None


def _right(port: RdmaPort) -> list[int]:
    return [gid.index for gid in port.gids or [] if gid.type == "RoCE v2" and _is_ipv4(gid)]


def _of_nodes(case: Case, ctx: Context, snapshot: Snapshot, completions: list[Event]) -> tuple[bool, list[Finding]]:
    """(whether a port was judged, findings) of one node."""
    judged, findings = False, []
    for text, hca, origin in _settings(case, snapshot):
        if not re.fullmatch(r"\d{1,4}", text.strip()):
            continue  # -1: NCCL chooses
        index = int(text)
        ports = [
            pair for pair in _roce_ports(snapshot) if pair[1].gids and any(g.type for g in pair[1].gids) and chosen(pair, hca)
        ]
        judged = judged or bool(ports)
        wrong = [(pair, fault) for pair in ports if (fault := _fault(pair[1], index)) is not None]
        if not wrong:
            continue
        severity = max((fault[0] for _, fault in wrong), key=("info", "warning", "error").index)
        right = sorted({tuple(_right(pair[1])) for pair in ports})
        if all(len(one) == 0 for one in right):
            hint = "no port has a RoCE v2 GID of an IPv4 address: give the interfaces their addresses first"
        elif len(right) == 1:
            hint = f"the RoCE v2 IPv4 GID is index {', '.join(map(str, right[0]))}"
        else:
            hint = (
                "the RoCE v2 IPv4 GID has not the same index on all ports: leave the variable unset (NCCL 2.21 or newer chooses)"
            )
        findings.append(
            ctx.finding(
                severity,
                f"{_names([f'{_name(pair)}: {fault[1]}' for pair, fault in wrong])} ({len(wrong)} of {len(ports)} RoCE ports); {hint}",
                subject=Subject("node", "", snapshot.node),
                evidence=[
                    origin,
                    *(Evidence(_table(pair[1]), f"{snapshot.where(pair[1].ref('gids'))}") for pair, _ in wrong[:_MAX_NAMED]),
                    *completions[:2],
                ],
                causes=[
                    Cause("index copied from another machine; the table changes with VLANs, IPv6 and virtual functions", "likely")
                ],
                missing=[] if completions else ["whether a job failed with it (completion status 12)"],
                confidence="high" if severity == "error" else "medium",
            )
        )
    return judged, findings


def _table(port: RdmaPort) -> str:
    shown = [f"{gid.index}: {gid.type or 'type not shown'} {gid.gid}" for gid in (port.gids or [])[:8]]
    return f"GIDs of {port.netdev or f'port {port.number}'}: " + "; ".join(shown)


def _over_ethernet(case: Case, job: NcclJob) -> bool:
    if any(name.endswith("/RoCE") for name in job.ib_devices or []):
        return True
    return any(_roce_ports(snapshot) for snapshot in case.snapshots)


def _chooses(version: str | None) -> bool | None:
    """Whether that NCCL picks the GID itself (2.21 and newer); None when it is not known."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})", version or "")
    return None if match is None else (int(match[1]), int(match[2])) >= (2, 21)


@rule(
    "net.roce.gid_index_wrong",
    "NCCL uses a GID that can be routed",
    scope="case",
    family="rdma",
    sop="SOP-NCCL",
    hint=_GIDS,
    sources=(_NCCL_DOC, "NVIDIA/nccl#426", "Mellanox/mlnx-tools sbin/show_gids"),
    action="Leave NCCL_IB_GID_INDEX unset with NCCL 2.21 or newer; else set the RoCE v2 IPv4 index (show_gids) on all ranks. Prove it with ib_write_bw -x.",
)
def gid_index(case: Case, ctx: Context) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names an entry that is missing, RoCE v1 or not an IPv4 address on a port that NCCL uses.

    Completion status 12 over Ethernet without an index set is a hypothesis only (information): an older NCCL takes entry 0, a link-local
    address; but a dead peer or link gives the same status.
    """
    judged = is_set = False
    completions = [e for e in case.events if e.kind == "nccl.ib.completion" and str(e.code) == "12"]
    by_job = any(_INDEX in job.environment for job in case.jobs)
    for profile in ctx.profiles:
        if not by_job and _INDEX not in (profile.variables or ()):
            continue
        snapshot = case.snapshots[profile.position]
        is_set = is_set or bool(_settings(case, snapshot))
        here, findings = _of_nodes(case, ctx, snapshot, completions)
        judged = judged or here
        yield from findings
    is_set = is_set or by_job
    for job in case.jobs:
        events = [e for e in completions if e.source == job.source]
        if not events or is_set or not _over_ethernet(case, job):
            continue
        judged = True
        itself = _chooses(job.version)
        yield ctx.finding(
            "info",
            f"completion status 12 over Ethernet and no {_INDEX} set: the GID in use may not be one that can be routed",
            subject=Subject("job", job.source),
            evidence=events[:3],
            causes=[
                Cause("peer or link dead", "likely", "port counters of both ends; is the peer alive?"),
                Cause("GID of RoCE v1 or link-local", "unlikely" if itself else "possible", "show_gids; NCCL_IB_GID_INDEX"),
            ],
            contradicts=[f"NCCL {job.version} chooses a RoCE v2 IPv4 GID by itself"] if itself else [],
            missing=["the GID table of the nodes: show_gids"] + (["the NCCL version"] if itself is None else []),
            confidence="low",
        )
    if judged:
        return
    if is_set:
        raise ctx.missing("GID table with RoCE versions", "show_gids")
    if not case.jobs and not any(profile.variables is not None for profile in ctx.profiles):
        raise ctx.missing("environment or NCCL log")
    raise ctx.skip("no GID index is set: NCCL chooses")


@rule(
    "net.roce.v1_in_use",
    "RoCE ports have GIDs that can be routed",
    scope="port",
    family="rdma",
    sop="SOP-NCCL",
    hint="show_gids",
    sources=("Linux Documentation/ABI/stable/sysfs-class-infiniband: gid_attrs/types", _NCCL_DOC),
    action="Give the interface an IPv4 address, and use RoCE v2 (cma_roce_mode for applications of rdma_cm).",
)
def v1_only(pair: Pair, ctx: Context) -> Finding | None:
    """An Ethernet port whose table holds RoCE v1 entries only: RDMA stays inside one layer-2 network."""
    _, port = pair
    if _is_roce(port) is False:
        raise ctx.skip("not an Ethernet port")
    if not _is_roce(port):
        raise ctx.missing("link layer of the port", "ibv_devinfo; show_gids")
    if port.state not in (None, "ACTIVE"):
        raise ctx.skip("port is not active")
    table = ctx.need(port, RdmaPort.gids)
    kinds = {gid.type for gid in table if gid.type}
    if not kinds:
        raise ctx.missing("RoCE versions of the GIDs")
    if any(kind != "IB/RoCE v1" for kind in kinds):
        return None
    return ctx.finding(
        "info", f"all {len(table)} GIDs are RoCE v1", evidence=[Evidence(_table(port), ctx.where(port, "gids"))], reads=False
    )


def roce_mtu(mtu: int) -> int:
    """The RDMA MTU that an Ethernet MTU gives room for: the largest of 256 to 4096 beside 96 bytes of headers (include/rdma/ib_addr.h)."""
    return max((size for size in (256, 512, 1024, 2048, 4096) if size <= mtu - 96), default=0)


def _alike(pairs: list[Pair]) -> list[list[Pair]]:
    """Ports of one adapter type and rate together: a node's other network may be set up otherwise on purpose."""
    groups: dict[tuple[str | None, float | None], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair[0].hca_type, pair[1].rate_gbps), []).append(pair)
    return list(groups.values())


@rule(
    "net.mtu_mismatch",
    "RoCE ports of a node have one MTU",
    scope="node",
    family="rdma",
    sop="SOP-CONG",
    hint="ip -d link; ibv_devinfo",
    sources=("Linux include/rdma/ib_addr.h: iboe_get_mtu",),
    action="Set one MTU on all ports of the RDMA network and on its switches (4200 or more for an RDMA MTU of 4096).",
)
def mtu(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """Ports of one kind differ in MTU, or a port's RDMA MTU is below what its interface gives room for.

    Two ends that differ drop large packets or fall to the smaller size. Ports of another adapter type or rate are another network.
    """
    pairs = _roce_ports(snapshot)
    if snapshot.rdma is None:
        raise ctx.missing("RDMA ports")
    if not pairs:
        raise ctx.skip("no RoCE port that is up")
    known = [(pair, i) for pair in pairs if (i := _interface(snapshot, pair)) is not None and i.mtu]
    if not known and not any(pair[1].active_mtu for pair in pairs):
        raise ctx.missing("MTU of the RoCE interfaces")
    interfaces = {id(pair[1]): i for pair, i in known}
    for group in _alike(pairs):
        sizes = [(pair, i.mtu) for pair in group if (i := interfaces.get(id(pair[1]))) is not None and i.mtu]
        counts = Counter(size for _, size in sizes).most_common()
        if len(counts) > 1:
            majority = counts[0][1] > counts[1][1]
            odd = [(pair, size) for pair, size in sizes if size != counts[0][0]] if majority else sizes
            yield ctx.finding(
                "warning" if majority else "info",
                f"{_names([f'{interfaces[id(pair[1])].name} ({_name(pair)}) {size}' for pair, size in odd])}"
                + (f"; {counts[0][1]} siblings have {counts[0][0]}" if majority else ": siblings with different MTU"),
                evidence=[
                    Evidence(f"{interfaces[id(pair[1])].name}: mtu {size}", ctx.where(interfaces[id(pair[1])], "mtu"))
                    for pair, size in odd
                ],
                causes=[Cause("the interface was set up apart from the others, or its setting was lost at a restart", "likely")],
                confidence="high" if majority else "medium",
            )
    low = []
    for pair, interface in known:
        port = pair[1]
        room = min(roce_mtu(interface.mtu or 0), port.max_mtu or 4096)
        if port.active_mtu is not None and port.active_mtu < room:
            low.append((pair, interface, room))
    if low:
        yield ctx.finding(
            "warning",
            _names(
                [f"{_name(p)}: RDMA MTU {p[1].active_mtu}, {i.name} with {i.mtu} gives room for {room}" for p, i, room in low]
            ),
            subject=Subject("node", "RDMA MTU", ctx.node),
            evidence=[Evidence(f"{_name(p)}: active_mtu {p[1].active_mtu}", ctx.where(p[1], "active_mtu")) for p, _, _ in low],
            causes=[
                Cause("the interface's MTU was raised after the RDMA device came up", "possible", "ibv_devinfo after a reload")
            ],
            confidence="medium",
        )


def _roce_interfaces(snapshot: Snapshot) -> list[list[NetInterface]]:
    """Interfaces under RoCE ports by kind. Where facts on the ports are thin, those whose lossless setting somebody asked for belong to them."""
    pairs = _roce_ports(snapshot)
    groups = [
        list({i.name: i for pair in group if (i := _interface(snapshot, pair)) is not None}.values()) for group in _alike(pairs)
    ]
    if len(groups) <= 1 and not any(pair[0].hca_type for pair in pairs):
        known = {i.name for group in groups for i in group}
        infiniband = {p.netdev for d in snapshot.rdma or [] for p in d.ports if _is_roce(p) is False}
        more = [
            i
            for i in snapshot.nics or []
            if (i.pfc_priorities is not None or i.trust is not None) and i.name not in known and i.name not in infiniband
        ]
        groups = [[i for group in groups for i in group] + more]
    return [group for group in groups if group]


def _setting(interface: NetInterface, field: str) -> str | None:
    value = getattr(interface, field)
    if value is None:
        return None
    return value if isinstance(value, str) else ",".join(map(str, value)) or "none"


def _dropped(interface: NetInterface) -> tuple[str, int] | None:
    """(counter, drops) when a port dropped more than one in 10,000 received packets."""
    drops = interface.statistics.get("rx_discards_phy", 0)
    packets = interface.statistics.get("rx_packets_phy", 0)
    if drops > 0 and (not packets or drops / packets >= 1e-4):
        return "rx_discards_phy", drops
    return None


@rule(
    "net.pfc_mismatch",
    "RoCE ports of a node have one lossless setting",
    scope="node",
    family="rdma",
    sop="SOP-CONG",
    hint="mlnx_qos -i <interface>, for each; grep -r . /sys/class/net/*/ecn",
    sources=("Mellanox/mlnx-tools python/mlnx_qos", "research: SOP-CONG (PFC, ECN and trust equal on the fleet)"),
    action="Set the fabric's lossless priority, trust and ECN alike on all ports; what they should be is the network's policy: ask.",
    also=("net.roce.lossy",),
)
def pfc(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """Lossless priorities (PFC), trust or ECN differ between ports of one kind; or none is set at all while packets are dropped.

    A fabric without PFC and ECN can be meant so (lossy RoCE with adaptive retransmission): without drops nothing is said.
    """
    groups = _roce_interfaces(snapshot)
    flat = [i for group in groups for i in group]
    if not any(i.pfc_priorities is not None or i.trust is not None or i.ecn_priorities is not None for i in flat):
        if snapshot.rdma is not None and not _roce_ports(snapshot):
            raise ctx.skip("no RoCE port that is up")
        raise ctx.missing("lossless settings of the RoCE interfaces")
    words = {"pfc_priorities": "PFC priorities", "trust": "trust", "ecn_priorities": "ECN priorities"}
    for group in groups:
        odd: dict[str, list[str]] = {}
        evidence: list[Evidence] = []
        for field, word in words.items():
            values = [(i, text) for i in group if (text := _setting(i, field)) is not None]
            counts = Counter(text for _, text in values).most_common()
            if len(counts) < 2:
                continue
            majority = counts[0][1] > counts[1][1]
            for interface, text in values:
                if not majority or text != counts[0][0]:
                    odd.setdefault(interface.name or "interface not named", []).append(
                        f"{word} {text}" + (f" (siblings {counts[0][0]})" if majority else "")
                    )
                    evidence.append(Evidence(f"{interface.name}: {word} = {text}", ctx.where(interface, field)))
        if odd:
            yield ctx.finding(
                "warning",
                _names([f"{name}: {', '.join(texts)}" for name, texts in odd.items()]),
                evidence=evidence,
                causes=[Cause("a setting that did not survive a restart, or a port that was left out", "likely")],
            )
    for interface in flat:
        drops = _dropped(interface)
        if interface.pfc_priorities == [] and not interface.ecn_priorities and drops is not None and snapshot.rdma:
            unknown = interface.ecn_priorities is None
            yield ctx.finding(
                "info" if unknown else "warning",
                f"no lossless priority{'' if unknown else ' and no ECN'}, and {drops[1]} received packets were dropped",
                id="net.roce.lossy",
                subject=Subject("interface", interface.name, ctx.node),
                evidence=[
                    ctx.fact(interface, "pfc_priorities"),
                    Evidence(
                        f"{drops[0]} = {drops[1]}",
                        ctx.where(interface, f"statistics/{drops[0]}") or ctx.where(interface, "statistics"),
                    ),
                ],
                causes=[
                    Cause("PFC and ECN were never set, or were lost", "possible"),
                    Cause("lossy by design", "possible", "ask the network"),
                ],
                missing=["the fabric's policy"] + (["ECN: grep -r . /sys/class/net/*/ecn"] if unknown else []),
                confidence="low" if unknown else "medium",
            )


@rule(
    "net.module_alarm",
    "Optical modules are inside their limits",
    scope="node",
    family="rdma",
    sop="SOP-IB",
    hint="ethtool -m <interface>",
    sources=("SFF-8636 and CMIS: alarm and warning flags",),
    action="Clean or reseat the fibre; swap the module with a sibling's to see whether the alarm moves.",
)
def module_alarm(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """The module itself raises an alarm (temperature, voltage, bias, optical power). A warning flag, or a port without link, is information."""
    readings = [s for s in snapshot.samples if s.tool == "ethtool -m"]
    if not readings:
        raise ctx.missing("readings of the modules")
    by_device: dict[str, list[tuple[str, Evidence]]] = {}
    for sample in readings:
        if sample.metric == "module_alarm":
            name = sample.conditions.get("name", "alarm")
            by_device.setdefault(sample.conditions.get("device", ""), []).append(
                (name, Evidence(f"{name}: On", ctx.where(sample)))
            )
    dark = {i.name for i in snapshot.nics or [] if i.carrier is False}
    for device, flags in by_device.items():
        loud = any("alarm" in name.lower() for name, _ in flags) and device not in dark
        yield ctx.finding(
            "warning" if loud else "info",
            _names([name for name, _ in flags]) + ("; the port has no link" if device in dark else ""),
            subject=Subject("interface", device or "interface (not named)", ctx.node),
            evidence=[line for _, line in flags],
            causes=[Cause("dirty or loose fibre, or a module at its end", "likely", "rx_power and tx_power of both ends")],
            confidence="medium",
        )
