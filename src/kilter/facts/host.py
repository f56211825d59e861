"""Host, kernel, CPU, memory, limits, environment and software of one node."""

from __future__ import annotations

import msgspec

from kilter.facts.base import Entity


class Host(Entity):
    hostname: str | None = None
    os_id: str | None = None  # "ubuntu"
    os_version: str | None = None  # "22.04"
    os_name: str | None = None  # PRETTY_NAME
    virtualization: str | None = None  # "none", "kvm", "vmware", "microsoft", "amazon", "qemu", "xen", ...
    container: str | None = None  # "none", "docker", "kubernetes", "lxc", ...
    dmi_vendor: str | None = None
    dmi_product: str | None = None
    dmi_board: str | None = None
    bios_version: str | None = None
    bios_date: str | None = None
    uptime_s: float | None = None
    boot_id: str | None = None
    load_1m: float | None = None
    clock_offset_s: float | None = None  # against NTP; positive: the clock is fast
    clock_synchronized: bool | None = None
    blocked_tasks: list[str] | None = None  # in state D when ps ran: "4242 nvidia-smi (rwsem_down_write_slowpath)"


class Module(Entity):
    """A loaded kernel module."""

    name: str
    version: str | None = None
    size_bytes: int | None = None
    used_by: list[str] | None = None
    parameters: dict[str, str] = {}


class Kernel(Entity):
    release: str | None = None  # uname -r
    version: str | None = None  # uname -v
    arch: str | None = None
    page_bytes: int | None = None
    cmdline: str | None = None
    tainted: int | None = None  # bit mask of Documentation/admin-guide/tainted-kernels.rst
    modules: dict[str, Module] | None = None  # None = not collected; {} = none loaded
    sysctls: dict[str, str] = {}  # "vm.swappiness" -> "60"
    config: dict[str, str] = {}  # "CONFIG_NUMA" -> "y"
    iommu_domain: str | None = None  # default domain type that the kernel logged: Translated, Passthrough
    iommu_groups: int | None = None  # number of IOMMU groups; 0 = IOMMU off

    def cmdline_options(self) -> dict[str, str]:
        """``key`` -> ``value`` of the boot line ("" for a flag); the last of repeated keys wins, as in the kernel."""
        options: dict[str, str] = {}
        for word in (self.cmdline or "").split():
            key, _, value = word.partition("=")
            options[key] = value
        return options


class NumaNode(Entity):
    id: int
    cpus: str | None = None  # kernel list format, "0-15,32-47"
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    distances: list[int] | None = None  # to node 0, 1, ...
    hugepages: dict[str, int] = {}  # "2048kB" -> pages


class IdleState(msgspec.Struct, omit_defaults=True):
    """One C-state of cpuidle."""

    name: str
    latency_us: int | None = None
    disabled: bool | None = None


class Cpu(Entity):
    vendor: str | None = None
    model: str | None = None
    family: int | None = None
    model_number: int | None = None
    stepping: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    logical: int | None = None  # CPUs the kernel knows
    online: str | None = None  # list format
    offline: str | None = None
    isolated: str | None = None  # isolcpus
    nohz_full: str | None = None
    irq_default_affinity: str | None = None  # list format
    device_interrupts: dict[str, str] = {}  # "mlx5 0000:1a:00.0" or "nvidia" -> CPUs that take its interrupts, list format
    smt: str | None = None  # on, off, forceoff, notsupported
    max_mhz: float | None = None
    scaling_driver: str | None = None
    governors: dict[str, int] = {}  # governor -> number of CPUs
    epp: dict[str, int] = {}  # energy_performance_preference -> number of CPUs
    idle_states: list[IdleState] | None = None
    numa: list[NumaNode] | None = None
    flags: list[str] | None = None
    mitigations: dict[str, str] = {}


class Memory(Entity):
    total_bytes: int | None = None
    available_bytes: int | None = None
    free_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    hugepages_total: int | None = None  # of the default size
    hugepages_free: int | None = None
    hugepage_bytes: int | None = None
    thp_enabled: str | None = None  # always, madvise, never
    thp_defrag: str | None = None
    edac_ce: int | None = None  # corrected errors, all controllers
    edac_ue: int | None = None


UNLIMITED = -1


class Limits(Entity):
    """Limits of the process that was looked at (a job's shell, or kilter itself). -1 = unlimited."""

    scope: str | None = None  # whose limits: "this process", "shell", "pid 1234"
    memlock_bytes: int | None = None
    stack_bytes: int | None = None
    nofile: int | None = None
    nproc: int | None = None
    core_bytes: int | None = None
    shm_bytes: int | None = None  # size of /dev/shm
    shm_free_bytes: int | None = None
    cgroup_version: int | None = None
    cgroup_cpus: str | None = None
    cgroup_cpu_quota: float | None = None  # CPUs; -1 unlimited
    cgroup_memory_bytes: int | None = None
    cgroup_pids: int | None = None


class Environment(Entity):
    """Environment variables that matter to GPU work (NCCL_*, CUDA_*, TORCH_*, UCX_*, OMP_*, ...)."""

    variables: dict[str, str] | None = None  # None = not collected
    nccl_conf: dict[str, str] | None = None  # of /etc/nccl.conf, which count where the environment does not set them


class Service(Entity):
    """A daemon: Fabric Manager, IMEX, persistenced, DCGM host engine."""

    name: str
    state: str | None = None  # active, inactive, failed, not-found
    since: str | None = None  # when it came into this state, as systemctl prints it
    version: str | None = None


class Software(Entity):
    driver_version: str | None = None  # accelerator kernel driver in use ("KMD")
    driver_flavour: str | None = None  # open, proprietary
    driver_library_version: str | None = None  # user-space NVML/driver library, where it differs in its source
    driver_error: str | None = None  # what the driver's tool said instead of an answer
    cuda_driver_version: str | None = None  # CUDA version that the driver offers
    cuda_toolkit_version: str | None = None
    nccl_version: str | None = None
    cudnn_version: str | None = None
    ofed_version: str | None = None
    rdma_core_version: str | None = None
    container_runtime: str | None = None
    container_toolkit_version: str | None = None
    xpu_runtime_version: str | None = None  # Kunlunxin XRE / XPU-RT
    services: dict[str, Service] = {}  # "nvidia-fabricmanager" -> ...
    packages: dict[str, str] = {}
    dkms: dict[str, str] = {}  # "nvidia 5.15.0-113-generic" -> installed, built, added; a module without a kernel: "nvidia"
