"""PCIe: links, AER, ACS on the paths that matter, payload sizes, dead configuration space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.accelerator import Accelerator, Reading
from kilter.facts.case import Snapshot
from kilter.facts.derived import REDIRECT, is_guest, redirecting_paths
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.pci import PciDevice, generation
from kilter.knowledge import aer

_LSPCI = "lspci -vvv (as root)"


def _interesting(device: PciDevice) -> bool:
    return device.is_accelerator or device.is_nvswitch or device.is_nic or device.class_code == 0x0108


def _busy(reading: Reading) -> bool:
    """Whether a GPU was working when the reading was taken: an idle GPU lowers its link to save power (NVIDIA open modules #1010)."""
    if reading.performance_state in ("P0", "P1", "P2") and (reading.utilization_percent or 0) > 0:
        return True
    return (reading.utilization_percent or 0) >= 10


@rule(
    "pcie.link.gen_degraded",
    "GPU link runs at full speed under load",
    scope="gpu",
    family="pcie",
    sop="SOP-BUS",
    hint="nvidia-smi -q while the GPU is busy",
    sources=("NVIDIA/open-gpu-kernel-modules#1010 (Gen1 at idle is power saving)", "research: failure mode 30"),
    action="Read again under load; then reseat card, riser or retimer; check firmware settings of the slot.",
)
def gpu_link_speed(gpu: Accelerator, ctx: Context) -> Finding | None:
    """PCIe generation below what this slot and GPU can do, read while the GPU was busy.

    At idle every generation is normal: the link trains up under load. Without a reading under load nothing is said.
    """
    best = ctx.need(gpu, Accelerator.link_generation_max)
    readings = [r for r in gpu.readings if r.link_generation is not None]
    if not readings:
        raise ctx.missing("current PCIe generation")
    if any(r.link_generation is not None and r.link_generation >= best for r in readings):
        return None
    busy = [r for r in readings if _busy(r)]
    if not busy:
        raise ctx.missing("PCIe generation under load (only idle readings were given)", "nvidia-smi -q while the GPU is busy")
    worst = min(r.link_generation for r in busy if r.link_generation is not None)
    return ctx.finding(
        "error",
        f"PCIe Gen{worst} under load, Gen{best} possible",
        evidence=[ctx.fact(busy[0], "link_generation"), ctx.fact(busy[0], "utilization_percent")],
        causes=[
            Cause("bad contact, riser or retimer", "likely", "AER counts, other slot"),
            Cause("link speed limited in firmware or by the driver", "possible", "same on all GPUs of this model"),
        ],
    )


@rule(
    "pcie.link.width_degraded",
    "GPU link has full width",
    scope="gpu",
    family="pcie",
    sop="SOP-BUS",
    hint="nvidia-smi -q",
    sources=("research: failure mode 30",),
    action="Reseat the card; check riser and cable; compare with the same slot of a sibling node.",
)
def gpu_link_width(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Lane width below the width that the GPU can do. Unlike speed, width is not lowered to save power.

    Clouds and desktop boards offer x8 by design (AWS g4dn and g5, bifurcated slots). So it is an error when siblings of the same model have
    more lanes, when the port above can do more, or on SXM modules, which always have 16; otherwise it is information.
    """
    best = ctx.need(gpu, Accelerator.link_width_max)
    widths = [(r.link_width, r) for r in gpu.readings if r.link_width]
    if not widths:
        raise ctx.missing("current PCIe width")
    if any(width >= best for width, _ in widths):
        return None
    width, reading = widths[0]
    siblings = [
        r.link_width
        for a in ctx.snapshot.accelerators or []
        if a is not gpu and a.name == gpu.name
        for r in a.readings
        if r.link_width
    ]
    pci = ctx.snapshot.pci or {}
    device = pci.get(gpu.pci_address or "")
    port = pci.get(device.parent or "") if device is not None else None
    name = gpu.name or ""
    module = "SXM" in name or "HBM3" in name or "H200" in name or "B200" in name
    if any(w > width for w in siblings):
        severity, why = "error", f", siblings have x{max(siblings)}"
    elif port is not None and port.link_width_max is not None and port.link_width_max > width:
        severity, why = "error", f", the port above can do x{port.link_width_max}"
    elif module and not (gpu.virtualization or "").startswith("VGPU"):
        severity, why = "error", ""
    else:
        severity, why = "info", "; many clouds and boards offer no more"
    return ctx.finding(
        severity,
        f"PCIe x{width}, the GPU can do x{best}{why}",
        evidence=[ctx.fact(reading, "link_width")],
        causes=["dead lane: contact, riser or slot", "slot wired or bifurcated to fewer lanes"],
        confidence="high" if severity == "error" else "low",
        missing=[] if severity == "error" else ["how many lanes the slot has (lspci -vvv of the port above)"],
    )


@rule(
    "pcie.link.gen_capped_by_platform",
    "Platform offers the GPU's PCIe generation",
    scope="gpu",
    family="pcie",
    hint="nvidia-smi -q (R520 or newer prints Device Max)",
    sources=("nvidia-smi -q: PCIe Generation Max / Device Max / Host Max",),
    action="Nothing, if the board or hypervisor offers no more; else set the slot's link speed to Auto in firmware.",
)
def gpu_link_capped(gpu: Accelerator, ctx: Context) -> Finding | None:
    """The GPU could run a newer generation than the slot offers. A property of the platform, not a fault."""
    device = ctx.need(gpu, Accelerator.link_generation_device_max)
    best = ctx.need(gpu, Accelerator.link_generation_max)
    return (
        ctx.finding("info", f"GPU can do PCIe Gen{device}, this slot offers Gen{best}", confidence="high")
        if best < device
        else None
    )


@rule(
    "pcie.replay_high",
    "PCIe replays below the rate limit",
    scope="gpu",
    family="pcie",
    sop="SOP-BUS",
    hint="nvidia-smi -q twice, a minute apart",
    sources=("NVIDIA/DCGM 4.6.0 health watch: replay limits per lane and minute",),
    action="Reseat card, riser or cable; watch the rate.",
)
def replays(gpu: Accelerator, ctx: Context) -> Finding | None:
    """PCIe replays against DCGM's limit of the link (Gen5 x16: 31 a minute), averaged since boot.

    The count has no meaning without its time: with an uptime the average rate is judged, else nothing is said.
    """
    count = ctx.need(gpu, Accelerator.replays)
    if count == 0:
        return None
    uptime = ctx.snapshot.host.uptime_s
    limit = aer.replay_limit(gpu.link_generation_max or 0, gpu.link_width_max or 0)
    if limit is None:
        raise ctx.missing("PCIe generation and width")
    if uptime is None or uptime <= 0:
        raise ctx.missing("time over which the replays were counted")
    rate = count / max(uptime / 60, 1.0)
    return ctx.finding("warning", f"{rate:.1f} PCIe replays a minute on average, limit {limit}") if rate > limit else None


def _leads_to_work(device: PciDevice, snapshot: Snapshot) -> bool:
    """Whether a switch's upstream port has a GPU, NIC or NVSwitch below it."""
    low, high = device.secondary_bus, device.subordinate_bus
    if device.port_type != "upstream port" or low is None or high is None:
        return False
    domain = device.address.rsplit(":", 2)[0]
    return any(
        d.address.rsplit(":", 2)[0] == domain and low <= int(d.address.rsplit(":", 2)[1], 16) <= high
        for d in (snapshot.pci or {}).values()
        if d.is_accelerator or d.is_nic or d.is_nvswitch
    )


@rule(
    "pcie.link.degraded",
    "PCIe links at their best",
    scope="pci",
    family="pcie",
    sop="SOP-BUS",
    hint=_LSPCI,
    sources=("lspci LnkCap/LnkSta", "research: failure mode 30"),
    action="Reseat the card or cable; compare with the same slot of a sibling node.",
)
def link_degraded(device: PciDevice, ctx: Context) -> Finding | None:
    """A NIC, NVSwitch, NVMe, or a switch above GPUs and NICs trained below what both ends of its link can do; of GPUs only the width is judged.

    A slot of fewer lanes or an older generation is the platform's property, so the best of the link is the lower of both ends. When the
    upstream end is not in the listing, the device's own capability alone proves nothing and only information is given. The speed of a
    GPU's link falls at idle and is judged by readings under load instead.
    """
    if device.physical_function or not (_interesting(device) or _leads_to_work(device, ctx.snapshot)):
        raise ctx.skip("no link that matters")
    if device.config_readable is False:
        raise ctx.skip("configuration space is dead")
    speed, width = ctx.need(device, PciDevice.link_speed_gts), ctx.need(device, PciDevice.link_width)
    best_speed, best_width = ctx.need(device, PciDevice.link_speed_max_gts), ctx.need(device, PciDevice.link_width_max)
    parent = (ctx.snapshot.pci or {}).get(device.parent or "")
    both = parent is not None and parent.link_speed_max_gts is not None and parent.link_width_max is not None
    if parent is not None and both:
        best_speed = min(best_speed, parent.link_speed_max_gts or best_speed)
        best_width = min(best_width, parent.link_width_max or best_width)
    if device.is_accelerator:
        best_speed = speed
    if (speed >= best_speed and width >= best_width) or width == 0:
        return None
    ends = "both ends can do" if both else "the device can do"
    name = device.description or device.class_name or "device"
    return ctx.finding(
        "warning" if both else "info",
        f"{name}: PCIe Gen{generation(speed) or '?'} x{width}, {ends} Gen{generation(best_speed) or '?'} x{best_width}",
        confidence="high" if both else "low",
        missing=[] if both else ["capability of the port above it: a slot with fewer lanes looks the same"],
    )


@rule(
    "pcie.link.below_siblings",
    "PCIe links of like devices are alike",
    scope="node",
    family="pcie",
    sop="SOP-BUS",
    hint=_LSPCI,
    sources=("research: failure mode 30; comparison of siblings",),
    action="Reseat the card or cable; compare the slot's settings with its siblings'.",
)
def link_siblings(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """One NIC or NVMe of three or more of its kind has a slower or narrower PCIe link than the others: needs no capability to be seen.

    Of GPUs the width alone is compared, since an idle GPU lowers its speed.
    """
    pci = snapshot.pci
    if pci is None:
        raise ctx.missing("PCI links")
    rdma = {d.pci_address: d.hca_type for d in snapshot.rdma or [] if any(p.link_layer == "InfiniBand" for p in d.ports)}
    kinds: dict[tuple[object, ...], list[PciDevice]] = {}
    for device in pci.values():
        if device.physical_function or device.link_width is None or device.link_speed_gts is None or not device.link_width:
            continue
        if device.address in rdma:
            kinds.setdefault(("RDMA device", rdma[device.address], device.device_id), []).append(device)
        elif device.is_accelerator or device.is_nic or device.class_code == 0x0108:
            kinds.setdefault((device.class_name or device.class_code, device.vendor_id, device.device_id), []).append(device)
    some = False
    for kind, devices in kinds.items():
        if len(devices) < 3 or (kind[-1] is None and kind[0] != "RDMA device"):
            continue
        some = True
        links = Counter((0.0 if d.is_accelerator else d.link_speed_gts or 0.0, d.link_width or 0) for d in devices)
        (speed, width), number = links.most_common(1)[0]
        for device in devices:
            own = (0.0 if device.is_accelerator else device.link_speed_gts or 0.0, device.link_width or 0)
            if number >= 2 * (len(devices) - number) and (own[0] < speed or own[1] < width):
                yield ctx.finding(
                    "warning",
                    f"PCIe Gen{generation(device.link_speed_gts) or '?'} x{device.link_width}, {number} siblings Gen{generation(speed or device.link_speed_gts) or '?'} x{width}",
                    subject=Subject("pci", device.address, snapshot.node),
                    evidence=[ctx.fact(device, "link_speed_gts"), ctx.fact(device, "link_width")],
                )
    if not some:
        raise ctx.skip("fewer than three devices of one kind with a known link")


@rule(
    "pcie.device_config_space_ff",
    "Configuration space readable",
    scope="pci",
    family="pcie",
    sop="SOP-BUS",
    hint="lspci -nn",
    sources=("PCI: a device that does not answer reads all ones; lspci prints rev ff",),
    action="Drain; reboot, cold if it stays away; then reseat card, riser and power cables.",
)
def config_space(device: PciDevice, ctx: Context) -> Finding | None:
    """A function reads all ones: it no longer answers on the bus."""
    if device.config_readable is not False:
        return None
    ctx.known(device, PciDevice.config_readable)
    # The audio function of a lost GPU says nothing more than the GPU itself.
    main = (ctx.snapshot.pci or {}).get(device.address[:-1] + "0")
    if main is not None and main is not device and main.config_readable is False:
        raise ctx.skip("another function of a device that is already reported")
    severity = "critical" if _interesting(device) or device.is_bridge else "warning"
    return ctx.finding(
        severity,
        f"{device.description or device.class_name or 'PCI function'} no longer answers: configuration space reads all ones",
    )


@rule(
    "pcie.aer_errors",
    "No uncorrectable PCIe error counted",
    scope="pci",
    family="pcie",
    sop="SOP-BUS",
    hint="grep -r . /sys/bus/pci/devices/*/aer_dev_*",
    sources=("Linux Documentation/ABI/testing/sysfs-bus-pci-devices-aer", "knowledge: aer.yaml"),
    action="Look at both ends of the link: the device that reports is the one that noticed, not always the one at fault.",
    also=("pcie.aer_corrected_rate",),
)
def aer_counts(device: PciDevice, ctx: Context) -> Iterator[Finding]:
    """AER counters since boot: uncorrectable errors, or corrected ones at a rate that tells of a bad link.

    Latched status bits (CESta, UESta of lspci) are history without a time and are never a finding by themselves.
    """
    if not device.aer_counts:
        raise ctx.missing("AER counters") if _interesting(device) else ctx.skip("no AER counters")
    bad = {
        k: v
        for k, v in device.aer_counts.items()
        if v and not k.startswith("correctable/") and "TOTAL" not in k and not k.endswith("/UnsupReq")
    }
    if bad:
        fatal = any(k.startswith("fatal/") for k in bad)
        names = ", ".join(f"{k.split('/')[1]} x{v}" for k, v in sorted(bad.items()))
        hints = [entry for k in bad if (entry := aer.lookup(k.split("/")[1])) is not None]
        yield ctx.finding(
            "error" if fatal else "warning",
            f"uncorrectable PCIe errors since boot: {names}",
            evidence=[Evidence(f"{k} = {v}", ctx.where(device, "aer_counts")) for k, v in sorted(bad.items())],
            causes=[Cause(f"{h.name}: {h.cause}") for h in hints[:3]],
        )
    corrected = sum(
        v
        for k, v in device.aer_counts.items()
        if k.startswith("correctable/") and "TOTAL" not in k and not k.endswith("/NonFatalErr")
    )
    uptime = ctx.snapshot.host.uptime_s
    if corrected and uptime:
        rate = corrected / max(uptime / 60, 1.0)
        if rate > 1.0:
            yield ctx.finding(
                "warning",
                f"{rate:.1f} corrected PCIe errors a minute since boot: signal integrity",
                id="pcie.aer_corrected_rate",
                evidence=[Evidence(f"{corrected} corrected errors", ctx.where(device, "aer_counts"))],
            )


def _acs_line(ctx: Context, device: PciDevice) -> Evidence:
    bits = " ".join(b + "+" for b in device.acs_enabled or [])
    return Evidence(f"{device.address} {device.description or ''} ACSCtl: {bits}", ctx.where(device, "acs_enabled"))


@rule(
    "pcie.acs_enabled",
    "ACS does not redirect peer-to-peer traffic",
    scope="node",
    family="pcie",
    sop="SOP-SW",
    hint=_LSPCI,
    sources=(
        "NVIDIA NCCL documentation, troubleshooting: PCI Access Control Services",
        "NVIDIA/nccl#2079, #304, #949, #928",
        "PCI Express Base Specification: ACS P2P Request/Completion Redirect, Direct Translated P2P",
    ),
    action="On bare metal: turn ACS redirect off on the bridges of the path (firmware, or setpci at boot). In VMs it isolates tenants: use ATS instead.",
    also=("pcie.acs_off_path", "vm.p2p_via_host"),
)
def acs(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """ACS request or completion redirect on a switch port between a GPU and its peer sends peer-to-peer traffic up through the root complex.

    Judged by path: only downstream ports (or root ports) that lie between two GPUs, or a GPU and a NIC, below a common bridge matter.
    SrcValid alone redirects nothing. Bits elsewhere are one line of information. On a host that passes its GPUs to VMs redirect is needed;
    there ATS in the adapters with Direct Translated P2P in the ports gives the direct way back, and its lack is the finding.
    """
    if snapshot.pci is None:
        raise ctx.missing("PCI listing with capabilities")
    pci = snapshot.pci
    if is_guest(snapshot) and not any(d.acs_enabled and REDIRECT & set(d.acs_enabled) for d in pci.values()):
        raise ctx.missing(
            "ACS of the host's bridges, which a guest does not see: peer-to-peer traffic may go through the host all the same",
            "lspci -vvv on the host; p2pBandwidthLatencyTest in the guest",
        )
    if not any(d.acs_enabled is not None for d in pci.values()):
        if all(d.has_acs is None for d in pci.values()):
            raise ctx.missing("ACS control of the bridges", _LSPCI)
        return
    on_path, off_path = redirecting_paths(snapshot)
    if on_path:
        inside_switch = [a for a in on_path if "root" not in (pci[a].port_type or "")]
        names = sorted({e for ends_ in on_path.values() for e in ends_})
        passed = [e for e in names if pci[e].driver == "vfio-pci"]
        yield ctx.finding(
            "info" if passed else "warning",
            f"ACS redirect is on at {len(on_path)} bridge(s) between GPUs and their peers: peer-to-peer traffic goes through the root complex",
            evidence=[_acs_line(ctx, pci[a]) for a in sorted(on_path)],
            causes=[
                Cause("firmware or IOMMU turned ACS on", "possible" if passed else "likely", "kernel boot line, BIOS setting"),
                Cause("a hypervisor needs it to isolate VMs", "likely" if passed else "possible", "virtualisation on this host"),
            ],
            confidence="high" if inside_switch else "medium",
            next_test=f"NCCL_NET_GDR_LEVEL=0 or NCCL_P2P_DISABLE=1 as a test only; then ACS off and p2pBandwidthLatencyTest between {', '.join(names[:4])}",
        )
        if passed and inside_switch:
            yield ctx.finding(
                "warning",
                f"{len(passed)} devices are passed to VMs, and their peer-to-peer traffic goes through the host's root complex: ATS or Direct Translated P2P is off",
                id="vm.p2p_via_host",
                evidence=[
                    *[_acs_line(ctx, pci[a]) for a in sorted(on_path)[:6]],
                    *[
                        Evidence(f"{e} {pci[e].description or ''} ATSCtl: Enable-", ctx.where(pci[e], "ats_enabled"))
                        for e in passed
                        if pci[e].ats_enabled is False
                    ],
                ],
                action="Enable ATS in the adapters' firmware (mlxconfig ATS_ENABLED=1) and Direct Translated P2P in the ACS control of the switch ports.",
                missing=[] if any(pci[e].has_ats for e in passed) else ["ATS capability of the devices"],
                confidence="medium",
            )
    if off_path:
        yield ctx.finding(
            "info",
            f"ACS redirect is on at {len(off_path)} bridge(s) that are not between a GPU and a GPU or NIC: harmless",
            id="pcie.acs_off_path",
            evidence=[_acs_line(ctx, pci[a]) for a in off_path[:6]],
            action="Nothing.",
        )


@rule(
    "pcie.max_payload_mismatch",
    "Payload size is not lowered on a path",
    scope="pci",
    family="pcie",
    sop="SOP-SW",
    hint=_LSPCI,
    sources=(
        "Linux Documentation/admin-guide/kernel-parameters.txt: pci=pcie_bus_perf",
        "PCI Express Base Specification: Max_Payload_Size",
    ),
    action="Set the same payload size in firmware, or boot with pci=pcie_bus_perf; a device above its port's size risks malformed TLPs.",
)
def payload(device: PciDevice, ctx: Context) -> Finding | None:
    """Max payload size in force differs between a device and the port above it.

    Larger at the device than at the port is an error (malformed TLPs); smaller costs a little bandwidth and is not reported.
    """
    if not _interesting(device) or device.physical_function:
        raise ctx.skip("no path that matters")
    if device.config_readable is False:
        raise ctx.skip("configuration space is dead")
    size = ctx.need(device, PciDevice.max_payload_bytes)
    parent = (ctx.snapshot.pci or {}).get(device.parent or "")
    if parent is None or parent.max_payload_bytes is None:
        raise ctx.missing("max payload size of the port above")
    if size <= parent.max_payload_bytes:
        return None
    ctx.need(parent, PciDevice.max_payload_bytes)
    return ctx.finding("error", f"max payload {size} bytes, the port above ({parent.address}) accepts {parent.max_payload_bytes}")


@rule(
    "pcie.bar1_small",
    "BAR1 covers the GPU's memory",
    scope="gpu",
    family="pcie",
    sop="SOP-SW",
    hint="nvidia-smi -q -d MEMORY",
    sources=("NVIDIA GPUDirect RDMA documentation: BAR1 size bounds pinned memory",),
    action="Turn on Above 4G Decoding and Resizable BAR in firmware.",
)
def bar1(gpu: Accelerator, ctx: Context) -> Finding | None:
    """BAR1 far smaller than memory on a data-center GPU: GPUDirect RDMA can pin only that much. 256 MiB means no large BAR at all."""
    total = ctx.need(gpu, Accelerator.memory_total_mib)
    bar = ctx.need(gpu, Accelerator.bar1_total_mib)
    name = gpu.name or ""
    if "GeForce" in name or "RTX" in name or (gpu.virtualization or "").startswith("VGPU") or bar == 0:
        raise ctx.skip("workstation or virtual GPU")
    return ctx.finding("info", f"BAR1 is {bar} MiB for {total} MiB of memory") if bar <= 256 and total >= 16000 else None
