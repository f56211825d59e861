"""NVLink, NVSwitch fabric and Fabric Manager."""

from __future__ import annotations

from collections.abc import Iterator

from kilter.diagnose.engine import Context, NodeEvents, rule, times
from kilter.facts.accelerator import Accelerator
from kilter.facts.case import Snapshot
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.host import Service, Software
from kilter.knowledge import gpus

FABRIC_MANAGER = "nvidia-fabricmanager"
_STATUS = "nvidia-smi nvlink --status"


def _expected(gpu: Accelerator) -> gpus.NvLinks | None:
    return gpus.expected_nvlinks(pci_device_id=gpu.pci_device_id, name=gpu.name, memory_mib=gpu.memory_total_mib)


def _active(gpu: Accelerator) -> int | None:
    if gpu.nvlinks_inactive:
        return 0
    return None if gpu.nvlinks is None else sum(1 for link in gpu.nvlinks if link.state == "active")


@rule(
    "nvlink.all_inactive",
    "NVLinks are up",
    scope="gpu",
    family="nvlink",
    sop="SOP-NVL",
    hint=_STATUS,
    sources=("Azure/azurehpc-health-checks NVLink check", "research: failure mode 20"),
    action="Check Fabric Manager: running, same version as the driver; restart it and reset the GPUs; drain if it stays.",
)
def all_inactive(gpu: Accelerator, ctx: Context) -> Finding | None:
    """All NVLinks of a GPU are down, although this product always has them. A card with an optional bridge says the same without one."""
    expected = _expected(gpu)
    if gpu.mig_mode and gpu.nvlinks is None:
        raise ctx.skip("nvidia-smi shows no NVLink in MIG mode")
    active = _active(gpu)
    if active is None:
        if expected is None and gpu.name is not None:
            raise ctx.skip("no NVLink on this GPU that kilter knows of")
        raise ctx.missing("NVLink state", _STATUS)
    if active or (gpu.nvlinks == [] and not gpu.nvlinks_inactive):
        return None
    ctx.known(gpu, Accelerator.nvlinks_inactive)
    ctx.known(gpu, Accelerator.name)
    siblings = [a for a in ctx.snapshot.accelerators or [] if a is not gpu]
    if expected is None or expected.optional:
        if any(_active(a) for a in siblings if a.name == gpu.name):
            return ctx.finding("warning", "all NVLinks are inactive, siblings of the same model have theirs up")
        same = [a for a in ctx.snapshot.accelerators or [] if a.name == gpu.name]
        if expected is not None and len(same) > 1 and same[0] is gpu:
            return ctx.finding(
                "info",
                f"all NVLinks of {len(same)} GPUs are inactive; {gpu.name} has them where a bridge is fitted",
                subject=Subject("node", "", ctx.node),
                causes=[
                    Cause("no bridge is fitted", "possible", "the node's order list; the same model elsewhere"),
                    Cause("the links did not come up at boot", "possible", "reboot once and look again (Azure/azhpc-images#443)"),
                ],
                action="Where a bridge is fitted: reboot once; if the links stay down, hand the node back to its provider.",
                missing=["whether a bridge is fitted"],
                confidence="low",
                sop="",
            )
        raise ctx.skip("NVLink needs a bridge on this GPU, and none is seen")
    if gpu.virtualization == "Pass-Through" and len(siblings) == 0:
        raise ctx.skip("one GPU passed to a VM: the fabric stays with the host")
    return ctx.finding(
        "critical",
        f"all NVLinks are inactive ({expected.count} expected on {gpu.name})",
        causes=[
            Cause(
                "Fabric Manager not running or not in step with the driver",
                "likely",
                "all GPUs of the node; systemctl status nvidia-fabricmanager",
            ),
            Cause("this GPU was not brought into the fabric", "possible", "only this GPU; nvidia-smi -q Fabric State"),
        ],
        next_test="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A4 Fabric",
    )


@rule(
    "topo.p2p_via_sys",
    "GPUs with NVLink see each other over it",
    scope="node",
    family="nvlink",
    sop="SOP-NVL",
    hint="nvidia-smi topo -m, with nvidia-smi -L",
    sources=(
        "nvidia-smi topo -m legend",
        "Azure/azhpc-images#443 (SYS in place of NV12 after some boots)",
        "knowledge: gpu_ids.yaml",
    ),
    action="nvidia-smi nvlink --status and the fabric state of all GPUs; on NVSwitch systems Fabric Manager; reboot once.",
)
def no_nvlink_in_matrix(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """The matrix shows no NVLink between any two GPUs, although this product has it: SYS, NODE, PHB or PIX in place of NV#.

    A warning for modules that always have it, information for cards that need a bridge. Not judged in MIG mode, where NVLink is off.
    """
    if snapshot.topology is None:
        raise ctx.missing("matrix of distances", "nvidia-smi topo -m")
    names = [name for name in snapshot.topology.devices if name.startswith("GPU")]
    if len(names) < 2:
        raise ctx.skip("fewer than two GPUs")
    among = set(names)
    if any(word.startswith("NV") for a in names for b, word in snapshot.topology.links.get(a, {}).items() if b in among):
        return None
    pairs = {
        (a, b): word
        for a in names
        for b, word in snapshot.topology.links.get(a, {}).items()
        if b in among and b > a and word != "X"
    }
    listed = [a for a in snapshot.accelerators or [] if a.error is None]
    if not pairs or not listed:
        raise ctx.missing("models of the GPUs, and their rows of the matrix", "nvidia-smi -L")
    kinds = [_expected(gpu) for gpu in listed]
    if any(gpu.mig_mode or gpu.mig_devices for gpu in listed) or not all(kind is not None and kind.count for kind in kinds):
        raise ctx.skip("no NVLink on these GPUs, or MIG mode")
    optional = any(kind is not None and kind.optional for kind in kinds)
    words = sorted(set(pairs.values()))
    return ctx.finding(
        "info" if optional else "warning",
        f"no pair of {len(names)} GPUs ({listed[0].name}) is joined by NVLink: {', '.join(words)} in the matrix",
        evidence=[Evidence(f"{a} - {b}: {word}", ctx.where(snapshot.topology, a)) for (a, b), word in sorted(pairs.items())[:4]],
        causes=[
            *([Cause("no NVLink bridge is fitted", "possible", "the same model elsewhere")] if optional else []),
            Cause("the links did not come up at boot", "possible" if optional else "likely", "nvidia-smi nvlink --status"),
            Cause("devices were passed to this VM or container without their fabric", "possible", "the host's matrix"),
        ],
        confidence="low" if optional else "medium",
    )


@rule(
    "nvlink.inactive",
    "Every NVLink of a GPU is up",
    scope="gpu",
    family="nvlink",
    sop="SOP-NVL",
    hint=_STATUS,
    sources=("knowledge: gpu_ids.yaml (links per product)", "Azure/azurehpc-health-checks#162 (H100 NVL has 12 by design)"),
    action="Compare both ends of the link; reset all GPUs of the node; same link again: baseboard, bridge or GPU.",
)
def some_inactive(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Some links are inactive, or there are fewer than this product has or than its siblings of the same model show.

    Hybrid cube mesh, bridges and cut-down products (H800, NVL) have fewer by design: the product table and the siblings decide.
    """
    active = _active(gpu)
    if active is None:
        if gpu.mig_mode or "nvlinks" in gpu.missing:
            raise ctx.skip("no NVLink to see")
        raise ctx.missing("NVLink state", _STATUS)
    if active == 0:
        raise ctx.skip("all links are inactive, or there are none")
    expected = _expected(gpu)
    peers = [n for a in ctx.snapshot.accelerators or [] if a is not gpu and a.name == gpu.name and (n := _active(a))]
    best = max([*peers, expected.count if expected is not None and not expected.optional and expected.confidence != "low" else 0])
    down = [link for link in gpu.nvlinks or [] if link.state is not None and link.state != "active"]
    if active >= best and not down:
        return None
    if down and active >= best and best:
        return None
    listed = [link.id for link in gpu.nvlinks or []]
    if not down and active > max(peers, default=0) - 1:
        # The driver's tool prints links that are down, too: what it does not print is cut from the text, or not on this variant of the product.
        if sorted(listed) != list(range(len(listed))):
            raise ctx.missing("a whole list of the NVLinks", _STATUS)
        return ctx.finding(
            "info",
            f"{active} NVLinks are listed, all active; this product has {best}",
            evidence=[ctx.fact(gpu, "name"), Evidence(f"{active} active links", ctx.where(gpu, "nvlinks"))],
            causes=[
                Cause(
                    "the listing was cut, or a variant of the product with fewer links",
                    "likely",
                    "nvidia-smi nvlink -s as a whole",
                )
            ],
            confidence="low",
            action="Nothing, unless siblings of the same model have more.",
        )
    who = f"of {best}" if best else f"of {active + len(down)}"
    return ctx.finding(
        "error",
        f"{active} {who} NVLinks are active" + (f"; down: link {', '.join(str(link.id) for link in down)}" if down else ""),
        evidence=[ctx.fact(gpu, "name"), Evidence(f"{active} active links", ctx.where(gpu, "nvlinks"))],
        causes=[
            Cause("signal integrity of that link, or its far end", "likely", "the same link at the peer or switch port"),
            Cause("GPU or switch port dead", "possible", "XID 74, SXid"),
        ],
        confidence="high" if down or peers else "medium",
    )


@rule(
    "nvlink.errors",
    "No NVLink replay or recovery errors",
    scope="gpu",
    family="nvlink",
    sop="SOP-NVL",
    hint="nvidia-smi nvlink -e",
    sources=("NVIDIA/DCGM 4.6.0 health watch: 100 CRC errors a second", "nvidia-smi manual: nvlink --errorcounters"),
    action="Read the counters twice; a growing recovery count means a bad link.",
)
def link_errors(gpu: Accelerator, ctx: Context) -> Finding | None:
    """Recovery errors mean that a link went down and was retrained. CRC and replay counts alone have no rate and are information."""
    links = ctx.known(gpu, Accelerator.nvlinks) or []
    counted = [link for link in links if link.recovery_errors is not None or link.replay_errors is not None or link.errors]
    if not counted:
        raise ctx.missing("NVLink error counters")
    recovered = [link for link in counted if link.recovery_errors]
    if recovered:
        total = sum(link.recovery_errors or 0 for link in recovered)
        return ctx.finding(
            "warning",
            f"{total} NVLink recoveries on link {', '.join(str(link.id) for link in recovered)}: the link went down and came back",
            reads=False,
            evidence=[
                Evidence(f"link {link.id}: recovery errors = {link.recovery_errors}", ctx.where(link)) for link in recovered
            ],
        )
    return None


@rule(
    "fabric.state",
    "GPU is in the NVLink fabric",
    scope="gpu",
    family="nvlink",
    sop="SOP-NVL",
    hint="nvidia-smi -q (Fabric)",
    sources=("NVIDIA/NVSentinel#883", "Azure/azhpc-images#506", "nvidia-ml-py nvmlGpuFabricState_t"),
    action="Check Fabric Manager (and IMEX on rack-scale systems): running, same version as the driver. Then reset the GPUs.",
    also=(
        "fabric.clique_id_zero",
        "fabric.health",
        "fabric.state_in_progress",
        "fabric.status_not_success",
    ),
)
def fabric_state(gpu: Accelerator, ctx: Context) -> Iterator[Finding]:
    """Registration with the fabric: Completed and Success is healthy. In Progress that stays means no Fabric Manager; Completed with
    another status means that the GPU is in no usable NVLink domain."""
    if gpu.fabric_state is None and ("fabric_state" in gpu.missing or gpu.nvlinks == []):
        raise ctx.skip("no NVSwitch fabric")
    state = ctx.need(gpu, Accelerator.fabric_state)
    if state.lower() in ("not supported", "none"):
        raise ctx.skip("no NVSwitch fabric")
    status = ctx.known(gpu, Accelerator.fabric_status)
    if state.lower() == "in progress" or state.lower() == "not started":
        yield ctx.finding(
            "error",
            f"fabric registration is {state}: CUDA initialisation fails until it completes",
            id="fabric.state_in_progress",
            causes=[
                Cause("Fabric Manager is not running", "likely", "systemctl is-active nvidia-fabricmanager"),
                Cause("read within seconds of boot", "possible", "read again"),
            ],
        )
    elif state.lower() != "completed":
        yield ctx.finding("error", f"fabric state is {state!r}", id="fabric.state_in_progress", confidence="medium")
    elif status is not None and status.lower() != "success":
        clique = ctx.known(gpu, Accelerator.fabric_clique_id)
        yield ctx.finding(
            "error",
            f"fabric registration completed with status {status!r}: no usable NVLink domain",
            id="fabric.status_not_success",
        )
        if clique == 0:
            yield ctx.finding(
                "info", "clique id is 0 together with a failed status: the GPU is in no partition", id="fabric.clique_id_zero"
            )
    bad = {
        k: v
        for k, v in gpu.fabric_health.items()
        if v.lower()
        not in ("healthy", "full", "no", "false", "none", "not supported", "yes" if k.startswith("partition") else "")
    }
    if bad:
        yield ctx.finding(
            "warning",
            "fabric health: " + ", ".join(f"{k.replace('_', ' ')} = {v}" for k, v in sorted(bad.items())),
            id="fabric.health",
            evidence=[ctx.fact(gpu, "fabric_health")],
        )


@rule(
    "fabric.manager_version_mismatch",
    "Fabric Manager has the driver's version",
    scope="node",
    family="nvlink",
    sop="SOP-NVL",
    hint="nv-fabricmanager --version; nvidia-smi --version",
    sources=("NVIDIA Fabric Manager guide: version must equal the driver's", "NVIDIA/gpu-operator#544"),
    action="Install the Fabric Manager of exactly the driver's version and pin both packages.",
)
def manager_version(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """Fabric Manager and driver differ in version: the manager refuses to start, and CUDA cannot initialise on NVSwitch systems."""
    service = snapshot.software.services.get(FABRIC_MANAGER)
    if service is None:
        raise ctx.missing("Fabric Manager version") if needs_fabric_manager(snapshot) else ctx.skip("no NVSwitch")
    version = ctx.need(service, Service.version)
    driver = ctx.need(snapshot.software, Software.driver_version)
    return (
        None if version == driver else ctx.finding("critical", f"Fabric Manager {version}, driver {driver}: they must be equal")
    )


def needs_fabric_manager(snapshot: Snapshot) -> bool:
    """Whether this node has NVSwitches of its own (HGX A100/H100/H200/B200); passed-through GPUs leave the manager to the host.

    Modules that report a fabric state sit on such a board. Rack-scale systems report one as well, and their manager runs on the switches.
    """
    if snapshot.nvswitches or any(d.is_nvswitch for d in (snapshot.pci or {}).values()):
        return True
    return any(
        (gpu.fabric_state or "").lower() in ("completed", "in progress", "not started")
        and gpu.virtualization in (None, "None")
        and (gpu.name or "").startswith("NVIDIA ")
        and " GB" not in (gpu.name or "")
        and (expected := _expected(gpu)) is not None
        and not expected.optional
        for gpu in snapshot.accelerators or []
    )


@rule(
    "fabric.manager_down",
    "Fabric Manager runs where it is needed",
    scope="node",
    family="nvlink",
    sop="SOP-NVL",
    hint="systemctl is-active nvidia-fabricmanager",
    sources=("NVIDIA/NVSentinel#883", "NVIDIA/gpu-operator#610 (PCIe cards need none)"),
    action="systemctl enable --now nvidia-fabricmanager; then look at the fabric state of all GPUs.",
)
def manager_down(snapshot: Snapshot, ctx: Context) -> Finding | None:
    """On a node with NVSwitches the manager must run. Without NVSwitch (PCIe cards, bridges) a dead manager means nothing."""
    service = snapshot.software.services.get(FABRIC_MANAGER)
    if not needs_fabric_manager(snapshot):
        if snapshot.pci is None and snapshot.accelerators is None:
            raise ctx.missing("whether the node has NVSwitches", "lspci -nn -d 10de:")
        raise ctx.skip("no NVSwitch")
    if service is None or service.state is None:
        raise ctx.missing("state of Fabric Manager")
    if ctx.need(service, Service.state) == "active":
        return None
    states = [(gpu.fabric_state or "", gpu.fabric_status or "") for gpu in snapshot.accelerators or []]
    registered = bool(states) and all(state == "Completed" and status == "Success" for state, status in states)
    if registered and service.state == "not-found":
        raise ctx.skip("all GPUs are in the fabric: the manager runs elsewhere, in a container for example")
    return ctx.finding(
        "warning" if registered and service.state != "failed" else "critical",
        f"Fabric Manager is {service.state} on a node with NVSwitches"
        + (f", since {service.since}" if service.since else "")
        + ("; the GPUs registered before" if registered else ""),
        contradicts=["all GPUs are in the fabric (Completed, Success); the state stays when the manager ends"]
        if registered
        else [],
        confidence="medium" if registered else "high",
    )


@rule(
    "fabric.manager_log",
    "No error in Fabric Manager's log",
    scope="switch_log",
    family="nvlink",
    sop="SOP-NVL",
    hint="/var/log/fabricmanager.log",
    sources=("NVIDIA Fabric Manager guide",),
    action="Read the log around this line; compare its version with the driver's.",
    also=("fabric.manager_version_mismatch",),
)
def manager_log(log: NodeEvents, ctx: Context) -> Iterator[Finding]:
    """Errors that Fabric Manager logs and that are no SXid. "Nothing to do" on a node without NVSwitch is none."""
    for event in log.of("fabric_manager.version_mismatch"):
        yield ctx.finding("critical", event.text, id="fabric.manager_version_mismatch", evidence=[event])
    errors = log.of("fabric_manager.error")
    if errors:
        yield ctx.finding(
            "warning",
            f"Fabric Manager logged: {errors[0].text}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""),
            evidence=errors,
            confidence="medium",
        )


@rule(
    "nvlink.detect_failed",
    "Driver found the NVLink peers",
    scope="log",
    family="nvlink",
    sop="SOP-NVL",
    hint="dmesg -T | grep -i nvlink",
    sources=("leptonai/gpud components/accelerator/nvidia/xid (knvlink lines of GH100 and GB100 drivers)",),
    action="Look at nvidia-smi nvlink -s and the fabric state of all GPUs; reset the GPUs of the node when links are missing.",
)
def detect_failed(log: NodeEvents, ctx: Context) -> Finding | None:
    """The driver could not detect or update the state of NVLink peers. Links may be missing afterwards; the line alone does not tell."""
    events = log.of("nvlink.detect_failed")
    if not events:
        return None
    return ctx.finding(
        "warning",
        f"the driver failed to detect NVLink peers{times(events)}",
        evidence=events,
        confidence="medium",
        missing=["state of the links afterwards"],
    )
