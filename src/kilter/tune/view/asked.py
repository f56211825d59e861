"""Facts that no command shows: policy of the fabric and the site, and what has been observed. They are asked, never guessed."""

from __future__ import annotations

from kilter.tune.view import View, fact

#: name, type, what it is, question
ASKED: tuple[tuple[str, str, str, str], ...] = (
    ("fabric.adaptive_routing", "bool", "adaptive routing in the fabric", "Is adaptive routing on in the switches, for the RoCE traffic class?"),
    ("fabric.lossless", "bool", "lossless Ethernet (PFC) in the fabric", "Is the RoCE class lossless (PFC) on every switch of the path?"),
    ("fabric.traffic_class", "text", "traffic class of RoCE", "Which DSCP or traffic class do the switches map to the RoCE queue?"),
    ("fabric.sharp", "bool", "SHARP aggregation in the fabric", "Do the switches offer SHARP, and is the aggregation manager running?"),
    ("fabric.rail_optimised", "bool", "one switch for each rail", "Is each NIC of a node wired to its own rail switch?"),
    ("fabric.shared_subnet", "bool", "rails that share a subnet", "Are several rails of a node addresses of one IP subnet?"),
    ("host.single_tenant", "bool", "one tenant on the machine", "Does one trusted tenant own the whole machine?"),
    ("host.dedicated", "bool", "every process pinned by hand", "Is every process of this node pinned explicitly, the housekeeping too?"),
    ("host.profiling_allowed", "bool", "profiling by users", "May users without root profile GPUs on this node?"),
    ("power.capped_by_site", "bool", "power or cooling limits of the site", "Is a power or cooling limit of the site the reason for capped GPUs?"),
    ("measure.gain_proven", "bool", "a gain measured on this workload", "Has an A/B on this workload shown a gain?"),
    ("storage.nfs_heavy", "bool", "data or checkpoints over NFS", "Do data or checkpoints come over NFS?"),
    ("storage.page_cache", "bool", "a workload that lives from the page cache", "Does the job read data sets or checkpoints through the page cache?"),
    ("storage.tcp_fast", "bool", "storage over TCP at 25 Gbit/s or more", "Is storage reached over TCP at 25 Gbit/s or more?"),
    ("storage.gds", "bool", "GPUDirect Storage wanted", "Should checkpoints or models be read by GPUDirect Storage?"),
    ("symptom.small_messages", "bool", "bound by small messages", "Is the job bound by small collectives (below about 1 MiB)?"),
    ("symptom.overlap_stalls", "bool", "communication that slows compute", "Does a trace show GEMMs slowed by overlapping collectives?"),
    ("symptom.fragmentation", "bool", "memory lost to fragmentation", "Is reserved memory more than 10 % above allocated?"),
    ("symptom.preemptions", "bool", "preempted requests", "Does the engine log preemptions or retractions?"),
    ("symptom.io_stalls", "bool", "checkpoints that stall other I/O", "Do checkpoints stall other I/O of the node?"),
    ("symptom.compaction", "bool", "stalls by memory compaction", "Do latency spikes coincide with CPU time of kcompactd?"),
    ("symptom.listen_overflows", "bool", "connections refused at start", "Does nstat show TcpExtListenOverflows?"),
    ("symptom.softnet_drops", "bool", "packets dropped in softirq", "Does /proc/net/softnet_stat count drops (second column)?"),
    ("symptom.thread_failures", "bool", "threads that cannot start", "Do processes fail with EAGAIN while pids.max is not reached?"),
    ("symptom.map_count", "bool", "memory maps near their limit", "Is wc -l /proc/PID/maps above half of vm.max_map_count?"),
    ("symptom.below_line_rate", "bool", "NIC below line rate in perftest", "Does ib_read_bw or ib_write_bw stay below line rate on this node?"),
    ("symptom.busbw_low", "bool", "bus bandwidth below the hardware", "Is busbw far below the hardware at large sizes, and perftest fine?"),
    ("symptom.few_paths", "bool", "few ECMP paths in use", "Do switch counters show that RoCE flows use few of the ECMP paths?"),
    ("symptom.xid119", "bool", "repeated Xid 119 or 120 on the newest driver", "Did Xid 119/120 come back on the newest driver of the branch?"),
)  # fmt: skip


def _register(name: str, type_: str, what: str, question: str) -> None:
    @fact(name, type_, what, question=question)
    def _(v: View) -> None:
        """Known by an answer only."""


for _entry in ASKED:
    _register(*_entry)
