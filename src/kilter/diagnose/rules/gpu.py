"""GPUs that are lost, missing or unusable, and the driver's own state."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding
from kilter.facts.host import Software
from kilter.facts.pci import NVIDIA
from kilter.knowledge import xid


@rule(
    "driver.error",
    "GPU driver answers",
    scope="node",
    family="driver",
    sop="SOP-SW",
    hint="nvidia-smi",
    sources=("NVIDIA nvidia-smi manual, return codes 2-15", "research: failure modes 22 and 23 (driver mismatch, RmInitAdapter)"),
    action="Read the driver's reason; reload or reboot after a package update, else collect nvidia-bug-report.sh before anything else.",
    also=("container.device_cgroup_lost",),
)
def driver_error(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """The vendor's tool refused to work: driver not loaded, library and module of different versions, no permission, or no device.

    In a container, "Failed to initialize NVML: Unknown Error" with a working host means that the device cgroup lost the GPU nodes
    (a systemd daemon-reload does that; NVIDIA/nvidia-container-toolkit#48), and the GPU is fine.
    """
    software = snapshot.software
    text = ctx.known(software, Software.driver_error)
    if text is None:
        if snapshot.accelerators is None and software.driver_version is None:
            raise ctx.missing("answer of the GPU driver")
        return
    lower = text.lower()
    if "unknown error" in lower and "nvml" in lower:
        yield ctx.finding(
            "error",
            f"{text.strip()}: the process may not open the GPU's device nodes",
            id="container.device_cgroup_lost",
            confidence="medium",
            causes=[
                Cause("the container's device cgroup lost the GPU nodes", "likely", "nvidia-smi works on the host"),
                Cause(
                    "the driver itself is sick", "possible", "nvidia-smi fails on the host too; look for XIDs in the kernel log"
                ),
            ],
            action="Run nvidia-smi on the host. If it works: create the /dev/char links (nvidia-ctk system create-dev-char-symlinks) or use CDI, and restart the container.",
            sources=["NVIDIA/nvidia-container-toolkit#48"],
        )
        return
    if "version mismatch" in lower:
        what = "driver library and kernel module have different versions: a driver update without reload"
    elif "has failed because" in lower:
        what = "nvidia-smi cannot talk to the driver: module not loaded, or built for another kernel"
    elif "no devices" in lower:
        what = "the driver finds no GPU"
    else:
        what = f"the GPU driver's tool failed: {text}"
    yield ctx.finding(
        "critical",
        what,
        causes=[
            "packages updated under a running driver",
            "module not built for this kernel (DKMS)",
            "GPU not initialised at boot (RmInitAdapter in the kernel log)",
        ],
    )


@rule(
    "gpu.lost",
    "Every GPU answers",
    scope="gpu",
    family="gpu",
    sop="SOP-BUS",
    hint="nvidia-smi",
    sources=("NVIDIA NVML API: NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED", "research: failure mode 4"),
    action="Drain the node, save nvidia-bug-report.sh --safe-mode and dmesg, then reset or reboot.",
)
def gpu_lost(gpu: Accelerator, ctx: Context) -> Finding | None:
    """The tool lists the GPU but cannot open or read it (handle error, "GPU is lost", "ERR!")."""
    error = ctx.known(gpu, Accelerator.error)
    if error is None:
        return None
    reset = "reset" in error.lower()
    return ctx.finding(
        "critical",
        "GPU needs a reset" if reset else f"GPU cannot be read: {error}",
        causes=[
            Cause("fell off the bus (XID 79)", "likely", "kernel log; lspci shows rev ff"),
            Cause("GSP firmware hang (XID 119)", "possible", "kernel log"),
        ],
        next_test="dmesg -T | grep -E 'NVRM|AER|pciehp'; lspci -s " + (gpu.pci_address or "<address>"),
    )


@rule(
    "gpu.count_mismatch",
    "Driver sees every GPU on the bus",
    scope="node",
    family="gpu",
    sop="SOP-BUS",
    hint="lspci -nn together with nvidia-smi",
    sources=("NVIDIA/NVSentinel#684", "research: failure mode 4"),
    action="Drain; look for a failed probe in the kernel log; power cycle; if it comes back, reseat or replace.",
)
def gpu_count(snapshot: Snapshot, ctx: Context) -> Iterator[Finding]:
    """GPUs in the PCI listing that the driver's tool does not show, or the other way round. No XID is needed for a GPU to drop.

    Virtual functions, GPUs bound to vfio-pci (passed to a VM) and listings filtered to a few devices are not counted.
    """
    if snapshot.pci is None:
        raise ctx.missing("PCI listing", "lspci -nn")
    if snapshot.accelerators is None:
        raise ctx.missing("list of GPUs by the driver", "nvidia-smi -L")
    on_bus = {
        d.address: d
        for d in snapshot.pci.values()
        if d.is_accelerator
        and not d.physical_function
        and d.driver not in ("vfio-pci", "nouveau", "pci-stub")
        and d.vendor_id == NVIDIA
    }
    seen = {a.pci_address for a in snapshot.accelerators if a.pci_address and a.error is None}
    if not on_bus:
        raise ctx.skip("no NVIDIA GPU on the bus")
    if any(a.pci_address is None for a in snapshot.accelerators):
        count = snapshot.accelerators_attached or len(snapshot.accelerators)
        lost = [] if len(on_bus) <= count else [f"{len(on_bus) - count} of {len(on_bus)}"]
    elif snapshot.accelerators_attached is not None and snapshot.accelerators_attached > len(snapshot.accelerators):
        raise ctx.skip("the capture holds only some of the attached GPUs")
    else:
        lost = sorted(set(on_bus) - seen)
    if lost and seen | {None}:
        evidence = [
            Evidence(f"PCI lists {on_bus[a].address} {on_bus[a].description or ''}".strip(), ctx.where(on_bus[a]))
            for a in lost
            if a in on_bus
        ]
        yield ctx.finding(
            "critical",
            f"{len(on_bus)} GPUs on the bus, the driver uses {len(on_bus) - len([a for a in lost if a in on_bus]) if lost[0] in on_bus else count}: missing {', '.join(lost)}",
            evidence=evidence,
            causes=[
                Cause("GPU fell off the bus", "likely", "configuration space reads ff, XID 79"),
                Cause("driver failed to initialise it", "possible", "RmInitAdapter in the kernel log"),
            ],
        )


@rule(
    "gpu.recovery_action",
    "No GPU asks for recovery",
    scope="gpu",
    family="gpu",
    sop="SOP-GSP",
    hint="nvidia-smi -q (R565 or newer prints GPU Recovery Action)",
    sources=("nvidia-ml-py nvmlDeviceGpuRecoveryAction", "knowledge: xid.yaml recovery_actions"),
)
def recovery_action(gpu: Accelerator, ctx: Context) -> Finding | None:
    """NVML's recovery action is anything but "None". A value that nobody knows yet is not health: DCGM 4.6 reports OK above 4."""
    printed = ctx.need(gpu, Accelerator.recovery_action)
    action = xid.recovery_action(printed)
    if action is None or action.healthy:
        return None
    known = action.name != "unknown"
    return ctx.finding(
        "critical" if known else "error",
        f"driver asks for recovery: {printed}",
        action=action.do,
        confidence="high" if known else "medium",
    )


@rule(
    "gpu.persistence_mode_off",
    "Persistence mode",
    scope="gpu",
    family="gpu",
    sop="SOP-SW",
    hint="nvidia-smi -q",
    sources=("NVIDIA driver persistence documentation",),
    action="Run nvidia-persistenced (preferred) or nvidia-smi -pm 1 at boot.",
)
def persistence(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Without persistence the driver unloads state when the last client leaves: first start of a job is slower and settings are lost.

    A setting, not a fault. Desktop GPUs with a display and WSL are left alone.
    """
    if (gpu.brand or gpu.name or "").find("GeForce") >= 0 or "RTX" in (gpu.name or ""):
        raise ctx.skip("workstation GPU")
    return None if ctx.need(gpu, Accelerator.persistence_mode) else ctx.finding("info", "persistence mode is off")


@rule(
    "gpu.mig_no_instances",
    "MIG GPUs have instances",
    scope="gpu",
    family="gpu",
    sop="SOP-SW",
    hint="nvidia-smi -L; nvidia-smi mig -lgi",
    sources=("NVIDIA MIG user guide: without GPU and compute instances CUDA finds no device",),
    action="Create instances (nvidia-smi mig -cgi <profiles> -C) or turn MIG off; where an operator makes them, look at its state.",
)
def mig_no_instances(gpu: Accelerator, ctx: Context) -> Finding | None:
    """MIG is on and no instance exists: no program can use the GPU. Utilisation that reads N/A under MIG, and NVLink that is not shown, are normal."""
    mode = ctx.known(gpu, Accelerator.mig_mode)
    if not mode:
        raise ctx.skip("MIG is off, or not known")
    return (
        ctx.finding("warning", "MIG is on without any instance: CUDA finds no device on it")
        if ctx.need(gpu, Accelerator.mig_devices) == []
        else None
    )


@rule(
    "gpu.mig_pending",
    "MIG mode change done",
    scope="gpu",
    family="gpu",
    sop="SOP-SW",
    hint="nvidia-smi -q -d MIG",
    sources=("NVIDIA MIG user guide: enabling MIG needs a GPU reset on A100/A30",),
    action="Drain and reset the GPU so that the pending MIG mode takes effect.",
)
def mig_pending(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Current and pending MIG mode differ: the GPU waits for a reset."""
    current = ctx.known(gpu, Accelerator.mig_mode)
    pending = ctx.known(gpu, Accelerator.mig_mode_pending)
    if current is None or pending is None:
        if "mig_mode" in gpu.missing:
            raise ctx.skip("no MIG on this GPU")
        raise ctx.missing("MIG mode")
    return (
        None
        if current == pending
        else ctx.finding("warning", f"MIG mode is {'on' if current else 'off'}, pending {'on' if pending else 'off'}")
    )
