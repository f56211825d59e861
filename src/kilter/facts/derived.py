"""What follows from the facts of a node with certainty, and more than one floor asks for."""

from __future__ import annotations

from typing import NamedTuple

from kilter.facts.case import Snapshot
from kilter.facts.pci import PciDevice

REDIRECT = {"ReqRedir", "CmpltRedir"}


def is_guest(snapshot: Snapshot) -> bool:
    """Whether these are a virtual machine's facts: the host says so, or its GPUs are passed through."""
    return snapshot.host.virtualization not in (None, "none") or any(
        gpu.virtualization == "Pass-Through" for gpu in snapshot.accelerators or []
    )


def passes_through(snapshot: Snapshot) -> bool:
    """Whether the boot line turns IOMMU translation off, or on for guests only."""
    options = snapshot.kernel.cmdline_options()
    return (
        options.get("iommu") in ("pt", "off")
        or "off" in (options.get("intel_iommu"), options.get("amd_iommu"))
        or options.get("iommu.passthrough") == "1"
    )


def forces_translation(snapshot: Snapshot) -> bool:
    """Whether the boot line of a bare-metal host turns IOMMU translation on, and nothing in it turns it off again."""
    if snapshot.kernel.cmdline is None or snapshot.host.virtualization not in (None, "none") or passes_through(snapshot):
        return False
    options = snapshot.kernel.cmdline_options()
    return (
        options.get("intel_iommu", "").startswith("on")
        or options.get("amd_iommu", "") in ("on", "force_enable")
        or options.get("iommu") in ("force", "nopt")
        or options.get("iommu.strict") == "1"
    )


def bridges_above(snapshot: Snapshot, address: str) -> list[PciDevice]:
    """The bridges above a function, nearest first."""
    pci = snapshot.pci or {}
    chain: list[PciDevice] = []
    device = pci.get(address)
    while device is not None and device.parent and device.parent in pci and len(chain) < 32:
        device = pci[device.parent]
        chain.append(device)
    return chain


class AcsPaths(NamedTuple):
    """Bridges that redirect peer-to-peer traffic."""

    on_path: dict[str, set[str]]  # bridge -> the GPUs and NICs between which it lies
    off_path: list[str]  # bridges between no GPU and a peer


def _one_domain(a: PciDevice, b: PciDevice, pci: dict[str, PciDevice]) -> bool:
    """Whether two functions below different root ports sit on one NUMA node; where no function tells a node, there is one."""
    known = (None, -1)
    if a.numa_node in known and b.numa_node in known:
        return all(d.numa_node in known for d in pci.values())
    return a.numa_node == b.numa_node


def _translates_itself(end: PciDevice, bridge: PciDevice) -> bool:
    """The bridge lets translated requests pass directly, and the device asks for translations: the set-up for VMs."""
    return "DirectTrans" in (bridge.acs_enabled or []) and end.ats_enabled is True


def redirecting_paths(snapshot: Snapshot) -> AcsPaths:
    """Downstream and root ports with ACS redirect, by whether they lie between a GPU and another GPU or a NIC."""
    pci = snapshot.pci or {}
    redirecting = {a for a, d in pci.items() if d.acs_enabled and REDIRECT & set(d.acs_enabled)}
    if not redirecting:
        return AcsPaths({}, [])
    ends = [d for d in pci.values() if (d.is_accelerator or d.is_nic) and not d.physical_function]
    chains = {d.address: bridges_above(snapshot, d.address) for d in ends}
    on_path: dict[str, set[str]] = {}
    direct: set[str] = set()
    for gpu in (d for d in ends if d.is_accelerator):
        for peer in ends:
            if peer.address == gpu.address or peer.address[:-2] == gpu.address[:-2]:
                continue
            above_gpu, above_peer = chains[gpu.address], chains[peer.address]
            shared = {b.address for b in above_gpu} & {b.address for b in above_peer}
            # Ports between an end and the common bridge; for ends on different root ports the whole chains, when both are in one domain.
            if not shared and not (above_gpu and above_peer and _one_domain(gpu, peer, pci)):
                continue
            for end, chain in ((gpu, above_gpu), (peer, above_peer)):
                for bridge in chain:
                    if bridge.address in shared or bridge.address not in redirecting:
                        continue
                    if _translates_itself(end, bridge):
                        direct.add(bridge.address)
                    else:
                        on_path.setdefault(bridge.address, set()).update((gpu.address, peer.address))
    return AcsPaths(on_path, sorted(redirecting - set(on_path) - direct))
