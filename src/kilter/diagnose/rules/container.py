"""GPUs and RDMA devices that do not reach a container: runtimes, hooks, cgroups, device plugins."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.event import Event
from kilter.facts.finding import Cause, Finding, Subject


def by_node(case: Case, ctx: Context, *kinds: str) -> Iterator[tuple[Subject, list[Event]]]:
    """(node, its events of these kinds); says "not checked" when no container log was given."""
    events = [e for e in case.events if e.kind.startswith(("container.", "k8s."))]
    if not events:
        raise ctx.missing("log of a container runtime or device plugin")
    nodes: dict[str, list[Event]] = {}
    for event in events:
        if event.kind in kinds:
            nodes.setdefault(event.node, []).append(event)
    for node, found in sorted(nodes.items()):
        yield Subject("node", "", node), found


@rule(
    "container.runtime_missing_nvidia",
    "Container runtime knows the GPU runtime",
    scope="case",
    family="container",
    sop="SOP-SW",
    hint="journalctl -u docker -u containerd; docker info",
    sources=("NVIDIA Container Toolkit installation guide", "moby: daemon/devices.go", "containerd: CRI runtime handlers"),
    action="Install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker|containerd|crio, and restart the runtime.",
)
def runtime_missing(case: Case, ctx: Context) -> Iterator[Finding]:
    """Docker, containerd or CRI-O was asked for GPUs and has no runtime, hook or CDI specification for them. GPU and driver may be fine."""
    for subject, events in by_node(case, ctx, "container.runtime_missing"):
        cdi = next((e.fields["cdi"] for e in events if "cdi" in e.fields), "")
        what = (
            f"CDI devices cannot be resolved: {cdi}"
            if cdi
            else "the container runtime has no NVIDIA runtime or hook: containers get no GPU"
        )
        causes = [
            Cause("nvidia-container-toolkit is not installed", "likely", "nvidia-ctk --version"),
            Cause(
                "it is installed, but the runtime is not configured or was not restarted",
                "likely",
                "docker info: Runtimes; /etc/containerd/config.toml",
            ),
        ]
        if cdi:
            causes = [Cause("no CDI specification, or one from before a driver or GPU change", "likely", "nvidia-ctk cdi list")]
        yield ctx.finding(
            "error",
            what,
            subject=subject,
            evidence=events,
            causes=causes,
            action="nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" if cdi else "",
        )


@rule(
    "container.driver_unusable",
    "Container hook reaches the driver",
    scope="case",
    family="container",
    sop="SOP-SW",
    hint="nvidia-container-cli -k -d /dev/tty info; nvidia-smi on the host",
    sources=("NVIDIA/libnvidia-container: src/error.c, src/nvc.c", "NVIDIA/nvidia-container-toolkit#1269"),
    action="Run nvidia-smi on the host; if it fails, mend the driver (module built for this kernel, reload after an update), else look at the toolkit.",
    also=(
        "container.driver_library_missing",
        "container.device_missing",
        "container.requirement_unmet",
        "container.driver_mismatch",
    ),
)
def driver_unusable(case: Case, ctx: Context) -> Iterator[Finding]:
    """The hook (nvidia-container-cli) or the device plugin started and could not use the driver: not loaded, library missing, versions of
    library and module differ, a device node missing, or the image asks for a newer driver."""
    for subject, events in by_node(case, ctx, "container.driver_not_loaded", "k8s.plugin_no_nvml", "k8s.plugin_no_device"):
        yield ctx.finding(
            "error", "containers get no GPU: the driver is not loaded or does not answer", subject=subject, evidence=events
        )
    for subject, events in by_node(case, ctx, "container.driver_mismatch"):
        yield ctx.finding(
            "error",
            "containers get no GPU: driver library and kernel module have different versions (updated without reload)",
            id="container.driver_mismatch",
            subject=subject,
            evidence=events,
            action="Drain, then reload the modules or reboot.",
        )
    for subject, events in by_node(case, ctx, "container.library_missing"):
        name = next((e.fields["library"] for e in events if e.fields.get("library", "").startswith("lib")), "a driver library")
        yield ctx.finding(
            "error",
            f"containers get no GPU: {name} is not found on the host",
            id="container.driver_library_missing",
            subject=subject,
            evidence=events,
            causes=[
                Cause("driver is not installed, or only its kernel part", "likely", "ldconfig -p | grep libnvidia-ml"),
                Cause(
                    "docker is a snap or Docker Desktop and does not see the host's libraries",
                    "possible",
                    "docker info; snap list docker",
                ),
            ],
        )
    for subject, events in by_node(case, ctx, "container.device_missing"):
        names = sorted({e.fields.get("path") or e.device for e in events} - {""})
        yield ctx.finding(
            "error",
            f"device is not there: {', '.join(names[:4]) or 'not named'}",
            id="container.device_missing",
            subject=subject,
            evidence=events,
            causes=[
                Cause(
                    "device nodes were not made (module nvidia-uvm or nvidia-modeset not loaded)",
                    "likely",
                    "ls -l /dev/nvidia*; nvidia-modprobe -u -m",
                ),
                Cause("the GPU that the container names is gone or has another UUID", "possible", "nvidia-smi -L on the host"),
            ],
            action="nvidia-modprobe -u -m, or run nvidia-persistenced; regenerate CDI specifications made before.",
        )
    for subject, events in by_node(case, ctx, "container.requirement"):
        condition = next((e.fields["condition"] for e in events if "condition" in e.fields), "")
        yield ctx.finding(
            "warning",
            f"the image asks for more than the driver offers: {condition}",
            id="container.requirement_unmet",
            subject=subject,
            evidence=events,
            causes=["the image's CUDA is newer than the driver supports"],
            action="Update the driver, use an image with an older CUDA, or the cuda-compat package; NVIDIA_DISABLE_REQUIRE=1 only hides it.",
        )


@rule(
    "container.device_access_lost",
    "Containers keep access to their GPUs",
    scope="case",
    family="container",
    sop="SOP-SW",
    hint="log of the workload's container; nvidia-smi inside and on the host",
    sources=("NVIDIA/nvidia-container-toolkit#48",),
    action="Restart the container; create /dev/char links (nvidia-ctk system create-dev-char-symlinks) or use CDI, so that a reload keeps the access.",
)
def access_lost(case: Case, ctx: Context) -> Iterator[Finding]:
    """A container's log says "Failed to initialize NVML: Unknown Error", or the hook could not set device rules: the GPU's nodes are shut to
    it while the GPU is fine. (The same answer at a prompt is ``container.device_cgroup_lost``.)"""
    for subject, events in by_node(case, ctx, "container.device_access_lost", "container.device_rules"):
        yield ctx.finding(
            "error",
            "a container may not open the GPU's device nodes",
            subject=subject,
            evidence=events,
            confidence="medium",
            causes=[
                Cause(
                    "systemd daemon-reload (or another cgroup update) took the device rules away",
                    "likely",
                    "nvidia-smi works on the host",
                ),
                Cause(
                    "toolkit older than cgroup v2 or run without rights",
                    "possible",
                    "nvidia-ctk --version; stat -f /sys/fs/cgroup",
                ),
            ],
        )


@rule(
    "container.no_rdma_devices",
    "Containers see the RDMA devices",
    scope="case",
    family="container",
    sop="SOP-IB",
    hint="log of the workload; ibv_devices and ls /dev/infiniband inside the container",
    sources=("rdma-core: libibverbs/init.c", "Kubernetes RDMA shared device plugin and SR-IOV device plugin documentation"),
    action="Give the container /dev/infiniband (or a resource of the RDMA device plugin), IPC_LOCK, and the image libibverbs with mlx5 (rdma-core).",
)
def no_rdma(case: Case, ctx: Context) -> Iterator[Finding]:
    """libibverbs sees a device in /sys and no driver or device node for it: the container lacks rdma-core's provider or /dev/infiniband.
    NCCL then takes TCP, at a fraction of the bandwidth."""
    for subject, events in by_node(case, ctx, "container.no_rdma"):
        yield ctx.finding(
            "warning", "a container sees RDMA devices in /sys but cannot use them", subject=subject, evidence=events
        )
