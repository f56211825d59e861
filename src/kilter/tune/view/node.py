"""Facts of the host: machine, kernel, boot line, CPUs, memory, limits, services."""

from __future__ import annotations

import re

from kilter.facts.derived import is_guest, passes_through
from kilter.facts.host import UNLIMITED
from kilter.tune.view import ABSENT, Value, View, fact, keyed, one

_LINE = "cat /proc/cmdline"
#: How clouds sign their machines in DMI; systemd's detect-virt and cloud-init (cloudinit/sources) look for the same words.
_CLOUDS = (
    (re.compile(r"amazon|ec2", re.I), "aws"),
    (re.compile(r"google", re.I), "gcp"),
    (re.compile(r"microsoft", re.I), "azure"),
    (re.compile(r"oracle", re.I), "oci"),
    (re.compile(r"alibaba", re.I), "alibaba"),
)


@fact("host.virt", "text", "bare metal or a virtual machine", how="systemd-detect-virt", values=("bare_metal", "vm"))
def _virt(v: View) -> str | None:
    if is_guest(v.snapshot):
        v.saw(
            f"virtualization: {v.snapshot.host.virtualization or 'GPUs are passed through'}",
            v.snapshot.host.ref("virtualization"),
        )
        return "vm"
    if v.read(v.snapshot.host, "virtualization") == "none":
        return "bare_metal"
    modes = {gpu.virtualization for gpu in v.snapshot.accelerators or []}
    if modes == {"None"}:  # "Represents Bare Metal GPU": nvml.h, NVML_GPU_VIRTUALIZATION_MODE_NONE
        v.saw(
            "GPU virtualization mode: None", v.snapshot.accelerators[0].ref("virtualization") if v.snapshot.accelerators else None
        )
        return "bare_metal"
    return None


@fact("host.arch", "text", "machine architecture", how="uname -m")
def _arch(v: View) -> str | None:
    arch = v.read(v.snapshot.kernel, "arch")
    return str(arch) if arch else None


@fact("host.container", "bool", "whether the facts were taken inside a container", how="systemd-detect-virt --container")
def _container(v: View) -> bool | None:
    container = v.read(v.snapshot.host, "container")
    return None if container is None else container != "none"


@fact(
    "host.cloud",
    "text",
    "whose machine it is",
    how="cat /sys/class/dmi/id/sys_vendor",
    values=("aws", "gcp", "azure", "oci", "alibaba", "none"),
)
def _cloud(v: View) -> str | None:
    host = v.snapshot.host
    words = f"{host.dmi_vendor or ''} {host.dmi_product or ''}"
    if host.dmi_vendor is None:
        return None
    v.saw(f"made by {words.strip()}", host.ref("dmi_vendor"))
    return next((name for pattern, name in _CLOUDS if pattern.search(words)), "none")


@fact("host.vfio_in_use", "bool", "whether a device is bound to vfio-pci for a guest", how="lspci -k")
def _vfio(v: View) -> bool | None:
    pci = v.snapshot.pci
    if pci is not None and any(d.driver is not None for d in pci.values()):
        bound = [d for d in pci.values() if d.driver == "vfio-pci"]
        for device in bound[:3]:
            v.saw(f"{device.address} is bound to vfio-pci", device.ref("driver"))
        return bool(bound)
    modules = v.snapshot.kernel.modules
    if modules is not None and not any(name.startswith("vfio") for name in modules):
        v.saw("no vfio module is loaded")
        return False
    return None


@fact("host.swap_bytes", "number", "size of swap, bytes", how="cat /proc/meminfo")
def _swap(v: View) -> int | None:
    value = v.read(v.snapshot.memory, "swap_total_bytes")
    return value if isinstance(value, int) else None


@fact("host.memory_bytes", "number", "memory, bytes", how="cat /proc/meminfo")
def _memory(v: View) -> int | None:
    value = v.read(v.snapshot.memory, "total_bytes")
    return value if isinstance(value, int) else None


@fact("kernel.release", "version", "kernel release", how="uname -r")
def _release(v: View) -> str | None:
    value = v.read(v.snapshot.kernel, "release")
    return str(value) if value else None


@fact(
    "kernel.iommu",
    "text",
    "what the IOMMU does for devices of the host",
    how="dmesg | grep -i iommu",
    values=("off", "passthrough", "translated"),
)
def _iommu(v: View) -> str | None:
    kernel = v.snapshot.kernel
    if kernel.iommu_domain:
        v.saw(f"default IOMMU domain: {kernel.iommu_domain}", kernel.ref("iommu_domain"))
        return {"Translated": "translated", "Passthrough": "passthrough"}.get(kernel.iommu_domain)
    if kernel.iommu_groups == 0:
        v.saw("no IOMMU groups", kernel.ref("iommu_groups"))
        return "off"
    options = kernel.cmdline_options()
    if "off" in (options.get("iommu"), options.get("intel_iommu"), options.get("amd_iommu")):
        v.saw(f"boot line: {kernel.cmdline}", kernel.ref("cmdline"))
        return "off"
    if passes_through(v.snapshot):
        v.saw(f"boot line: {kernel.cmdline}", kernel.ref("cmdline"))
        return "passthrough"
    return None


@fact("kernel.page_bytes", "number", "size of a page, bytes", how="getconf PAGESIZE")
def _page(v: View) -> int | None:
    if v.snapshot.kernel.arch == "x86_64":
        return 4096
    value = v.read(v.snapshot.kernel, "page_bytes")
    if isinstance(value, int):
        return value
    # Distributions name their kernels of 64 KiB pages so: linux-nvidia-64k, kernel-64k, linux-azure-nvidia-64k.
    return 65536 if "64k" in str(v.read(v.snapshot.kernel, "release") or "") else None


@keyed("sysctl", "text", "a kernel parameter as text", how="sysctl -a")
def _sysctl(v: View, key: str) -> str | None:
    value = v.snapshot.kernel.sysctls.get(key)
    if value is not None:
        v.saw(f"{key} = {value}", v.snapshot.kernel.ref(f"sysctls.{key}") or v.snapshot.kernel.ref("sysctls"))
    return value


@keyed("sysctl_number", "number", "a kernel parameter that is one number", how="sysctl -a")
def _sysctl_number(v: View, key: str) -> int | None:
    value = _sysctl(v, key)
    return int(value) if value is not None and re.fullmatch(r"-?\d{1,19}", value) else None


@keyed("cmdline", "text", f'a parameter of the boot line: its value, "" for a flag, "{ABSENT}" where it is not given', how=_LINE)
def _cmdline(v: View, key: str) -> str | None:
    kernel = v.snapshot.kernel
    if kernel.cmdline is None:
        return None
    value = kernel.cmdline_options().get(key)
    shown = "not on the boot line" if value is None else f"boot line: {key}={value}" if value else f"boot line: {key}"
    v.saw(f"{key} {shown}" if value is None else shown, kernel.ref("cmdline"))
    return ABSENT if value is None else value


@keyed("config", "text", "an option of the kernel configuration", how="zcat /proc/config.gz || cat /boot/config-$(uname -r)")
def _config(v: View, key: str) -> str | None:
    config = v.snapshot.kernel.config
    return config.get(key, ABSENT) if config else None


@keyed("module", "bool", "whether a kernel module is loaded", how="lsmod")
def _module(v: View, key: str) -> bool | None:
    modules = v.snapshot.kernel.modules
    if modules is None:
        return None
    found = modules.get(key) or modules.get(key.replace("-", "_"))
    v.saw(f"module {key} is {'loaded' if found else 'not loaded'}", found.ref("") if found else v.snapshot.kernel.ref("modules"))
    return found is not None


@keyed(
    "param",
    "text",
    "a parameter of a loaded module, as module.parameter",
    how="cat /proc/driver/nvidia/params; grep . /sys/module/*/parameters/*",
)
def _param(v: View, key: str) -> str | None:
    name, _, parameter = key.partition(".")
    module = (v.snapshot.kernel.modules or {}).get(name)
    if module is None:
        return None
    short = parameter.removeprefix("NVreg_")
    value = module.parameters.get(parameter, module.parameters.get(short))
    if value is not None:
        v.saw(f"{key} = {value}", module.ref("parameters") or module.ref(""))
    return value


@keyed("service", "text", "state of a systemd unit: active, inactive, failed, not-found", how="systemctl status")
def _service(v: View, key: str) -> str | None:
    service = v.snapshot.software.services.get(key)
    if service is None or service.state is None:
        return None
    v.saw(f"{key} is {service.state}", service.ref("state"))
    return service.state


@fact("cpu.vendor", "text", "maker of the CPU", how="lscpu", values=("intel", "amd", "arm", "other"))
def _cpu_vendor(v: View) -> str | None:
    vendor = v.read(v.snapshot.cpu, "vendor")
    if vendor is None:
        return None
    return {"GenuineIntel": "intel", "AuthenticAMD": "amd", "ARM": "arm", "NVIDIA": "arm"}.get(str(vendor), "other")


@fact("cpu.sockets", "number", "CPU sockets", how="lscpu")
def _sockets(v: View) -> int | None:
    value = v.read(v.snapshot.cpu, "sockets")
    return value if isinstance(value, int) else None


@fact("cpu.logical", "number", "logical CPUs", how="lscpu")
def _logical(v: View) -> int | None:
    value = v.read(v.snapshot.cpu, "logical")
    return value if isinstance(value, int) else None


@fact("cpu.smt", "text", "simultaneous multithreading", how="cat /sys/devices/system/cpu/smt/control")
def _smt(v: View) -> str | None:
    value = v.read(v.snapshot.cpu, "smt")
    return str(value) if value else None


@fact(
    "cpu.cpufreq",
    "bool",
    "whether the kernel steers CPU frequency",
    how="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
)
def _cpufreq(v: View) -> bool | None:
    if v.snapshot.cpu.governors or v.snapshot.cpu.scaling_driver:
        return True
    missing = v.snapshot.cpu.missing.get("governors") or v.snapshot.cpu.missing.get("scaling_driver")
    return False if missing is not None and missing.reason.value == "absent" else None


@fact(
    "cpu.governor",
    "text",
    "CPU frequency governor; several are joined by +",
    how="cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
)
def _governor(v: View) -> str | None:
    governors = v.snapshot.cpu.governors
    if governors:
        v.saw("governor: " + ", ".join(f"{name} on {n} CPUs" for name, n in governors.items()), v.snapshot.cpu.ref("governors"))
    return "+".join(sorted(governors)) or None


@fact(
    "cpu.epp",
    "text",
    "energy performance preference; several are joined by +",
    how="cat /sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
)
def _epp(v: View) -> str | None:
    return "+".join(sorted(v.snapshot.cpu.epp)) or None


@fact("cpu.driver", "text", "driver that steers CPU frequency", how="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver")
def _driver(v: View) -> str | None:
    value = v.read(v.snapshot.cpu, "scaling_driver")
    return str(value) if value else None


def cpu_list(text: str) -> set[int]:
    """``0-2,5`` -> {0, 1, 2, 5}; what is no list of CPUs is left out. At most 65,536 CPUs."""
    found: set[int] = set()
    for part in text.split(","):
        if (match := re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)) is not None:
            first, last = int(match[1]), int(match[2] or match[1])
            found.update(range(first, min(last, 65535) + 1))
    return found


def isolated_cpus(v: View) -> set[int] | None:
    """CPUs that isolcpus takes from the scheduler: of the boot line, or as the kernel says."""
    options = v.snapshot.kernel.cmdline_options()
    if v.snapshot.kernel.cmdline is not None:
        listed = re.sub(r"^(?:(?:nohz|domain|managed_irq),)+", "", options.get("isolcpus", ""))
        if listed:
            v.saw(f"boot line: isolcpus={options['isolcpus']}", v.snapshot.kernel.ref("cmdline"))
            return cpu_list(listed)
        return set()
    if v.snapshot.cpu.isolated is not None:
        v.read(v.snapshot.cpu, "isolated")
        return cpu_list(v.snapshot.cpu.isolated)
    return None


@fact("cpu.isolated", "number", "how many CPUs are taken from the scheduler by isolcpus", how=_LINE)
def _isolated(v: View) -> int | None:
    cpus = isolated_cpus(v)
    return None if cpus is None else len(cpus)


@fact(
    "cpu.isolates_housekeeping",
    "bool",
    "whether isolcpus takes CPU 0, which serves interrupts and the kernel's own work",
    how=_LINE,
)
def _housekeeping(v: View) -> bool | None:
    cpus = isolated_cpus(v)
    return None if cpus is None else 0 in cpus


@fact("cpu.mitigations_off", "bool", "whether CPU vulnerabilities are left open", how=_LINE)
def _mitigations(v: View) -> bool | None:
    value = _cmdline(v, "mitigations")
    return None if value is None else value == "off"


@fact("numa.nodes", "number", "NUMA nodes with CPUs", how="numactl -H")
def _numa(v: View) -> int | None:
    nodes = v.snapshot.cpu.numa
    if nodes is None:
        return None
    count = sum(1 for node in nodes if node.cpus) or len(nodes)
    v.saw(f"{count} NUMA node(s)", nodes[0].ref("cpus") if nodes else None)
    return count


@fact(
    "memory.thp",
    "text",
    "transparent huge pages",
    how="cat /sys/kernel/mm/transparent_hugepage/enabled",
    values=("always", "madvise", "never"),
)
def _thp(v: View) -> str | None:
    value = v.read(v.snapshot.memory, "thp_enabled")
    return str(value) if value in ("always", "madvise", "never") else None


@fact("memory.thp_defrag", "text", "when huge pages are made by compaction", how="cat /sys/kernel/mm/transparent_hugepage/defrag")
def _thp_defrag(v: View) -> str | None:
    value = v.read(v.snapshot.memory, "thp_defrag")
    return str(value) if value else None


@fact("memory.hugepages", "number", "reserved huge pages of the default size", how="cat /proc/meminfo")
def _hugepages(v: View) -> int | None:
    value = v.read(v.snapshot.memory, "hugepages_total")
    return value if isinstance(value, int) else None


def _limit(v: View, field: str) -> int | None:
    value = v.read(v.snapshot.limits, field)
    return value if isinstance(value, int) else None


@fact("limits.stack", "text", 'stack limit of the job: "unlimited" or KiB', how="ulimit -a, in the job")
def _stack(v: View) -> str | None:
    value = _limit(v, "stack_bytes")
    return None if value is None else "unlimited" if value == UNLIMITED else str(value // 1024)


@fact("limits.memlock_unlimited", "bool", "whether a job may lock as much memory as it likes", how="ulimit -a, in the job")
def _memlock(v: View) -> bool | None:
    value = _limit(v, "memlock_bytes")
    return None if value is None else value == UNLIMITED


@fact("limits.nofile", "number", "open files that a process of the job may have", how="ulimit -a, in the job")
def _nofile(v: View) -> int | None:
    value = _limit(v, "nofile")
    return None if value is None else 1 << 30 if value == UNLIMITED else value


@fact("limits.shm_bytes", "number", "size of /dev/shm, bytes", how="df /dev/shm, in the job's container")
def _shm(v: View) -> int | None:
    return _limit(v, "shm_bytes")


@fact("limits.cpu_quota", "bool", "whether a CFS quota throttles the job", how="cat /sys/fs/cgroup/cpu.max, in the job")
def _quota(v: View) -> bool | None:
    value = v.read(v.snapshot.limits, "cgroup_cpu_quota")
    return None if value is None else value != UNLIMITED


@fact("host.events", "set", "kinds of events of the kernel log", how="dmesg -T")
def _events(v: View) -> Value | None:
    if not v.case.kernel_logs and not v.case.events:
        return None
    kinds = {e.kind for e in v.case.events if not e.node or e.node == v.snapshot.node or not v.snapshot.node}
    return frozenset(kinds)


@fact("orch", "text", "what starts jobs", how="kubectl get node, sinfo", values=("slurm", "k8s", "none"))
def _orch(v: View) -> str | None:
    found: set[str] = {{"slurm": "slurm", "kubernetes": "k8s"}.get(n.scheduler, "none") for n in v.case.cluster_nodes or []}
    if v.snapshot.host.container == "kubernetes":
        found.add("k8s")
    if any(name.startswith("SLURM_") for name in (*(v.snapshot.environment.variables or {}), *v.workload.environment)):
        found.add("slurm")
    return one(found)
