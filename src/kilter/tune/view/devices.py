"""Facts of GPUs, the PCIe tree and network adapters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kilter.facts.accelerator import Accelerator
from kilter.facts.derived import redirecting_paths
from kilter.facts.network import RdmaPort
from kilter.facts.pci import PciDevice
from kilter.knowledge import gpus as gpu_table
from kilter.tune.expression import version_key
from kilter.tune.view import ABSENT, View, fact, one

_SMI = "nvidia-smi -q"
_LSPCI = "lspci -vvv (as root)"


def _spec(gpu: Accelerator) -> gpu_table.GpuSpec | None:
    return gpu_table.for_device(pci_device_id=gpu.pci_device_id, name=gpu.name, memory_mib=gpu.memory_total_mib)


def pci_accelerators(v: View) -> list[PciDevice]:
    """Physical accelerators that lspci or /sys shows."""
    return [d for d in (v.snapshot.pci or {}).values() if d.is_accelerator]


@fact("gpu.count", "number", "GPUs of the node", how=_SMI)
def _count(v: View) -> int | None:
    if v.gpus is None:
        if on_bus := pci_accelerators(v):
            v.saw(f"{len(on_bus)} GPUs on the PCI bus", on_bus[0].ref(""))
            return len(on_bus)
        return v.workload.gpus_per_node
    v.saw(f"{len(v.gpus)} GPUs", v.gpus[0].ref("name") if v.gpus else None)
    return len(v.gpus)


@fact("gpu.vendor", "text", "maker of the accelerators", how=_SMI, values=("nvidia", "kunlunxin"))
def _vendor(v: View) -> str | None:
    return one({gpu.vendor for gpu in v.gpus or []})


@fact("gpu.model", "text", "product name", how=_SMI)
def _model(v: View) -> str | None:
    name = one({gpu.name for gpu in v.gpus or [] if gpu.name})
    if name and v.gpus:
        v.saw(f"GPU: {name}", v.gpus[0].ref("name"))
    return name


@fact(
    "gpu.sm",
    "number",
    "compute capability times 10: 90 is Hopper, 100 Blackwell",
    how="nvidia-smi --query-gpu=index,name,compute_cap --format=csv",
)
def _sm(v: View) -> int | None:
    found: set[int] = set()
    for gpu in v.gpus or []:
        spec = _spec(gpu)
        text = gpu.compute_capability or (spec.cc if spec is not None else None)
        if text is not None:
            found.add(round(float(text) * 10))
    sm = one(found)
    if sm is not None and v.gpus:
        v.saw(f"{v.gpus[0].name}: compute capability {sm / 10}", v.gpus[0].ref("name"))
    return sm


@fact(
    "gpu.nvlink",
    "text",
    "what joins the GPUs of a node",
    how="nvidia-smi topo -m; nvidia-smi nvlink -s",
    values=("none", "bridge", "nvswitch"),
)
def _nvlink(v: View) -> str | None:
    if v.gpus is None:
        return None
    if v.snapshot.nvswitches or any(d.is_nvswitch for d in (v.snapshot.pci or {}).values()):
        v.saw("there are NVSwitches")
        return "nvswitch"
    rows = v.snapshot.topology.links if v.snapshot.topology else {}
    words = [
        word
        for row, columns in rows.items()
        for column, word in columns.items()
        if row.startswith("GPU") and column.startswith("GPU") and row != column
    ]
    if words:
        joined = sum(word.startswith("NV") for word in words)
        v.saw(f"topo -m: {joined} of {len(words)} pairs of GPUs are joined by NVLink")
        return "none" if not joined else "nvswitch" if joined == len(words) and len(v.gpus) > 4 else "bridge"
    for gpu in v.gpus:
        expected = gpu_table.expected_nvlinks(pci_device_id=gpu.pci_device_id, name=gpu.name)
        if expected is not None and expected.count and not expected.optional:
            v.saw(f"{gpu.name} has {expected.count} NVLinks", gpu.ref("name"))
            return "nvswitch" if len(v.gpus) > 4 or _is_grace(gpu) else "bridge"
        spec = _spec(gpu)
        if spec is not None and not spec.nvlink_gb_s:
            v.saw(f"{gpu.name} has no NVLink", gpu.ref("name"))
            return "none"
    return None


_GRACE = re.compile(r"\b(?:GH200|GB200|GB300|GB10)\b", re.I)


def _is_grace(gpu: Accelerator) -> bool:
    return bool(_GRACE.search(gpu.name or ""))


@fact("gpu.c2c", "bool", "whether GPUs hang on the CPU by NVLink-C2C (Grace)", how="nvidia-smi -q (C2C Mode)")
def _c2c(v: View) -> bool | None:
    if v.snapshot.kernel.arch == "x86_64":
        v.saw("architecture: x86_64", v.snapshot.kernel.ref("arch"))
        return False
    if not v.gpus:
        found = [gpu_table.product(pci_device_id=device.device_id) for device in pci_accelerators(v)]
        return False if found and all(one is not None and not _GRACE.search(one.key) for one in found) else None
    if any((gpu.c2c_mode or "").lower() == "enabled" or _is_grace(gpu) for gpu in v.gpus):
        v.saw(f"{v.gpus[0].name}: NVLink-C2C", v.gpus[0].ref("c2c_mode") or v.gpus[0].ref("name"))
        return True
    return False if all(gpu.name for gpu in v.gpus) else None


@fact("gpu.mnnvl", "bool", "whether an NVLink domain spans nodes (GB200/GB300 NVL72)", how="nvidia-smi -q (Fabric)")
def _mnnvl(v: View) -> bool | None:
    if not v.gpus:
        return None
    null = "00000000-0000-0000-0000-000000000000"
    if any(gpu.fabric_cluster_uuid not in (None, "", "N/A", null) for gpu in v.gpus) or any(
        word in (gpu.name or "").upper() for gpu in v.gpus for word in ("GB200", "GB300")
    ):
        v.saw(
            f"{v.gpus[0].name}: NVLink domain over several nodes", v.gpus[0].ref("fabric_cluster_uuid") or v.gpus[0].ref("name")
        )
        return True
    return False if all(gpu.name for gpu in v.gpus) else None


@fact("gpu.driver", "version", "version of the kernel driver", how=_SMI)
def _driver(v: View) -> str | None:
    value = v.read(v.snapshot.software, "driver_version")
    return str(value) if value else None


@fact(
    "gpu.driver_flavour",
    "text",
    "open or proprietary kernel modules",
    how="cat /proc/driver/nvidia/version",
    values=("open", "proprietary"),
)
def _flavour(v: View) -> str | None:
    value = v.read(v.snapshot.software, "driver_flavour")
    return str(value) if value in ("open", "proprietary") else None


@fact("gpu.persistence", "bool", "whether the driver stays loaded without clients, on all GPUs", how=_SMI)
def _persistence(v: View) -> bool | None:
    return _all(v, "persistence_mode")


@fact("gpu.ecc", "bool", "whether ECC is on, on all GPUs that have it", how=_SMI)
def _ecc(v: View) -> bool | None:
    return _all(v, "ecc_mode")


@fact("gpu.mig", "bool", "whether MIG is on, on any GPU", how=_SMI)
def _mig(v: View) -> bool | None:
    known = [gpu for gpu in v.gpus or [] if gpu.mig_mode is not None]
    for gpu in known:
        if gpu.mig_mode:
            v.saw(f"{gpu.label}: MIG enabled", gpu.ref("mig_mode"))
            return True
    return False if known else None


def _all(v: View, field: str) -> bool | None:
    known = [gpu for gpu in v.gpus or [] if getattr(gpu, field) is not None]
    if not known:
        return None
    odd = [gpu for gpu in known if not getattr(gpu, field)]
    for gpu in (odd or known)[:2]:
        v.saw(f"{gpu.label}: {field.replace('_', ' ')} {'off' if odd else 'on'}", gpu.ref(field))
    return not odd


@fact("gpu.compute_mode", "text", "who may use a GPU", how=_SMI)
def _compute_mode(v: View) -> str | None:
    mode = one({gpu.compute_mode for gpu in v.gpus or [] if gpu.compute_mode})
    return mode.replace(" ", "_").upper() if mode else None


@fact("gpu.power_capped", "bool", "whether a GPU's power limit is below its default", how=_SMI)
def _capped(v: View) -> bool | None:
    known = [gpu for gpu in v.gpus or [] if gpu.power_limit_w and gpu.power_limit_default_w]
    for gpu in known:
        if (gpu.power_limit_w or 0) < (gpu.power_limit_default_w or 0) - 1:
            v.saw(
                f"{gpu.label}: power limit {gpu.power_limit_w:g} W, default {gpu.power_limit_default_w:g} W",
                gpu.ref("power_limit_w"),
            )
            return True
    return False if known else None


@fact("gpu.bar1_small", "bool", "whether BAR1 is smaller than a GPU's memory", how=_SMI)
def _bar1(v: View) -> bool | None:
    known = [gpu for gpu in v.gpus or [] if gpu.bar1_total_mib and gpu.memory_total_mib]
    for gpu in known:
        if (gpu.bar1_total_mib or 0) < (gpu.memory_total_mib or 0):
            v.saw(f"{gpu.label}: BAR1 {gpu.bar1_total_mib} MiB of {gpu.memory_total_mib} MiB", gpu.ref("bar1_total_mib"))
            return True
    return False if known else None


@fact("pcie.acs_redirect", "bool", "whether ACS sends traffic between GPUs and their peers through the root complex", how=_LSPCI)
def _acs(v: View) -> bool | None:
    pci = v.snapshot.pci
    if pci is None or not any(d.acs_enabled is not None for d in pci.values()):
        return None
    on_path = redirecting_paths(v.snapshot).on_path
    for address in sorted(on_path)[:4]:
        bits = " ".join(f"{bit}+" for bit in pci[address].acs_enabled or [])
        v.saw(f"{address} ACSCtl: {bits}", pci[address].ref("acs_enabled"))
    return bool(on_path)


def acs_bridges(v: View) -> list[str]:
    """Bridges between a GPU and a peer that redirect."""
    return sorted(redirecting_paths(v.snapshot).on_path)


@fact("pcie.mrrs_low", "bool", "whether a NIC of 100 Gbit/s or more reads host memory in requests below 4096 bytes", how=_LSPCI)
def _mrrs(v: View) -> bool | None:
    known = [d for d in _fast_nics(v) if d[1].mrrs_bytes is not None]
    for name, device in known:
        if (device.mrrs_bytes or 0) < 4096:
            v.saw(f"{name} {device.address}: MaxReadReq {device.mrrs_bytes}", device.ref("mrrs_bytes"))
            return True
    return False if known else None


def low_mrrs_nics(v: View) -> list[str]:
    """Addresses of the NICs that :func:`_mrrs` means."""
    return [device.address for _, device in _fast_nics(v) if device.mrrs_bytes is not None and device.mrrs_bytes < 4096]


def _fast_nics(v: View) -> Iterator[tuple[str, PciDevice]]:
    pci = v.snapshot.pci or {}
    for rdma in v.snapshot.rdma or []:
        device = pci.get(rdma.pci_address or "")
        if device is not None and any((port.rate_gbps or 0) >= 100 for port in rdma.ports):
            yield rdma.name, device


@fact("pcie.payload_low", "bool", "whether a GPU or its bridge uses a smaller payload than both could", how=_LSPCI)
def _payload(v: View) -> bool | None:
    pci = v.snapshot.pci or {}
    known = [d for d in pci.values() if (d.is_accelerator or d.is_nic) and d.max_payload_bytes and d.max_payload_supported_bytes]
    for device in known:
        above = pci.get(device.parent or "")
        limit = device.max_payload_supported_bytes or 0
        if above is not None and above.max_payload_supported_bytes:
            limit = min(limit, above.max_payload_supported_bytes)
        if (device.max_payload_bytes or 0) < limit:
            v.saw(f"{device.address}: MaxPayload {device.max_payload_bytes} of {limit}", device.ref("max_payload_bytes"))
            return True
    return False if known else None


@fact("pcie.link_narrow", "bool", "whether a GPU or RDMA NIC has fewer lanes than it and its bridge could", how=_LSPCI)
def _narrow(v: View) -> bool | None:
    pci = v.snapshot.pci or {}
    known = [d for d in pci.values() if (d.is_accelerator or d.is_nic) and d.link_width and d.link_width_max]
    for device in known:
        above = pci.get(device.parent or "")
        limit = min(device.link_width_max or 0, (above.link_width_max if above is not None else None) or 32)
        if (device.link_width or 0) < limit:
            v.saw(f"{device.address}: x{device.link_width} of x{limit}", device.ref("link_width"))
            return True
    return False if known else None


@fact("nic.rdma", "bool", "whether there are RDMA devices", how="ibv_devinfo")
def _rdma(v: View) -> bool | None:
    if v.snapshot.rdma is None:
        return True if any(job.ib_devices for job in v.jobs) else None
    v.saw(f"{len(v.snapshot.rdma)} RDMA devices", v.snapshot.rdma[0].ref("") if v.snapshot.rdma else None)
    return bool(v.snapshot.rdma)


@fact("nic.count", "number", "RDMA devices with an active port", how="ibv_devinfo")
def _nics(v: View) -> int | None:
    if v.snapshot.rdma is None:
        return None
    return sum(1 for device in v.snapshot.rdma if any(port.state == "ACTIVE" for port in device.ports))


@fact("nic.link_layer", "text", "what the RDMA ports speak", how="ibv_devinfo", values=("infiniband", "ethernet"))
def _link_layer(v: View) -> str | None:
    layers = {
        port.link_layer.lower(): (device.name, port)
        for device in v.snapshot.rdma or []
        for port in device.ports
        if port.link_layer and port.state == "ACTIVE"
    }
    if not layers:
        layers = {port.link_layer.lower(): (d.name, port) for d in v.snapshot.rdma or [] for port in d.ports if port.link_layer}
    if layers:
        layer = one(set(layers))
        if layer is not None:
            name, port = layers[layer]
            v.saw(f"{name}: {port.link_layer}", port.ref("link_layer"))
        return layer
    words = {name.rpartition("/")[2] for job in v.jobs for name in job.ib_devices or []}
    if words:
        v.saw(f"NCCL log: {', '.join(sorted(words))}")
    return {"RoCE": "ethernet", "IB": "infiniband"}.get(one(words) or "")


@fact("nic.rate_gbps", "number", "rate of the fastest RDMA port, Gbit/s", how="ibv_devinfo")
def _rate(v: View) -> float | None:
    return max((port.rate_gbps for device in v.snapshot.rdma or [] for port in device.ports if port.rate_gbps), default=None)


def _active(v: View) -> list[tuple[str, RdmaPort]]:
    return [(d.name, port) for d in v.snapshot.rdma or [] for port in d.ports if port.state == "ACTIVE"]


@fact("nic.link_mixed", "bool", "whether some active RDMA ports speak InfiniBand and others Ethernet", how="ibv_devinfo")
def _mixed(v: View) -> bool | None:
    layers = {port.link_layer: name for name, port in _active(v) if port.link_layer}
    if len(layers) > 1:
        v.saw(", ".join(f"{name}: {layer}" for layer, name in sorted(layers.items())))
    return len(layers) > 1 if layers else None


@fact("nic.rate_low", "bool", "whether an active InfiniBand port runs slower than most of its sisters", how="ibv_devinfo")
def _rate_low(v: View) -> bool | None:
    # InfiniBand only: Ethernet adapters for management and storage are slower by design.
    rates = [(name, port) for name, port in _active(v) if port.rate_gbps and (port.link_layer or "").lower() == "infiniband"]
    if len(rates) < 3:
        return None
    usual = max({port.rate_gbps or 0 for _, port in rates}, key=lambda rate: sum(port.rate_gbps == rate for _, port in rates))
    slow = [(name, port) for name, port in rates if (port.rate_gbps or 0) < usual]
    for name, port in slow[:2]:
        v.saw(f"{name}: {port.rate_gbps:g} Gbit/s, most others {usual:g}", port.ref("rate_gbps"))
    return bool(slow)


@fact("nic.mtu_low", "bool", "whether a RoCE port uses packets smaller than it could", how="ibv_devinfo")
def _mtu_low(v: View) -> bool | None:
    known = [(n, p) for n, p in _active(v) if (p.link_layer or "").lower() == "ethernet" and p.active_mtu and p.max_mtu]
    small = [(name, port) for name, port in known if (port.active_mtu or 0) < (port.max_mtu or 0)]
    for name, port in small[:2]:
        v.saw(f"{name}: active MTU {port.active_mtu} of {port.max_mtu}", port.ref("active_mtu"))
    return bool(small) if known else None


@fact("nic.roce_v1_only", "bool", "whether an active RoCE port has no RoCE v2 address", how="show_gids")
def _v1_only(v: View) -> bool | None:
    known = [(n, p) for n, p in _active(v) if (p.link_layer or "").lower() == "ethernet" and p.gids]
    old = [(n, p) for n, p in known if all(gid.type and "v2" not in gid.type.lower() for gid in p.gids or [])]
    for name, port in old[:2]:
        v.saw(f"{name}: no GID of RoCE v2", port.ref("gids"))
    return bool(old) if known else None


@fact("nic.dual_port", "bool", "whether two active RDMA devices are ports of one card", how="ibv_devinfo")
def _dual(v: View) -> bool | None:
    if v.snapshot.rdma is None:
        return None
    slots = [
        d.pci_address.rpartition(".")[0] for d in v.snapshot.rdma if d.pci_address and any(p.state == "ACTIVE" for p in d.ports)
    ]
    return len(slots) > len(set(slots)) if slots else None


@fact("nccl.hca_ambiguous", "bool", "whether a name of NCCL_IB_HCA also matches devices that are not meant", how="ibv_devinfo")
def _ambiguous(v: View) -> bool | None:
    listed = v.value("env", "NCCL_IB_HCA")
    if listed is None or v.snapshot.rdma is None:
        return False if listed == ABSENT else None
    text = str(listed).removeprefix("^")
    if listed == ABSENT or text.startswith("="):
        return False
    wanted = [part.partition(":")[0].strip() for part in text.split(",") if part.strip()]
    for name in wanted:
        more = [d.name for d in v.snapshot.rdma if d.name.startswith(name) and d.name not in wanted]
        # A name that no device bears in full is meant as a prefix.
        if more and any(d.name == name for d in v.snapshot.rdma):
            v.saw(f"NCCL_IB_HCA={listed}: {name} also matches {', '.join(more[:4])}")
            return True
    return False


@fact(
    "nic.plugin",
    "text",
    "network plugin of NCCL",
    how="NCCL_DEBUG=INFO log of the job",
    values=("none", "efa", "fastrak", "gib", "other"),
)
def _plugin(v: View) -> str | None:
    names = {name for job in v.jobs for name in job.networks}
    if any((n.driver or "") == "efa" for n in v.snapshot.nics or []) or any(
        d.name.startswith(("efa", "rdmap")) for d in v.snapshot.rdma or []
    ):
        v.saw("there are EFA devices")
        return "efa"
    if not names:
        return "none" if v.value("host.cloud") == "none" else None
    v.saw(f"NCCL uses {', '.join(sorted(names))}")
    lower = " ".join(names).lower()
    for word, plugin in (("libfabric", "efa"), ("fastrak", "fastrak"), ("tcpx", "fastrak"), ("gib", "gib")):
        if word in lower:
            return plugin
    return "none" if names <= {"IB", "Socket"} else "other"


@fact("nic.bonded", "bool", "whether RDMA ports are bonded", how="ip -d link")
def _bonded(v: View) -> bool | None:
    if v.snapshot.rdma is None:
        return None
    return any("bond" in device.name for device in v.snapshot.rdma)


@fact("nic.rx_dropped", "bool", "whether packets were dropped for want of buffers", how="ethtool -S")
def _dropped(v: View) -> bool | None:
    known = [n for n in v.snapshot.nics or [] if n.statistics]
    for nic in known:
        for counter in ("rx_out_of_buffer", "rx_missed_errors", "rx_no_buffer_count"):
            if nic.statistics.get(counter, 0) > 0:
                v.saw(f"{nic.name}: {counter} {nic.statistics[counter]}", nic.ref("statistics"))
                return True
    return False if known else None


@fact("gdr.peermem", "bool", "whether a peer-memory module for GPUDirect RDMA is loaded", how="lsmod")
def _peermem(v: View) -> bool | None:
    modules = v.snapshot.kernel.modules
    if modules is None:
        return None
    name = next((name for name in ("nvidia_peermem", "nv_peer_mem") if name in modules), None)
    v.saw(
        f"{name} is loaded" if name else "neither nvidia_peermem nor nv_peer_mem is loaded",
        modules[name].ref("") if name else None,
    )
    return name is not None


@fact(
    "gdr.dmabuf",
    "bool",
    "whether DMA-BUF can carry GPUDirect RDMA: open driver, kernel 5.12 or newer with PCI P2PDMA",
    how="cat /proc/driver/nvidia/version; uname -r; zcat /proc/config.gz",
)
def _dmabuf(v: View) -> bool | None:
    flavour = v.value("gpu.driver_flavour")
    release = v.snapshot.kernel.release
    p2pdma = v.snapshot.kernel.config.get("CONFIG_PCI_P2PDMA")
    if flavour == "proprietary" or (v.snapshot.kernel.config and p2pdma != "y"):
        v.saw("proprietary driver" if flavour == "proprietary" else "CONFIG_PCI_P2PDMA is not set")
        return False
    if flavour is None or release is None:
        return None
    if version_key(release) < version_key("5.12"):
        v.saw(f"kernel {release}")
        return False
    return True if p2pdma == "y" else None


@fact(
    "gdr.works",
    "bool",
    "whether NCCL uses GPUDirect RDMA between nodes",
    how="NCCL_DEBUG=INFO log of the job (via NET/IB/.../GDRDMA)",
)
def _gdr(v: View) -> bool | None:
    net = [c for job in v.jobs for c in job.connections if c.via.startswith("NET/")]
    if net:
        direct = [c for c in net if "GDRDMA" in c.via]
        for connection in (direct or net)[:2]:
            v.saw(f"NCCL log: {connection.count} connections via {connection.via}")
        return bool(direct)
    words = {word for job in v.jobs for word in job.gdr.values()}
    if words:
        v.saw(f"NCCL log: GPU Direct RDMA {', '.join(sorted(words))}")
        return "enabled" in words
    return None
