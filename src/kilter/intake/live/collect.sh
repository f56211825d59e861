#!/bin/sh
# kilter collector: gathers what `kilter diagnose` reads, for machines where kilter itself cannot run.
#
#   sh collect.sh [ARCHIVE]      default: ./kilter-<host>-<time>.tar.gz
#
# Works as any user; root sees more (PCI configuration space, kernel log). Needs a POSIX shell, grep, sed, tar. Changes nothing:
# it writes to a temporary directory, which it removes, and to the archive. Each command gets KILTER_TIMEOUT seconds (20); one that
# hangs is left behind and recorded, and so does not hold up the rest. Nothing leaves this machine.

set -u
LC_ALL=C
export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin
export PATH
umask 077

VERSION=1
LIMIT=${KILTER_TIMEOUT:-20}
WORK=
CHILD=
HUNG=

# Paths below /proc/sys: the list of kernel_names.py, a test keeps them equal.
SYSCTLS='
    vm/swappiness vm/zone_reclaim_mode vm/min_free_kbytes vm/overcommit_memory vm/overcommit_ratio
    vm/overcommit_kbytes vm/max_map_count vm/dirty_ratio vm/dirty_background_ratio vm/dirty_bytes
    vm/dirty_background_bytes vm/compaction_proactiveness vm/compact_unevictable_allowed vm/nr_hugepages
    vm/nr_overcommit_hugepages vm/hugetlb_shm_group vm/numa_stat vm/stat_interval vm/vfs_cache_pressure
    vm/watermark_scale_factor vm/watermark_boost_factor vm/panic_on_oom vm/oom_kill_allocating_task
    vm/unprivileged_userfaultfd vm/memory_failure_recovery vm/admin_reserve_kbytes vm/extfrag_threshold
    vm/page-cluster kernel/numa_balancing kernel/numa_balancing_promote_rate_limit_MBps kernel/threads-max
    kernel/pid_max kernel/shmmax kernel/shmall kernel/shmmni kernel/msgmax kernel/msgmnb kernel/sem
    kernel/sched_autogroup_enabled kernel/sched_rt_runtime_us kernel/sched_rt_period_us kernel/sched_latency_ns
    kernel/sched_min_granularity_ns kernel/sched_wakeup_granularity_ns kernel/sched_migration_cost_ns
    kernel/sched_nr_migrate kernel/sched_energy_aware kernel/sched_schedstats kernel/sched_util_clamp_min
    kernel/sched_util_clamp_max kernel/sched_child_runs_first kernel/timer_migration kernel/nmi_watchdog
    kernel/watchdog kernel/watchdog_thresh kernel/soft_watchdog kernel/softlockup_panic kernel/hardlockup_panic
    kernel/hung_task_timeout_secs kernel/hung_task_panic kernel/panic kernel/panic_on_oops kernel/perf_event_paranoid
    kernel/perf_event_mlock_kb kernel/kptr_restrict kernel/dmesg_restrict kernel/unprivileged_bpf_disabled
    kernel/yama/ptrace_scope kernel/io_uring_disabled kernel/modules_disabled kernel/core_pattern kernel/core_uses_pid
    kernel/randomize_va_space kernel/sysrq kernel/unprivileged_userns_clone
    kernel/apparmor_restrict_unprivileged_userns fs/file-max fs/nr_open fs/aio-max-nr fs/aio-nr fs/file-nr
    fs/pipe-max-size fs/inotify/max_user_instances fs/inotify/max_user_watches fs/inotify/max_queued_events
    fs/mount-max net/core/rmem_max net/core/wmem_max net/core/rmem_default net/core/wmem_default net/core/optmem_max
    net/core/netdev_max_backlog net/core/netdev_budget net/core/netdev_budget_usecs net/core/somaxconn
    net/core/default_qdisc net/core/busy_read net/core/busy_poll net/core/dev_weight net/core/rps_sock_flow_entries
    net/core/bpf_jit_enable net/core/gro_normal_batch net/ipv4/tcp_rmem net/ipv4/tcp_wmem net/ipv4/tcp_mem
    net/ipv4/udp_mem net/ipv4/udp_rmem_min net/ipv4/udp_wmem_min net/ipv4/tcp_congestion_control
    net/ipv4/tcp_available_congestion_control net/ipv4/tcp_mtu_probing net/ipv4/tcp_timestamps net/ipv4/tcp_sack
    net/ipv4/tcp_window_scaling net/ipv4/tcp_low_latency net/ipv4/tcp_adv_win_scale net/ipv4/tcp_moderate_rcvbuf
    net/ipv4/tcp_no_metrics_save net/ipv4/tcp_slow_start_after_idle net/ipv4/tcp_max_syn_backlog
    net/ipv4/tcp_syncookies net/ipv4/tcp_fin_timeout net/ipv4/tcp_tw_reuse net/ipv4/tcp_keepalive_time
    net/ipv4/tcp_keepalive_intvl net/ipv4/tcp_keepalive_probes net/ipv4/tcp_retries2 net/ipv4/tcp_syn_retries
    net/ipv4/tcp_ecn net/ipv4/tcp_notsent_lowat net/ipv4/tcp_limit_output_bytes net/ipv4/ip_local_port_range
    net/ipv4/ip_local_reserved_ports net/ipv4/ip_forward net/ipv4/ip_unprivileged_port_start
    net/ipv4/fib_multipath_hash_policy net/ipv4/neigh/default/gc_thresh1 net/ipv4/neigh/default/gc_thresh2
    net/ipv4/neigh/default/gc_thresh3 net/ipv4/neigh/default/gc_interval net/ipv4/neigh/default/gc_stale_time
    net/ipv6/neigh/default/gc_thresh1 net/ipv6/neigh/default/gc_thresh2 net/ipv6/neigh/default/gc_thresh3
    net/ipv6/conf/all/disable_ipv6 net/ipv6/conf/default/disable_ipv6 net/bridge/bridge-nf-call-iptables
    net/netfilter/nf_conntrack_max net/netfilter/nf_conntrack_count sunrpc/tcp_slot_table_entries
    sunrpc/tcp_max_slot_table_entries sunrpc/rdma_slot_table_entries
'

# Kernel build options, from the same file; a star stands for any rest of the name.
OPTIONS='
    PCI_P2PDMA PCIEAER PCIE_DPC PCIE_EDR PCIEASPM* PCI_IOV PCI_ATS PCI_PASID HOTPLUG_PCI_PCIE VMD NUMA NUMA_BALANCING*
    TRANSPARENT_HUGEPAGE* HUGETLB* READ_ONLY_THP_FOR_FS COMPACTION IOMMU_DEFAULT* INTEL_IOMMU* AMD_IOMMU* ARM_SMMU*
    IRQ_REMAP INIT_ON_ALLOC_DEFAULT_ON INIT_ON_FREE_DEFAULT_ON DMA_SHARED_BUFFER DMABUF* ZONE_DEVICE DEVICE_PRIVATE
    HMM_MIRROR MEMORY_FAILURE MODULES MODVERSIONS MODULE_SIG* SECURITY_LOCKDOWN* HZ HZ_* NO_HZ* PREEMPT* CPU_ISOLATION
    RCU_NOCB_CPU* CPU_FREQ_DEFAULT* X86_INTEL_PSTATE X86_AMD_PSTATE* INTEL_IDLE SCHED_AUTOGROUP SCHED_CORE
    SCHED_CLASS_EXT SCHEDSTATS CGROUPS CPUSETS CGROUP_SCHED CFS_BANDWIDTH MEMCG BPF BPF_SYSCALL BPF_JIT*
    DEBUG_INFO_BTF* KPROBES UPROBES FTRACE FUNCTION_TRACER INFINIBAND* MLX5_* RDMA_RXE NET_RX_BUSY_POLL TCP_CONG_BBR
    NET_SCH_FQ IO_URING ARM64_4K_PAGES ARM64_64K_PAGES ARM64_16K_PAGES HYPERV KVM_GUEST EDAC* X86_MCE* RAS* ACPI_APEI*
    IMA LSM LOCALVERSION VERSION_SIGNATURE CC_VERSION_TEXT RANDSTRUCT* HARDENED_USERCOPY* PAGE_TABLE_ISOLATION
    MITIGATION_* DRM_NOUVEAU VFIO* LRU_GEN*
'

say() { printf 'kilter: %s\n' "$*" >&2; }

cleanup() {
    [ -z "$CHILD" ] || kill_all "$CHILD"
    [ -z "$WORK" ] || rm -rf "$WORK"
}

# Seconds since boot with a fraction where the kernel tells them, else the wall clock's.
now() {
    if read -r NOW _ 2>/dev/null </proc/uptime; then :; else NOW=$(date +%s).00; fi
}

# Difference of two such times, "1.07", in shell arithmetic (the 1 in front keeps 08 from being octal).
elapsed() {
    TOOK=$(((${2%.*} - ${1%.*}) * 100 + 1${2#*.} - 1${1#*.}))
    TOOK=$((TOOK / 100)).$((TOOK % 100 / 10))$((TOOK % 10))
}

# The whole process group where the command got its own, else the process.
kill_all() {
    kill -TERM "-$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null
    nap
    kill -KILL "-$1" 2>/dev/null || kill -KILL "$1" 2>/dev/null
}

nap() { sleep 0.1 2>/dev/null || sleep 1; }

# start COMMAND...: an external command gets a process group of its own if setsid exists.
start() {
    case $(command -v "$1") in
        /*) if [ -n "$SETSID" ]; then exec setsid "$@"; else exec "$@"; fi ;;
        *) "$@" ;;
    esac
}

# limited OUT ERR COMMAND...: sets STATUS to the exit status, or to "timeout". Not timeout(1): that waits for a process which sleeps
# in the kernel, as one that talks to a dead device does, and such a process cannot be killed.
limited() {
    out=$1
    err=$2
    shift 2
    rm -f "$WORK/status" "$WORK/status.new"
    (
        start "$@" >>"$out" 2>"$err" </dev/null &
        echo $! >"$WORK/pid"
        wait $!
        echo $? >"$WORK/status.new"
        mv "$WORK/status.new" "$WORK/status"
    ) &
    tries=$((LIMIT * 10))
    [ "$FRACTIONS" = yes ] || tries=$LIMIT
    while [ ! -f "$WORK/status" ] && [ "$tries" -gt 0 ]; do
        [ -f "$WORK/pid" ] && read -r CHILD <"$WORK/pid"
        if [ "$FRACTIONS" = yes ] && [ "$tries" -gt $((LIMIT * 10 - 5)) ]; then sleep 0.02; else nap; fi
        tries=$((tries - 1))
    done
    if [ -f "$WORK/status" ]; then
        read -r STATUS <"$WORK/status"
    else
        STATUS=timeout
        [ -z "$CHILD" ] || kill_all "$CHILD"
    fi
    CHILD=
    rm -f "$WORK/pid"
}

# record STATUS SECONDS FILE COMMAND...
record() {
    s=$1
    t=$2
    f=$3
    shift 3
    printf '%s\t%s\t%s\t%s\n' "$s" "$t" "$f" "$*" >>"$DIR/manifest.txt"
}

# run FILE COMMAND...: one command into one file.
run() {
    file=$1
    shift
    run_as "$file" "$*" "$@"
}

# run_as FILE TITLE COMMAND...: the same for a function of this script, TITLE is what it stands for.
run_as() {
    file=$1
    title=$2
    shift 2
    if ! command -v "$1" >/dev/null 2>&1; then
        STATUS=missing
        record missing 0 - "$title"
        return
    fi
    case " $HUNG " in
        *" $1 "*)
            STATUS=skipped
            record skipped 0 - "$title"
            return
            ;;
    esac
    printf '### kilter: %s\n' "$title" >"$DIR/$file"
    now
    began=$NOW
    limited "$DIR/$file" "$WORK/stderr" "$@"
    now
    elapsed "$began" "$NOW"
    if [ "$STATUS" = timeout ]; then
        HUNG="$HUNG $1"
        printf 'kilter: no answer within %s s\n' "$LIMIT" >>"$WORK/stderr"
        say "no answer within $LIMIT s: $title"
    fi
    if [ -s "$WORK/stderr" ]; then
        printf '### stderr\n' >>"$DIR/$file"
        cat "$WORK/stderr" >>"$DIR/$file"
    fi
    record "$STATUS" "$TOOK" "$file" "$title"
}

# lines WHAT COMMAND...: output of one command for sysfs.txt, with a time limit of its own for each group of files.
lines() {
    what=$1
    shift
    : >"$WORK/part"
    now
    began=$NOW
    limited "$WORK/part" /dev/null "$@"
    now
    elapsed "$began" "$NOW"
    cat "$WORK/part" >>"$DIR/sysfs.txt"
    record "$STATUS" "$TOOK" sysfs.txt "$what"
    [ "$STATUS" != timeout ] || say "no answer within $LIMIT s: $what"
}

# values WHAT FILE...: "path:value" lines of many small files by one grep; an empty file is kept, what is absent or unreadable is left out.
values() {
    what=$1
    shift
    lines "$what" grep -sH '' "$@"
}

# "path -> target" of links.
links() {
    # shellcheck disable=SC2012 # names in sysfs are plain, and find -printf is not POSIX
    ls -ld "$@" 2>/dev/null | sed -n 's|^l.* \(/sys/[^ ]* -> .*\)$|\1|p'
}

first_processor() { sed -e '/^[[:space:]]*$/q' -e 's|^|/proc/cpuinfo:|' /proc/cpuinfo; }

# "path:hexadecimal bytes". Not of a function that sleeps: reading would wake it, or the port above it.
config_spaces() {
    for device in /sys/bus/pci/devices/*; do
        state='' above='' class=''
        read -r class 2>/dev/null <"$device/class"
        case $class in
            0x0880* | 0x1101* | 0x1180*) continue ;; # hundreds of system peripherals inside the CPU package
        esac
        read -r state 2>/dev/null <"$device/power_state"
        case $state in
            '' | unknown) read -r state 2>/dev/null <"$device/power/runtime_status" ;;
        esac
        read -r above 2>/dev/null <"$device/../power/runtime_status"
        case $state:$above in
            D3cold:* | suspended:* | *:suspended) continue ;;
        esac
        [ -r "$device/config" ] || continue
        printf '%s/config:' "$device"
        od -An -v -tx1 "$device/config" 2>/dev/null | tr -d '\n'
        printf '\n'
    done
}

# shellcheck disable=SC3045 # dash, bash and busybox have it; another shell says so in the file
limits() { ulimit -a; }

# Variables that matter to GPU work, without those whose names hint at a secret.
variables() {
    env | grep -E '^(NCCL_|CUDA_|NVIDIA_|TORCH_|PYTORCH_|UCX_|OMP_|MKL_|GLOO_|XPU_|BKCL_|HSA_|FI_|MELLANOX_|LD_LIBRARY_PATH|SLURM_)' |
        grep -viE '^[^=]*(TOKEN|SECRET|PASSWORD|PASSWD|KEY|CREDENTIAL)'
}

services() {
    for unit in nvidia-fabricmanager nvidia-imex nvidia-persistenced nvidia-dcgm; do
        state=$(systemctl is-active "$unit" 2>/dev/null)
        printf '%s: %s\n' "$unit" "${state:-unknown}"
    done
}

# The journal's kernel messages of this boot carry the wall clock and reach further back than the ring buffer.
kernel_log() {
    if command -v journalctl >/dev/null 2>&1; then
        run journalctl-k.txt journalctl -k -b -o short-iso --no-pager -q -n 50000
        [ "$STATUS" = 0 ] && [ "$(sed -n '2,3p' "$DIR/journalctl-k.txt" | grep -vc '^### ')" -gt 0 ] && return
        rm -f "$DIR/journalctl-k.txt"
    fi
    run dmesg.txt dmesg
}

proc_and_cpu() {
    lines "first processor" first_processor
    values "kernel and memory" /proc/meminfo /proc/cmdline /proc/version /proc/modules /proc/uptime /proc/loadavg \
        /proc/1/cgroup /proc/self/cgroup /proc/irq/default_smp_affinity /proc/net/if_inet6 \
        /proc/driver/nvidia/version /proc/driver/nvidia/params /proc/kunlun/version \
        /proc/sys/kernel/hostname /proc/sys/kernel/osrelease /proc/sys/kernel/version /proc/sys/kernel/arch \
        /proc/sys/kernel/tainted /proc/sys/kernel/random/boot_id /sys/hypervisor/type \
        /sys/devices/system/clocksource/clocksource0/*_clocksource /sys/kernel/mm/transparent_hugepage/enabled \
        /sys/kernel/mm/transparent_hugepage/defrag /sys/kernel/mm/memory_peers/*/version /sys/devices/system/edac/mc/mc*/?e_count \
        /sys/fs/cgroup/system.slice/nvidia-*.service/cgroup.procs /sys/fs/cgroup/cpuset.cpus.effective /sys/fs/cgroup/cpu.max \
        /sys/fs/cgroup/memory.max
    values "DMI" /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/class/dmi/id/product_version \
        /sys/class/dmi/id/board_vendor /sys/class/dmi/id/board_name /sys/class/dmi/id/bios_vendor /sys/class/dmi/id/bios_version \
        /sys/class/dmi/id/bios_date
    set --
    for name in $SYSCTLS; do set -- "$@" "/proc/sys/$name"; done
    for name in arp_announce arp_ignore arp_filter rp_filter accept_local route_localnet src_valid_mark; do
        set -- "$@" "/proc/sys/net/ipv4/conf/all/$name" "/proc/sys/net/ipv4/conf/default/$name"
        for device in /sys/class/net/*/device; do
            device=${device%/device}
            set -- "$@" "/proc/sys/net/ipv4/conf/${device##*/}/$name"
        done
    done
    values "sysctls" "$@"
    top=/sys/devices/system/cpu
    values "CPU" $top/online $top/offline $top/present $top/possible $top/isolated $top/nohz_full $top/smt/control $top/smt/active \
        $top/vulnerabilities/* $top/cpu*/topology/physical_package_id $top/cpu*/topology/thread_siblings_list \
        $top/cpu0/cpuidle/state*/name $top/cpu0/cpuidle/state*/latency $top/cpu0/cpuidle/state*/disable $top/cpuidle/current_driver
    values "CPU frequency" $top/cpufreq/policy*/scaling_governor $top/cpufreq/policy*/energy_performance_preference \
        $top/cpufreq/policy*/scaling_driver $top/cpufreq/policy*/cpuinfo_max_freq $top/cpufreq/policy*/affected_cpus \
        $top/cpufreq/boost $top/intel_pstate/no_turbo $top/intel_pstate/status
    top=/sys/devices/system/node
    values "NUMA" $top/online $top/node[0-9]*/cpulist $top/node[0-9]*/distance $top/node[0-9]*/meminfo \
        $top/node[0-9]*/hugepages/hugepages-*/nr_hugepages
    top=/sys/module
    values "module parameters" $top/nvidia*/parameters/* $top/mlx*/parameters/* $top/ib_*/parameters/* $top/rdma*/parameters/* \
        $top/nvme*/parameters/* $top/vfio*/parameters/* $top/iommu*/parameters/* $top/kunlun*/parameters/* $top/amd*/parameters/* \
        $top/gdrdrv/parameters/* $top/nv_peer_mem/parameters/* $top/pcie_aspm/parameters/* $top/intel_idle/parameters/* \
        $top/nvidia*/version $top/mlx*/version $top/gdrdrv/version $top/nv_peer_mem/version $top/kunlun*/version $top/nvidia*/initstate
    lines "kernel configuration" kernel_config
}

# Options that matter, always as lines of /proc/config.gz: the configuration of the running kernel.
kernel_config() {
    release=$(uname -r)
    # shellcheck disable=SC2086 # the list is meant to split
    names=$(set -f; printf '%s|' $OPTIONS | sed -e 's/[*]/[A-Za-z0-9_]*/g' -e 's/|$//')
    if [ -r /proc/config.gz ] && command -v gzip >/dev/null 2>&1; then
        gzip -dc /proc/config.gz
    elif [ -r "/boot/config-$release" ]; then
        cat "/boot/config-$release"
    elif [ -r "/lib/modules/$release/config" ]; then
        cat "/lib/modules/$release/config"
    fi 2>/dev/null | grep -E "^(# )?CONFIG_($names)(=| is not set)" | sed 's|^|/proc/config.gz:|'
}

pci() {
    top=/sys/bus/pci/devices
    [ -d $top ] || return
    lines "PCI links" links $top/* $top/*/driver $top/*/iommu_group $top/*/physfn
    values "PCI" $top/*/vendor $top/*/device $top/*/class $top/*/revision $top/*/subsystem_vendor $top/*/subsystem_device \
        $top/*/numa_node $top/*/local_cpulist $top/*/power_state $top/*/power/runtime_status $top/*/sriov_numvfs $top/*/resource \
        $top/*/aer_dev_correctable $top/*/aer_dev_fatal $top/*/aer_dev_nonfatal $top/*/aer_rootport_total_err_* \
        /sys/bus/pci/slots/*/address
    lines "PCI configuration space" config_spaces
    values "PCI links in force" $top/*/current_link_speed $top/*/current_link_width $top/*/max_link_speed $top/*/max_link_width
}

rdma() {
    top=/sys/class/infiniband
    [ -d $top ] || return
    lines "RDMA links" links $top/* $top/*/device
    for device in "$top"/*; do
        [ -d "$device" ] || continue
        values "RDMA ${device##*/}" "$device"/fw_ver "$device"/board_id "$device"/hca_type "$device"/node_guid "$device"/node_desc \
            "$device"/node_type "$device"/ports/*/state "$device"/ports/*/phys_state "$device"/ports/*/rate \
            "$device"/ports/*/link_layer "$device"/ports/*/lid "$device"/ports/*/sm_lid "$device"/ports/*/counters/* \
            "$device"/ports/*/hw_counters/* "$device"/ports/*/gids/* "$device"/ports/*/gid_attrs/types/* \
            "$device"/ports/*/gid_attrs/ndevs/* "$device"/tc/*/traffic_class
    done
}

net() {
    top=/sys/class/net
    [ -d $top ] || return
    lines "network links" links $top/* $top/*/device $top/*/device/driver
    count=0
    for device in "$top"/*; do
        name=${device##*/}
        [ -e "$device/device" ] || [ -d "$device/bonding" ] || continue
        [ ! -e "$device/device/physfn" ] || continue
        values "interface $name" "$device"/operstate "$device"/mtu "$device"/type "$device"/address "$device"/carrier \
            "$device"/carrier_down_count "$device"/speed "$device"/dev_port "$device"/phys_port_name "$device"/device/numa_node \
            "$device"/ecn/roce_?p/enable/* "$device"/qos/trust "$device"/bonding/mode "$device"/bonding/slaves
        count=$((count + 1))
        [ "$count" -le 32 ] || continue
        run "ethtool-i-$name.txt" ethtool -i "$name"
        run "ethtool-S-$name.txt" ethtool -S "$name"
        run "ethtool-g-$name.txt" ethtool -g "$name"
        run "ethtool-a-$name.txt" ethtool -a "$name"
    done
}

commands() {
    run os-release.txt cat /etc/os-release
    run uname.txt uname -a
    run lscpu.txt lscpu
    run numactl.txt numactl -H
    run df-shm.txt df -k /dev/shm
    run_as ulimit.txt "ulimit -a" limits
    run_as env.txt env variables
    if command -v systemctl >/dev/null 2>&1; then run_as services.txt "systemctl is-active" services; fi
    run nvidia-smi-q-x.txt nvidia-smi -q -x
    run nvidia-smi-topo.txt nvidia-smi topo -m
    run nvidia-smi-nvlink-s.txt nvidia-smi nvlink -s
    run nvidia-smi-nvlink-e.txt nvidia-smi nvlink -e
    run xpu-smi-q.txt xpu-smi -q
    run ibstat.txt ibstat
    run ibv_devinfo.txt ibv_devinfo -v
    run fabricmanager-version.txt nv-fabricmanager --version
    run dcgmi-version.txt dcgmi --version
    run container-toolkit-version.txt nvidia-ctk --version
    run ofed.txt ofed_info -s
    run lspci.txt lspci -vvv -nn
    run lspci-tree.txt lspci -tv
    kernel_log
}

main() {
    case $LIMIT in
        '' | *[!0-9]* | 0)
            say "KILTER_TIMEOUT must be a whole number of seconds, not '$LIMIT'"
            exit 2
            ;;
    esac
    HERE=$(pwd)
    HOST=$(uname -n | tr -c 'A-Za-z0-9._\n-' '_')
    NAME=kilter-${HOST:-unknown}-$(date -u +%Y%m%dT%H%M%SZ)
    ARCHIVE=${1:-./$NAME.tar.gz}
    if [ -e "$ARCHIVE" ]; then
        say "$ARCHIVE exists; name another file"
        exit 2
    fi
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' HUP TERM
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/kilter.XXXXXX") || exit 1
    DIR=$WORK/$NAME
    mkdir "$DIR" || exit 1
    SETSID=$(command -v setsid)
    FRACTIONS=no
    if sleep 0.01 2>/dev/null; then FRACTIONS=yes; fi
    now
    started=$NOW
    {
        printf 'kilter collector %s\n' "$VERSION"
        printf 'host: %s\n' "$HOST"
        printf 'date: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
        printf 'epoch: %s\n' "$(date +%s)"
        printf 'uptime: %s\n' "$NOW"
        printf 'zone: %s\n' "$(date +%z)"
        printf 'uid: %s\n' "$(id -u)"
        printf 'limit: %s s\n' "$LIMIT"
        printf '### commands: status, seconds, file, command\n'
    } >"$DIR/manifest.txt"
    : >"$DIR/sysfs.txt"
    say "kernel, CPU, memory"
    proc_and_cpu
    say "PCI"
    pci
    say "RDMA and network"
    rdma
    net
    say "tools"
    commands
    now
    elapsed "$started" "$NOW"
    printf '### end after %s s\n' "$TOOK" >>"$DIR/manifest.txt"
    cd "$WORK" || exit 1
    case $ARCHIVE in
        /*) target=$ARCHIVE ;;
        *) target=$HERE/$ARCHIVE ;;
    esac
    if command -v gzip >/dev/null 2>&1; then
        tar -cf - "$NAME" | gzip -c >"$WORK/archive" || exit 1
    else
        tar -cf "$WORK/archive" "$NAME" || exit 1
    fi
    cp "$WORK/archive" "$target" || exit 1
    cd "$HERE" || exit 1
    say "done in $TOOK s; send this file:"
    printf '%s\n' "$ARCHIVE"
}

main "$@"
