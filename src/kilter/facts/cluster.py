"""What a scheduler says of nodes and jobs: Slurm and Kubernetes."""

from __future__ import annotations

from kilter.facts.base import Entity


class ClusterNode(Entity):
    """One node, as ``sinfo``, ``scontrol show node`` or ``kubectl describe node`` shows it."""

    name: str
    scheduler: str = "slurm"  # slurm, kubernetes
    state: str | None = (
        None  # as printed, lower case: "drained*", "mixed", "idle"; Kubernetes: "Ready", "NotReady", "Ready,SchedulingDisabled"
    )
    reason: str | None = None
    reason_time: float | None = None
    reason_user: str | None = None
    partitions: list[str] = []
    cpus_total: int | None = None
    cpus_allocated: int | None = None
    memory_total_mib: int | None = None
    memory_allocated_mib: int | None = None
    gpus_total: int | None = None  # gres, or capacity of nvidia.com/gpu
    gpus_allocatable: int | None = None  # Kubernetes: capacity less unhealthy devices
    gpus_allocated: int | None = None
    gpu_type: str | None = None
    conditions: dict[str, str] = {}  # Kubernetes: type -> "True: reason"
    taints: list[str] = []
    labels: dict[str, str] = {}


class ClusterJob(Entity):
    """A Slurm job or a Kubernetes pod."""

    id: str
    scheduler: str = "slurm"
    name: str | None = None
    user: str | None = None
    state: str | None = None  # RUNNING, PENDING, ...; pods: Running, Pending, CrashLoopBackOff, ...
    reason: str | None = None  # "DependencyNeverSatisfied", "Unschedulable: ..."
    partition: str | None = None
    nodes: list[str] = []
    n_nodes: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    submitted: float | None = None
    started: float | None = None
    time_limit_s: float | None = None
    run_time_s: float | None = None
    restarts: int | None = None
    exit_code: int | None = None
    ended: float | None = None


class SchedulerLoad(Entity):
    """How busy a scheduler's controller is (``sdiag``), at one moment."""

    server_threads: int | None = None
    agent_queue: int | None = None
    database_queue: int | None = None  # messages that wait for slurmdbd
    jobs_pending: int | None = None
    jobs_running: int | None = None
    mean_cycle_us: int | None = None
    max_cycle_us: int | None = None
    since: float | None = None  # since when it counts
    time: float | None = None
    user_requests: dict[str, int] = {}  # user -> RPCs since then


class ImexDomain(Entity):
    """An IMEX domain, as one of its nodes sees it (``nvidia-imex-ctl -N``)."""

    state: str | None = None  # UP, DEGRADED, DOWN
    nodes: dict[str, str] = {}  # address -> READY, UNAVAILABLE, ...
    versions: dict[str, str] = {}
    connections: dict[str, str] = {}  # "10.0.0.1 -> 10.0.0.2" -> CONNECTED, NEVER_CONNECTED, ...
