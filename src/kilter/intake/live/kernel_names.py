"""Which module parameters, sysctls and build options of the kernel are read: those that matter to GPU work
(knowledge/tunables.yaml).
"""

from __future__ import annotations

#: Modules whose parameters matter, by prefix.
_MODULES = """
    nvidia mlx ib_ rdma nvme vfio iommu kunlun xpu intel_iommu amd gdrdrv nv_peer_mem pcie_aspm intel_idle intel_pstate
    acpi_cpufreq processor pci_hotplug pciehp kvm sunrpc lustre efa irdma bnxt nouveau gpu_sched irqbypass tcp_bbr nfs
    """
PARAMETER_MODULES = tuple(_MODULES.split())

_SYSCTLS = {
    "vm": """
        swappiness zone_reclaim_mode min_free_kbytes overcommit_memory overcommit_ratio overcommit_kbytes max_map_count
        dirty_ratio dirty_background_ratio dirty_bytes dirty_background_bytes compaction_proactiveness
        compact_unevictable_allowed nr_hugepages nr_overcommit_hugepages hugetlb_shm_group numa_stat stat_interval
        vfs_cache_pressure watermark_scale_factor watermark_boost_factor panic_on_oom oom_kill_allocating_task
        unprivileged_userfaultfd memory_failure_recovery admin_reserve_kbytes extfrag_threshold page-cluster """,
    "kernel": """
        numa_balancing numa_balancing_promote_rate_limit_MBps threads-max pid_max shmmax shmall shmmni msgmax msgmnb sem
        sched_autogroup_enabled sched_rt_runtime_us sched_rt_period_us sched_latency_ns sched_min_granularity_ns
        sched_wakeup_granularity_ns sched_migration_cost_ns sched_nr_migrate sched_energy_aware sched_schedstats
        sched_util_clamp_min sched_util_clamp_max sched_child_runs_first timer_migration nmi_watchdog watchdog watchdog_thresh
        soft_watchdog softlockup_panic hardlockup_panic hung_task_timeout_secs hung_task_panic panic panic_on_oops
        perf_event_paranoid perf_event_mlock_kb kptr_restrict dmesg_restrict unprivileged_bpf_disabled yama/ptrace_scope
        io_uring_disabled modules_disabled core_pattern core_uses_pid randomize_va_space sysrq unprivileged_userns_clone
        apparmor_restrict_unprivileged_userns """,
    "fs": """
        file-max nr_open aio-max-nr aio-nr file-nr pipe-max-size inotify/max_user_instances inotify/max_user_watches
        inotify/max_queued_events mount-max
    """,
    "net/core": """
        rmem_max wmem_max rmem_default wmem_default optmem_max netdev_max_backlog netdev_budget netdev_budget_usecs somaxconn
        default_qdisc busy_read busy_poll dev_weight rps_sock_flow_entries bpf_jit_enable gro_normal_batch
    """,
    "net/ipv4": """
        tcp_rmem tcp_wmem tcp_mem udp_mem udp_rmem_min udp_wmem_min tcp_congestion_control tcp_available_congestion_control
        tcp_mtu_probing tcp_timestamps tcp_sack tcp_window_scaling tcp_low_latency tcp_adv_win_scale tcp_moderate_rcvbuf
        tcp_no_metrics_save tcp_slow_start_after_idle tcp_max_syn_backlog tcp_syncookies tcp_fin_timeout tcp_tw_reuse
        tcp_keepalive_time tcp_keepalive_intvl tcp_keepalive_probes tcp_retries2 tcp_syn_retries tcp_ecn tcp_notsent_lowat
        tcp_limit_output_bytes ip_local_port_range ip_local_reserved_ports ip_forward ip_unprivileged_port_start
        fib_multipath_hash_policy neigh/default/gc_thresh1 neigh/default/gc_thresh2 neigh/default/gc_thresh3
        neigh/default/gc_interval neigh/default/gc_stale_time
    """,
    "net/ipv6": """
        neigh/default/gc_thresh1 neigh/default/gc_thresh2 neigh/default/gc_thresh3 conf/all/disable_ipv6 conf/default/disable_ipv6
    """,
    "net/bridge": "bridge-nf-call-iptables",
    "net/netfilter": "nf_conntrack_max nf_conntrack_count",
    "sunrpc": "tcp_slot_table_entries tcp_max_slot_table_entries rdma_slot_table_entries",
}

#: sysctls as paths below ``/proc/sys``.
SYSCTLS = tuple(f"{top}/{name}" for top, names in _SYSCTLS.items() for name in names.split())

#: Of ``net.ipv4.conf.{all,default,<interface>}``: what multi-rail hosts must set so that each rail answers for itself.
CONF_SYSCTLS = ("arp_announce", "arp_ignore", "arp_filter", "rp_filter", "accept_local", "route_localnet", "src_valid_mark")

_OPTIONS = """
    PCI_P2PDMA PCIEAER PCIE_DPC PCIE_EDR PCIEASPM* PCI_IOV PCI_ATS PCI_PASID HOTPLUG_PCI_PCIE VMD NUMA NUMA_BALANCING*
    TRANSPARENT_HUGEPAGE* HUGETLB* READ_ONLY_THP_FOR_FS COMPACTION IOMMU_DEFAULT* INTEL_IOMMU* AMD_IOMMU* ARM_SMMU* IRQ_REMAP
    INIT_ON_ALLOC_DEFAULT_ON INIT_ON_FREE_DEFAULT_ON DMA_SHARED_BUFFER DMABUF* ZONE_DEVICE DEVICE_PRIVATE HMM_MIRROR
    MEMORY_FAILURE MODULES MODVERSIONS MODULE_SIG* SECURITY_LOCKDOWN* HZ HZ_* NO_HZ* PREEMPT* CPU_ISOLATION RCU_NOCB_CPU*
    CPU_FREQ_DEFAULT* X86_INTEL_PSTATE X86_AMD_PSTATE* INTEL_IDLE SCHED_AUTOGROUP SCHED_CORE SCHED_CLASS_EXT SCHEDSTATS
    CGROUPS CPUSETS CGROUP_SCHED CFS_BANDWIDTH MEMCG BPF BPF_SYSCALL BPF_JIT* DEBUG_INFO_BTF* KPROBES UPROBES FTRACE
    FUNCTION_TRACER INFINIBAND* MLX5_* RDMA_RXE NET_RX_BUSY_POLL TCP_CONG_BBR NET_SCH_FQ IO_URING ARM64_4K_PAGES
    ARM64_64K_PAGES ARM64_16K_PAGES HYPERV KVM_GUEST EDAC* X86_MCE* RAS* ACPI_APEI* IMA LSM LOCALVERSION VERSION_SIGNATURE
    CC_VERSION_TEXT RANDSTRUCT* HARDENED_USERCOPY* PAGE_TABLE_ISOLATION MITIGATION_* DRM_NOUVEAU VFIO* LRU_GEN* """
_CONFIG = _OPTIONS.split()

#: Build options without ``CONFIG_``: whole names, and how names start.
CONFIG_EXACT = frozenset(name for name in _CONFIG if not name.endswith("*"))
CONFIG_PREFIX = tuple(name[:-1] for name in _CONFIG if name.endswith("*"))
