"""What an NCCL log says about a job: its ranks, the network it chose, the transport of each connection."""

from __future__ import annotations

from kilter.facts.base import Entity


class NcclRank(Entity):
    rank: int
    node: str = ""
    pid: int | None = None
    cuda_device: int | None = None
    bus_id: str | None = None  # PCI address
    node_rank: int | None = None  # which node, where the log says it


class NcclConnection(Entity):
    """Connections of one kind: ``via`` as printed without channel details, and how many there are."""

    via: str  # "P2P/CUMEM", "SHM/direct", "NET/IB/GDRDMA", "NET/Socket", ...
    count: int = 0
    by_node: dict[str, int] = {}  # node that says so -> connections


class NcclJob(Entity):
    """One communicator's world, as far as a log tells. ``source`` is the log's path."""

    source: str = ""
    version: str | None = None
    versions: dict[str, int] = {}  # version -> lines that print it
    cuda_driver_version: str | None = None
    nodes: list[str] = []
    addresses: dict[str, str] = {}  # network address that a node says it uses -> node
    n_ranks: int | None = None
    n_nodes: int | None = None
    local_ranks: int | None = None
    networks: dict[str, int] = {}  # "IB", "Socket", "AWS Libfabric" -> ranks that chose it
    ib_devices: list[str] | None = None  # "mlx5_0:1/IB"; [] = "No device found"
    ib_devices_by_node: dict[str, list[str]] = {}  # node -> the same, of its process that names the fewest
    plugins: list[str] = []
    environment: dict[str, str] = {}  # "NCCL_X set by environment to Y"
    gdr: dict[str, str] = {}  # HCA -> "enabled"/"disabled" as the log says
    all_direct_p2p: bool | None = None
    connections: list[NcclConnection] = []
    ranks: list[NcclRank] = []
    channels: int | None = None
    nvls_channels: int | None = None
    init_complete: int = 0
    init_started: int = 0
    rings_gdr: bool | None = None
