"""The configuration of one node as named values that should be equal on nodes of one kind.

What tells one node from another (serial numbers, UUIDs, addresses, host names, times) and what counts is left out. Devices are summed up
per node ("8x 9000", "6x A, 2x B"), so that a node has one value a fact however its devices are numbered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Entity, Ref
from kilter.facts.case import Snapshot
from kilter.facts.network import VIRTUAL_INTERFACE, NetInterface, RdmaDevice

#: Areas whose drift is known to cost speed or to break jobs; drift elsewhere is information.
SERIOUS = frozenset(
    [
        "driver",
        "kernel",
        "nic_firmware",
        "peermem",
        "acs",
        "iommu",
        "mtu",
        "pfc",
        "ecc",
        "power_limit",
        "memory",
        "gpu_count",
        "nic_count",
        "gid",
        "memlock",
        "fabric_manager",
        "nccl",
        "nic_affinity",
    ]
)
ABSENT = "(absent)"


class ConfigFact(NamedTuple):
    area: str  # last part of the finding's id
    name: str
    value: str | float
    ref: Ref | None = None
    group: str = ""  # a listing that is complete on a node that has it: a name that it lacks has the value ABSENT


#: Boot options that name this node or its disks, or repeat the kernel's release.
_OWN_OPTIONS = re.compile(
    r"(?:BOOT_IMAGE|initrd|root|rootflags|resume\w*|nfsroot|ip|ifname|hostname|ds|BOOTIF|rd\..*|systemd\.machine_id|.*uuid.*|.*serial.*)$",
    re.I,
)
#: Boot options with an effect on DMA, memory, CPUs or the driver.
_OPTIONS_THAT_MATTER = re.compile(
    r"(?:.*iommu.*|pci|pcie\w*|mitigations|isolcpus|nohz_full|rcu_nocbs|hugepages.*|default_hugepagesz|.*max_cstate|numa.*|"
    r"transparent_hugepage|nvidia.*|module_blacklist|modprobe\.blacklist|intel_pstate|amd_pstate|nosmt|maxcpus|mem|cgroup.*)$"
)
#: Sysctls that count, name the node, or are computed from the size of memory.
_OWN_SYSCTLS = re.compile(
    r"kernel\.(?:random\..*|hostname|domainname|ns_last_pid|threads-max|pty\.nr|osrelease|version|cap_last_cap|tainted|sched_domain.*|"
    r"keys\..*|msgmni|sem_next_id|shm_next_id|msg_next_id)$|fs\.(?:.*-nr|.*-state|file-max|epoll\..*|quota\..*|aio-nr|inotify\..*)$|"
    r"user\.max_.*|vm\.(?:min_free_kbytes|user_reserve_kbytes|admin_reserve_kbytes|lowmem.*)$|net\.ipv[46]\.(?:tcp_mem|udp_mem)$|"
    r"net\..*_count$|net\.ipv[46]\.(?:conf|neigh)\.(?!all\.|default\.).*|dev\.cdrom.*|sunrpc\..*|.*(?:uuid|stable_secret|boot_id).*"
)
_MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "gdrdrv", "mlx5_core", "mlx5_ib", "ib_core", "rdma_ucm", "ib_umad", "bnxt_re",
    "irdma", "efa", "nouveau", "nvidia_fs", "knem", "xpmem",
)  # fmt: skip
_PEERMEM = ("nvidia_peermem", "nv_peer_mem")
_ENV = re.compile(
    r"(?:NCCL|UCX|TORCH_NCCL|OMPI_MCA|FI|RCCL|NVSHMEM)_\w+$|OMP_NUM_THREADS$|CUDA_DEVICE_MAX_CONNECTIONS$|LD_PRELOAD$"
)
#: Variables that differ between nodes by nature, or only choose where a log goes.
_OWN_ENV = re.compile(
    r"NCCL_(?:HOSTID|COMM_ID|DEBUG\w*|TOPO_DUMP_FILE|GRAPH_DUMP_FILE|RAS_ADDR)$|\w*(?:_RANK|_HOSTS?|_ADDR|_PORT|_LOG_FILE)$"
)
#: NCCL variables that have to agree on all ranks, or switch a transport off.
_ENV_THAT_MATTERS = re.compile(
    r"NCCL_(?:ALGO|PROTO|NET|NET_PLUGIN|IB_DISABLE|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|NET_GDR_LEVEL|NET_GDR_READ|CROSS_NIC|M(?:IN|AX)_\w+|"
    r"BUFFSIZE|NVLS_ENABLE|CUMEM_ENABLE|DMABUF_ENABLE|IGNORE_CPU_AFFINITY|IB_TC|IB_SL|COLLNET_ENABLE|NTHREADS)$"
)
_PACKAGES = re.compile(
    r"nvidia|cuda|nccl|cudnn|mlnx|ofed|ucx|libfabric|doca|containerd|docker|slurm|datacenter-gpu|kunlun|xpu", re.I
)

_GPU_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("gpu_firmware", "VBIOS", "firmware"),
    ("gpu_firmware", "GSP firmware", "gsp_firmware"),
    ("gpu", "model", "name"),
    ("gpu", "PCI device id", "pci_device_id"),
    ("gpu", "persistence mode", "persistence_mode"),
    ("gpu", "compute mode", "compute_mode"),
    ("gpu", "MIG mode", "mig_mode"),
    ("gpu", "BAR1 MiB", "bar1_total_mib"),
    ("gpu", "application SM clock MHz", "application_sm_clock_mhz"),
    ("gpu", "virtualization", "virtualization"),
    ("gpu", "C2C mode", "c2c_mode"),
    ("gpu", "confidential compute", "confidential_compute"),
    ("ecc", "ECC mode", "ecc_mode"),
    ("power_limit", "power limit W", "power_limit_w"),
    ("memory", "GPU memory MiB", "memory_total_mib"),
    ("link", "GPU PCIe generation possible", "link_generation_max"),
    ("link", "GPU PCIe width possible", "link_width_max"),
    ("fabric", "GPU fabric state", "fabric_state"),
)


def text(value: object) -> str:
    """A value as tables show it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value) or "none"
    return " ".join(str(value).split()) or '""'


def summed(values: Iterable[object]) -> str:
    """``6x A, 2x B``, the most common first."""
    counts = Counter(text(v) for v in values)
    return ", ".join(f"{number}x {value}" for value, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _fields(entity: Entity, rows: Iterable[tuple[str, str, str]]) -> Iterator[ConfigFact]:
    for area, name, field in rows:
        value = getattr(entity, field)
        if value is not None and value != {}:
            yield ConfigFact(area, name, text(value), entity.ref(field))


def _same(area: str, name: str, entities: Iterable[Entity], field: str) -> Iterator[ConfigFact]:
    """One value a node over its devices. A device without the value makes the sum incomparable: then there is none."""
    devices = list(entities)
    values = [getattr(one, field) for one in devices]
    if not values or None in values:
        return
    if values.count(values[0]) == len(values):
        yield ConfigFact(area, name, text(values[0]), devices[0].ref(field))
        return
    texts = [text(value) for value in values]
    usual = Counter(texts).most_common(1)[0][0]
    # The line of an odd device, if there is one: that is what a reader looks for.
    odd = next((one for one, value in zip(devices, texts, strict=True) if value != usual), devices[0])
    # A lost device shows in the number of devices, not once more in each of its settings.
    yield ConfigFact(area, name, texts[0] if len(set(texts)) == 1 else summed(values), odd.ref(field))


def _host(s: Snapshot) -> Iterator[ConfigFact]:
    yield from _fields(
        s.host,
        (
            ("os", "OS", "os_id"),
            ("os", "OS version", "os_version"),
            ("os", "virtualization", "virtualization"),
            ("os", "container", "container"),
            ("bios", "BIOS version", "bios_version"),
            ("bios", "BIOS date", "bios_date"),
            ("bios", "vendor", "dmi_vendor"),
            ("bios", "product", "dmi_product"),
            ("bios", "board", "dmi_board"),
        ),
    )
    if s.memory.total_bytes is not None:
        yield ConfigFact("memory", "host memory GiB", round(s.memory.total_bytes / 2**30, 2), s.memory.ref("total_bytes"))
    yield from _fields(
        s.memory,
        (
            ("thp", "transparent huge pages", "thp_enabled"),
            ("thp", "THP defrag", "thp_defrag"),
            ("thp", "huge pages", "hugepages_total"),
        ),
    )
    scope = f" ({s.limits.scope})" if s.limits.scope else ""
    yield from _fields(
        s.limits,
        (
            ("memlock", f"memlock bytes{scope}", "memlock_bytes"),
            ("limits", f"stack bytes{scope}", "stack_bytes"),
            ("limits", f"open files{scope}", "nofile"),
            ("limits", f"processes{scope}", "nproc"),
            ("limits", "cgroup version", "cgroup_version"),
            ("limits", "/dev/shm bytes", "shm_bytes"),
        ),
    )


def _cpu(s: Snapshot) -> Iterator[ConfigFact]:
    cpu = s.cpu
    yield from _fields(
        cpu,
        (
            ("cpu", "model", "model"),
            ("cpu", "stepping", "stepping"),
            ("cpu", "sockets", "sockets"),
            ("cpu", "cores per socket", "cores_per_socket"),
            ("cpu", "threads per core", "threads_per_core"),
            ("cpu", "CPUs online", "online"),
            ("cpu", "isolated CPUs", "isolated"),
            ("cpu", "nohz_full CPUs", "nohz_full"),
            ("cpu", "SMT", "smt"),
            ("cpu", "frequency driver", "scaling_driver"),
        ),
    )
    # Numbers of CPUs differ with the model; which governors there are is the setting.
    for name, table in (("governor", cpu.governors), ("energy preference", cpu.epp)):
        if table:
            yield ConfigFact("cpu", name, "+".join(sorted(table)), cpu.ref("governors" if name == "governor" else "epp"))
    if cpu.idle_states is not None:
        disabled = [state.name for state in cpu.idle_states if state.disabled]
        yield ConfigFact("cpu", "idle states disabled", text(disabled), cpu.ref("idle_states"))
    if cpu.numa is not None:
        yield ConfigFact("cpu", "NUMA nodes", str(len(cpu.numa)), cpu.ref("numa"))
    for name, value in cpu.mitigations.items():
        yield ConfigFact("cpu", f"mitigation {name}", text(value), cpu.ref("mitigations"))


def _kernel(s: Snapshot) -> Iterator[ConfigFact]:
    kernel = s.kernel
    yield from _fields(
        kernel, (("kernel", "release", "release"), ("os", "architecture", "arch"), ("kernel_build", "build", "version"))
    )
    if kernel.iommu_groups is not None:
        yield ConfigFact("iommu", "IOMMU", "on" if kernel.iommu_groups else "off", kernel.ref("iommu_groups"))
    for name, value in kernel.cmdline_options().items() if kernel.cmdline is not None else ():
        if not _OWN_OPTIONS.match(name):
            area = "kernel" if _OPTIONS_THAT_MATTER.match(name) else "cmdline"
            yield ConfigFact(area, f"boot option {name}", value or "(set)", kernel.ref("cmdline"), "cmdline")
    for name, value in kernel.sysctls.items():
        if not _OWN_SYSCTLS.match(name):
            yield ConfigFact("sysctl", name, text(value), kernel.ref("sysctls"))
    if kernel.modules is None:
        return
    is_whole = "modules" not in kernel.missing  # else the list was filtered, and absence says nothing
    peermem = next((name for name in _PEERMEM if name in kernel.modules), "")
    if peermem or is_whole:
        yield ConfigFact("peermem", "nvidia-peermem", f"{peermem} loaded" if peermem else "not loaded", kernel.ref("modules"))
    for name in _MODULES:
        if name in kernel.modules or is_whole:
            loaded = "loaded" if name in kernel.modules else "not loaded"
            yield ConfigFact("modules", f"module {name}", loaded, kernel.ref("modules"))
    for name, module in kernel.modules.items():
        if module.version and name in (*_MODULES, *_PEERMEM):
            yield ConfigFact("module_version", f"module {name} version", module.version, module.ref("version"))
        for key, value in module.parameters.items():
            yield ConfigFact("module_parameters", f"{name}.{key}", text(value), module.ref("parameters"))


def _software(s: Snapshot) -> Iterator[ConfigFact]:
    software = s.software
    yield from _fields(
        software,
        (
            ("driver", "driver", "driver_version"),
            ("driver", "driver flavour", "driver_flavour"),
            ("driver", "driver library", "driver_library_version"),
            ("cuda", "CUDA of the driver", "cuda_driver_version"),
            ("cuda", "CUDA toolkit", "cuda_toolkit_version"),
            ("nccl", "NCCL", "nccl_version"),
            ("cuda", "cuDNN", "cudnn_version"),
            ("nic_driver", "OFED", "ofed_version"),
            ("nic_driver", "rdma-core", "rdma_core_version"),
            ("container", "container runtime", "container_runtime"),
            ("container", "container toolkit", "container_toolkit_version"),
            ("driver", "XPU runtime", "xpu_runtime_version"),
        ),
    )
    for name, service in software.services.items():
        area = "fabric_manager" if "fabricmanager" in name else "services"
        yield from (
            f._replace(name=f"{name} {f.name}")
            for f in _fields(service, ((area, "state", "state"), (area, "version", "version")))
        )
    for name, version in software.packages.items():
        if _PACKAGES.search(name):
            yield ConfigFact("packages", name, text(version), software.ref("packages"))
    variables = s.environment.variables
    for name, value in (variables or {}).items():
        if _ENV.match(name) and not _OWN_ENV.match(name):
            area = "nccl" if _ENV_THAT_MATTERS.match(name) else "environment"
            yield ConfigFact(area, name, text(value), s.environment.ref("variables"), "environment")


def _gpus(s: Snapshot) -> Iterator[ConfigFact]:
    if s.accelerators is None:
        return
    gpus = [gpu for gpu in s.accelerators if gpu.error is None]
    first = s.accelerators[0].ref("index") or s.accelerators[0].ref("name") if s.accelerators else None
    yield ConfigFact("gpu_count", "GPUs that answer", str(len(gpus)), first)
    for area, name, field in _GPU_FIELDS:
        yield from _same(area, name, gpus, field)
    linked = [gpu for gpu in gpus if gpu.nvlinks is not None]
    if linked and len(linked) == len(gpus):
        active = [sum(1 for link in gpu.nvlinks or [] if link.state == "active" or link.speed_gb_s) for gpu in linked]
        value = text(active[0]) if len(set(active)) == 1 else summed(active)
        yield ConfigFact("link", "NVLinks active a GPU", value, linked[0].ref("nvlinks"))


def _pci(s: Snapshot) -> Iterator[ConfigFact]:
    devices = list((s.pci or {}).values())
    gpus = [d for d in devices if d.is_accelerator]
    nics = [d for d in devices if d.is_nic and not d.physical_function and d.port_type != "root complex endpoint"]
    for word, group in (("GPU", gpus), ("NIC", nics)):
        yield from _same("pcie", f"{word} max payload bytes", group, "max_payload_bytes")
        yield from _same("pcie", f"{word} max read request bytes", group, "mrrs_bytes")
        yield from _same("pcie", f"{word} relaxed ordering", group, "relaxed_ordering")
        yield from _same("link", f"{word} PCIe width", group, "link_width")
    # An idle GPU lowers its link speed; a NIC does not.
    yield from _same("link", "NIC PCIe speed GT/s", nics, "link_speed_gts")
    bridges = [d for d in devices if d.is_bridge and d.acs_enabled is not None]
    if bridges:
        on = [d for d in bridges if any("redir" in bit.lower() for bit in d.acs_enabled or [])]
        value = f"P2P redirect on {len(on)} bridges" if on else "no P2P redirect"
        yield ConfigFact("acs", "ACS", value, (on or bridges)[0].ref("acs_enabled"))


def _rdma(s: Snapshot) -> Iterator[ConfigFact]:
    if s.rdma is None:
        return
    yield ConfigFact("nic_count", "RDMA devices", str(len(s.rdma)), s.rdma[0].ref("name") if s.rdma else None)
    kinds: dict[str, list[RdmaDevice]] = {}
    for device in s.rdma:
        kinds.setdefault(device.board_id or device.hca_type or "RDMA", []).append(device)
    for kind, devices in kinds.items():
        yield from _same("nic_firmware", f"{kind} firmware", devices, "firmware")
        ports = [port for device in devices for port in device.ports]
        active = [port for port in ports if port.state == "ACTIVE"]
        if any(port.state is not None for port in ports):
            yield ConfigFact("link", f"{kind} ports active", str(len(active)), ports[0].ref("state"))
        yield from _same("link", f"{kind} link layer", ports, "link_layer")
        yield from _same("link", f"{kind} rate Gbit/s", active, "rate_gbps")
        yield from _same("mtu", f"{kind} active MTU", active, "active_mtu")
        found = [(port, gid) for port in active for gid in port.gids or [] if "v2" in gid.type and _is_ipv4(gid.gid)]
        if found:
            usual = sorted({gid.index for _, gid in found})
            yield ConfigFact("gid", f"{kind} RoCE v2 IPv4 GID index", text(usual), found[0][0].ref("gids"))


def _is_ipv4(gid: str) -> bool:
    return bool(re.match(r"(?:0{1,4}:){5}ffff:|::ffff:", gid, re.I))


def _interfaces(s: Snapshot) -> Iterator[ConfigFact]:
    kinds: dict[str, list[NetInterface]] = {}
    for nic in s.nics or []:
        if nic.name and (nic.pci_address or nic.driver) and not VIRTUAL_INTERFACE.match(nic.name):
            kinds.setdefault(nic.driver or re.sub(r"\d.*", "", nic.name), []).append(nic)
    for kind, nics in kinds.items():
        for area, name, field in (
            ("nic_firmware", "firmware", "firmware"),
            ("nic_driver", "driver version", "driver_version"),
            ("mtu", "MTU", "mtu"),
            ("pfc", "PFC priorities", "pfc_priorities"),
            ("pfc", "ECN priorities", "ecn_priorities"),
            ("pfc", "trust", "trust"),
            ("nic", "receive ring", "rx_ring"),
            ("nic", "transmit ring", "tx_ring"),
            ("nic", "receive pause", "pause_rx"),
            ("nic", "transmit pause", "pause_tx"),
        ):
            if all(isinstance(getattr(n, field), (str, int, list)) for n in nics):
                yield from _same(area, f"{kind} {name}", nics, field)


#: Distances of nvidia-smi topo -m, near to far.
_NEAR = ("PIX", "PXB", "PHB", "NODE", "SYS")


def _nic_affinity(s: Snapshot) -> Iterator[ConfigFact]:
    """Which NIC each GPU is nearest to, in the matrix of the driver's tool; a switch that hides its tree can swap them (NVIDIA/nccl#820)."""
    matrix = s.topology
    if matrix is None:
        return
    for gpu in (name for name in matrix.devices if name.startswith("GPU")):
        row = {
            name: _NEAR.index(word)
            for name, word in matrix.links.get(gpu, {}).items()
            if word in _NEAR and not name.startswith("GPU")
        }
        nearest = min(row.values(), default=len(_NEAR))
        if nearest < _NEAR.index("PHB"):
            names = sorted(matrix.nic_names.get(name, name) for name, distance in row.items() if distance == nearest)
            yield ConfigFact("nic_affinity", f"NIC nearest to {gpu}", f"{', '.join(names)} ({_NEAR[nearest]})", matrix.ref(gpu))


_READERS = (_host, _cpu, _kernel, _software, _gpus, _pci, _rdma, _interfaces, _nic_affinity)


def config_facts(snapshot: Snapshot) -> Iterator[ConfigFact]:
    """All configuration facts of one node."""
    for reader in _READERS:
        yield from reader(snapshot)


def complete_groups(snapshot: Snapshot) -> list[str]:
    """Listings that this node has whole: what they do not name, the node does not have."""
    groups = []
    if snapshot.kernel.cmdline is not None:
        groups.append("cmdline")
    if snapshot.environment.variables is not None and "variables" not in snapshot.environment.missing:
        groups.append("environment")
    return groups


def models(snapshot: Snapshot) -> tuple[str, ...]:
    """GPU models of a node, the key of nodes that are to be alike."""
    return tuple(sorted({a.name for a in snapshot.accelerators or [] if isinstance(a, Accelerator) and a.name}))
