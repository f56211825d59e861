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
    ("fabric.jumbo", "bool", "packets of 9000 bytes on every hop", "Does every hop between the rails carry packets of 9000 bytes?"),
    ("host.single_tenant", "bool", "one tenant on the machine", "Does one trusted tenant own the whole machine?"),
    ("host.dedicated", "bool", "every process pinned by hand", "Is every process of this node pinned explicitly, the housekeeping too?"),
    ("host.profiling_allowed", "bool", "profiling by users", "May users without root profile GPUs on this node?"),
    ("power.capped_by_site", "bool", "power or cooling limits of the site", "Is a power or cooling limit of the site the reason for capped GPUs?"),
    ("measure.gain_proven", "bool", "a gain measured on this workload", "Has an A/B on this workload shown a gain?"),
    ("measure.in_progress", "bool", "an A/B that is under way", "Is an A/B or an acceptance run under way on this node?"),
    ("measure.acceptance", "bool", "an acceptance test", "Is this the acceptance test of a node?"),
    ("site.cnp_priority", "bool", "a switch class for congestion notifications", "Do the switches give CNPs a class of their own?"),
    ("site.rdma_storage", "bool", "storage over RDMA-CM", "Do storage or UCX share the RoCE fabric?"),
    ("site.ipv6_only", "bool", "a fabric with IPv6 only", "Do the rails have IPv6 addresses only?"),
    ("site.several_subnets", "bool", "NICs in several networks", "Do NICs have addresses of several networks?"),
    ("site.partitions", "bool", "InfiniBand partitions", "Do jobs run in InfiniBand partitions of their own?"),
    ("site.service_level", "text", "service level with adaptive routing", "Which service level does the subnet manager route adaptively?"),
    ("site.control_class", "text", "traffic class for small messages", "Which traffic class does the fabric keep for small messages?"),
    ("site.ranks_in_own_containers", "bool", "ranks in containers of their own", "Does each rank of a node run in its own network namespace?"),
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
    ("symptom.gpu_wake", "bool", "GPUs that wake up late", "Do GPUs take long to wake between jobs?"),
    ("symptom.small_processes", "bool", "several processes that do not fill a GPU", "Do several processes share a GPU without filling it?"),
    ("symptom.wrong_interface", "bool", "a network interface that does not route", "Does NCCL pick an interface that cannot reach other nodes?"),
    ("symptom.mixed_ip", "bool", "IPv4 and IPv6 of which one does not route", "Is one of IPv4 and IPv6 not routed between nodes?"),
    ("symptom.init_slow", "bool", "slow start of NCCL", "Does NCCL take minutes to start?"),
    ("symptom.link_flaps", "bool", "links that come and go", "Do links of the fabric go down and come back during jobs?"),
    ("symptom.few_nics", "bool", "idle NICs beside busy ones", "Do counters show some NICs busy and others idle?"),
    ("symptom.graph_deadlock", "bool", "a deadlock while a graph is captured", "Does the job hang while CUDA graphs are captured?"),
    ("symptom.comm_deadlock", "bool", "a deadlock of several communicators", "Does the job hang with several communicators of one GPU at work?"),
    ("symptom.names_moved", "bool", "RDMA devices that change their names", "Do names of RDMA devices differ between boots or nodes?"),
    ("symptom.noisy_neighbours", "bool", "pods that take each other's CPUs", "Do pods of a node take each other's CPU time?"),
    ("symptom.fork_failed", "bool", "forks that fail for want of memory", "Do data loaders fail with \"Cannot allocate memory\" at fork?"),
    ("symptom.numa_denied", "bool", "NUMA system calls that are denied", "Are set_mempolicy or mbind denied in the container?"),
    ("symptom.flat_topology", "bool", "a flat PCI tree in NCCL's graph", "Does NCCL's graph show fewer PCI levels than the host?"),
    ("symptom.nvme_scheduler", "bool", "an I/O scheduler on NVMe", "Does /sys/block/nvme*/queue/scheduler show another than none?"),
    ("symptom.slow_loading", "bool", "slow loading of the model", "Does loading the model take minutes?"),
    ("symptom.late_collectives", "bool", "collectives that start late", "Does a trace show collectives waiting behind compute kernels?"),
    ("symptom.long_pauses", "bool", "legal pauses that the watchdog ends", "Does the watchdog end the job during compilation or checkpoints?"),
    ("symptom.itl_high", "bool", "too long between tokens", "Is ITL above its goal?"),
    ("symptom.ttft_high", "bool", "too long until the first token", "Is TTFT above its goal?"),
    ("symptom.kv_room", "bool", "KV cache with room to spare", "Is most of the KV cache empty at peak load?"),
    ("symptom.api_cpu", "bool", "an API process at its limit", "Is the API process at 100 % of a core while the engine waits?"),
    ("symptom.memory_idle", "bool", "GPU memory left free", "Does the start's log show more than 8 GB of GPU memory free?"),
    ("symptom.oom_prefill", "bool", "out of memory in prefill", "Does prefill run out of memory?"),
    ("symptom.oom_decode", "bool", "out of memory in decode", "Does decode run out of memory?"),
    ("symptom.shared_prefixes", "bool", "requests that share prefixes", "Do many requests share a prefix?"),
    ("symptom.xid119", "bool", "repeated Xid 119 or 120 on the newest driver", "Did Xid 119/120 come back on the newest driver of the branch?"),
)  # fmt: skip


#: Facts that are told and never asked for: nobody can answer fifty questions about symptoms. What nobody says is not so.
TOLD = ("symptom.", "measure.", "site.")


def _register(name: str, type_: str, what: str, question: str) -> None:
    untold = False if name.startswith(TOLD) and type_ == "bool" else None

    @fact(name, type_, what, question=question)
    def _(v: View) -> bool | None:
        """Known by an answer only."""
        return untold


for _entry in ASKED:
    _register(*_entry)
