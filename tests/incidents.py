"""Makes incidents with a known truth: real lines of real logs, many nodes, skewed clocks, lost lines.

``make(seed, script, nodes)`` gives the files of a folder and the truth. Scripts are what the fleet reports of section 1 and 2 of the
failure-mode inventory name most often; each writes what that failure leaves behind on its node and on the others.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, field

BASE = 1772600000.0  # 2026-03-04
GPUS = 8


@dataclass
class World:
    """Logs being written; times are true times, printed by each node's own clock."""

    random: random.Random
    nodes: list[str]
    skew: dict[str, float]
    lines: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    job: list[tuple[float, str]] = field(default_factory=list)
    bad: str = ""
    kind: str = ""
    seq: int = 48211

    def kernel(self, node: str, time: float, text: str) -> None:
        stamp = datetime.datetime.fromtimestamp(time + self.skew[node], tz=datetime.timezone.utc)
        self.lines.setdefault(node, []).append((time, f"{stamp:%Y-%m-%dT%H:%M:%S.%f}+00:00 {node} kernel: {text}"))

    def _job(self, node: str, time: float, text: str) -> None:
        stamp = datetime.datetime.fromtimestamp(time + self.skew[node], tz=datetime.timezone.utc)
        self.job.append((time, f"[{stamp:%Y-%m-%d %H:%M:%S}] {text}"))

    def nccl(
        self, node: str, gpu: int, time: float, text: str, level: str = "WARN", file: str = "transport/net_ib.cc:1296 "
    ) -> None:
        self._job(node, time, f"{node}:{4000 + gpu}:{5000 + gpu} [{gpu}] {file if level == 'WARN' else ''}NCCL {level} {text}")

    def watchdog(
        self, node: str, gpu: int, time: float, *, seq: int | None = None, op: str = "ALLREDUCE", numel: int = 1048576
    ) -> None:
        rank = self.rank(node, gpu)
        stamp = datetime.datetime.fromtimestamp(time + self.skew[node], tz=datetime.timezone.utc)
        what = (
            f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq or self.seq}, OpType={op}, "
            f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600{self.random.randint(10, 99)} milliseconds before timing out."
        )
        number = seq or self.seq
        for text in (  # a rank that gives up tells of it several times (PyTorch ProcessGroupNCCL.cpp)
            f"ProcessGroupNCCL.cpp:616] {what}",
            f"ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Timeout at NCCL work: {number}, last enqueued NCCL work: "
            f"{number + 1}, last completed NCCL work: {number - 1}.",
            f"ProcessGroupNCCL.cpp:630] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
            "kernels, subsequent GPU operations might run on corrupted/incomplete data.",
            f"ProcessGroupNCCL.cpp:1595] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated "
            f"with exception: {what}",
        ):
            self.job.append((time, f"[rank{rank}]:[E{stamp:%m%d %H:%M:%S.%f} {text}"))

    def rank(self, node: str, gpu: int) -> int:
        return self.nodes.index(node) * GPUS + gpu

    def others(self) -> list[str]:
        return [n for n in self.nodes if n != self.bad]

    def address(self, node: str) -> str:
        return f"10.1.{self.nodes.index(node) // 250}.{self.nodes.index(node) % 250 + 1}"

    def some(self, count: int) -> list[str]:
        return self.random.sample(self.others(), min(count, len(self.others())))

    def peers_lose(self, time: float, *, share: float = 0.5) -> None:
        """Peers see their connection to the bad node break."""
        for node in self.some(max(2, int(len(self.nodes) * share))):
            when = time + self.random.uniform(0.5, 20)
            if self.random.random() < 0.6:
                self.nccl(
                    node,
                    self.random.randrange(GPUS),
                    when,
                    f"NET/IB: Got completion from peer {self.address(self.bad)}<48133> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
                )
            else:
                self.nccl(
                    node,
                    self.random.randrange(GPUS),
                    when,
                    f"socketProgress: Connection closed by remote peer {self.bad}<51234>",
                    file="misc/socket.cc:58 ",
                )

    def all_wait(self, time: float, *, but: list[int] | None = None) -> None:
        """All ranks' watchdogs fire ten minutes later, but for some."""
        for node in self.nodes:
            for gpu in range(GPUS):
                if self.rank(node, gpu) not in (but or []) and node != self.bad:
                    self.watchdog(node, gpu, time + 600 + self.random.uniform(0, 0.8))


def gpu_off_bus(w: World, t: float) -> None:
    w.kind = "gpu or bus"
    w.kernel(w.bad, t - 3, "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0")
    w.kernel(
        w.bad, t - 2, "nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
    )
    w.kernel(w.bad, t, "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    w.kernel(w.bad, t + 1, "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")
    w.peers_lose(t)


def gsp_timeout(w: World, t: float) -> None:
    w.kind = "gpu"
    w.kernel(
        w.bad,
        t,
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=python, Timeout after 45s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c).",
    )
    w.kernel(w.bad, t + 120, "INFO: task python:2024380 blocked for more than 120 seconds.")
    w.all_wait(t)


def hbm_uncontained(w: World, t: float) -> None:
    w.kind = "gpu"
    for code, text in (
        (48, "DBE (double bit error) detected"),
        (63, "Row Remapper: New row marked for remapping"),
        (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),
    ):
        w.kernel(w.bad, t + code / 100, f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=771, name=python, {text}")
    w.peers_lose(t + 2)


def nvlink_fatal(w: World, t: float) -> None:
    w.kind = "gpu"
    w.kernel(
        w.bad,
        t,
        "NVRM: Xid (PCI:0000:5d:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    )
    w.kernel(w.bad, t + 0.2, "nvidia-nvswitch2: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    for gpu in range(1, 4):
        w.kernel(w.bad, t + 1, f"NVRM: Xid (PCI:0000:{0x18 + gpu:02x}:00): 45, pid={4000 + gpu}, name=python, Ch 00000008")
    w.peers_lose(t + 1)


def ib_link_down(w: World, t: float) -> None:
    w.kind = "link"
    w.kernel(w.bad, t, "mlx5_core 0000:1a:00.0 ib0: Link down")
    w.kernel(w.bad, t + 4, "mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable")
    w.peers_lose(t + 3, share=0.7)


def nic_health(w: World, t: float) -> None:
    w.kind = "nic"
    w.kernel(w.bad, t, "mlx5_core 0000:1a:00.0: poll_health:803:(pid 0): device's health compromised - reached miss count")
    w.kernel(
        w.bad,
        t + 5,
        "mlx5_core 0000:1a:00.0: wait_func:1155:(pid 9): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
    )
    w.peers_lose(t + 2, share=0.7)


def oom(w: World, t: float) -> None:
    w.kind = "host memory"
    w.kernel(
        w.bad,
        t,
        "Out of memory: Killed process 4003 (python) total-vm:912345kB, anon-rss:812345kB, file-rss:0kB, shmem-rss:0kB, UID:0",
    )
    w.peers_lose(t)


def panic(w: World, t: float) -> None:
    w.kind = "host crash"
    w.kernel(w.bad, t, "Kernel panic - not syncing: Fatal hardware error!")
    w.peers_lose(t + 1, share=0.8)


def storage(w: World, t: float) -> None:
    w.kind = "storage"
    w.kernel(w.bad, t, "nvme nvme1: I/O 12 QID 3 timeout, aborting")
    w.kernel(w.bad, t + 30, "EXT4-fs (nvme1n1p1): Remounting filesystem read-only")
    w.all_wait(t + 30)


def straggler(w: World, t: float) -> None:
    """One rank never comes; nothing tells why."""
    w.kind = "straggler or hang"
    gpu = w.random.randrange(GPUS)
    bad_rank = w.rank(w.bad, gpu)
    for node in w.nodes:
        for one in range(GPUS):
            if w.rank(node, one) != bad_rank:
                w.watchdog(node, one, t + 600 + w.random.uniform(0, 0.8))


def desync(w: World, t: float) -> None:
    w.kind = "desync"
    gpu = w.random.randrange(GPUS)
    for node in w.nodes:
        for one in range(GPUS):
            odd = node == w.bad and one == gpu
            w.watchdog(
                node,
                one,
                t + 600 + w.random.uniform(0, 0.8),
                op="BROADCAST" if odd else "ALLREDUCE",
                numel=64 if odd else 1048576,
            )


def leaf_switch(w: World, t: float) -> None:
    """A leaf switch dies: many nodes lose their link at once. No node is to be accused."""
    w.kind = "several"
    lost = w.random.sample(w.nodes, max(4, len(w.nodes) // 4))
    w.bad = ""
    for node in lost:
        w.kernel(node, t + w.random.uniform(0, 0.3), "mlx5_core 0000:1a:00.0 ib0: Link down")
    rest = [n for n in w.nodes if n not in lost] or w.nodes
    for node in w.random.sample(rest, max(1, len(rest) // 2)):
        peer = w.random.choice(lost)
        w.nccl(
            node,
            0,
            t + 5 + w.random.uniform(0, 20),
            f"NET/IB: Got completion from peer {w.address(peer)}<48133> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        )


def unknown(w: World, t: float) -> None:
    """Everybody waits in one collective, nobody tells of a fault: cannot be known."""
    w.kind, w.bad = "unknown", ""
    w.all_wait(t)


SCRIPTS: dict[str, Callable[[World, float], None]] = {
    f.__name__: f
    for f in (
        gpu_off_bus,
        gsp_timeout,
        hbm_uncontained,
        nvlink_fatal,
        ib_link_down,
        nic_health,
        oom,
        panic,
        storage,
        straggler,
        desync,
        leaf_switch,
        unknown,
    )
}


def _noise(w: World, t: float) -> None:
    """What healthy nodes' logs hold: ordinary lines, and faults of other days."""
    for node in w.nodes:
        w.kernel(
            node,
            t - w.random.uniform(3600, 90000),
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        )
        w.kernel(node, t - w.random.uniform(0, 3000), "mlx5_core 0000:1a:00.0: firmware version: 28.41.1000")
        if w.random.random() < 0.15:
            w.kernel(
                node,
                t - w.random.uniform(86400, 500000),
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=python, Ch 00000008, intr 10000000. MMU Fault",
            )
        if w.random.random() < 0.05:
            w.kernel(
                node,
                t - w.random.uniform(86400, 500000),
                "NVRM: Xid (PCI:0000:3b:00): 79, pid=9, name=python, GPU has fallen off the bus.",
            )
        if w.random.random() < 0.1:
            w.kernel(
                node,
                t - w.random.uniform(0, 4000),
                "nvidia 0000:5d:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            )


def make(seed: int, script: str, count: int, *, skew_s: float = 5.0, drop: float = 0.1) -> tuple[dict[str, str], str, str]:
    """(files by path, guilty node or "", class) of one incident on ``count`` nodes."""
    rng = random.Random(seed)
    nodes = [f"gpu-{n:03d}" for n in range(count)]
    world = World(rng, nodes, {n: rng.uniform(-skew_s / 2, skew_s / 2) for n in nodes}, bad=rng.choice(nodes))
    t = BASE + rng.uniform(0, 80000)
    for node in nodes:
        start = t - 7000
        world.nccl(node, 0, start, f"Bootstrap : Using eth0:{world.address(node)}<0>", level="INFO")
        for gpu in range(GPUS if count <= 64 else 1):
            world.nccl(
                node,
                gpu,
                start + 1,
                f"comm 0x1 rank {world.rank(node, gpu)} nRanks {count * GPUS} nNodes {count} localRanks {GPUS} localRank {gpu} MNNVL 0",
                level="INFO",
            )
    world.job.append((t - 6999, f"{nodes[0]}:4000:4000 [0] NCCL INFO NCCL version 2.21.5+cuda12.4"))
    _noise(world, t)
    SCRIPTS[script](world, t)
    files: dict[str, str] = {}
    for node, lines in world.lines.items():
        kept = [line for _, line in sorted(lines) if rng.random() >= drop or ("Xid" in line and script in ("gsp_timeout",))]
        files[f"{node}/kern.log"] = "\n".join(kept) + "\n"
    files["job.log"] = "\n".join(line for _, line in sorted(world.job) if rng.random() >= drop or " INFO " in line) + "\n"
    return files, world.bad, world.kind
