"""Readers of pasted and saved tool outputs: one module a tool, sniffed by content, never by file name.

To add a tool: write ``captures/<tool>.py`` with ``parse(block, fragment)`` and add one line to :data:`CAPTURES`: the tool's name, a regular
expression for the first line of its output, and the module. Lines that the parser cannot place go to ``fragment.unparsed``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

import msgspec

from kilter.intake.fragment import Block, Fragment

Parser = Callable[[Block, Fragment], None]

#: A PCI address at the start of an lspci line.
_SLOT = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


_SLURM_STATE = (
    r"(?:RUNNING|PENDING|COMPLETING|CONFIGURING|SUSPENDED|idle|mixed|mix|allocated|alloc|drained|draining|drain|drng|down|maint|resv|"
    r"reserved|inval|completing|comp)"
)
#: A header line of sinfo or squeue, or a line of a table without one, delimited by "|".
_SLURM_TABLE = (
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d [\d:]{8} \d{4}\r?\n)?[ \t]*(?=[A-Z][A-Z0-9_()/:;|#,*=. \t-]*\r?$)"
    r"(?=[^\n]*\b(?:NODELIST|HOSTNAMES|NODE_ADDR|JOBID|ARRAY_JOB_ID)\b)(?=[^\n]*\b(?:STATE|ST|REASON|GRES|TIME|PARTITION)\b)"
    r"|[^\s|][^\n|]{0,300}\|(?=[^\n]*\|#?[ ]*" + _SLURM_STATE + r"[*$~#%!@^+-]?[ \t]*(?:\||\r?$))"
)

#: A port's line of iblinkinfo, up to the link itself.
_IB_LINK = (
    r"(?:0x[0-9a-f]{16} \"[^\"\n]{0,90}\" |[ \t]{4,20}(?:0x[0-9a-f]{16} )?)[ \t]{0,12}\d{1,6} {1,5}\d{1,5}\[[ \d]{0,4}\] ==\("
)

#: States of ended jobs (man sacct).
_ENDED = r"BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT|REQUEUED|REVOKED"


class Capture(msgspec.Struct, frozen=True):
    """How one tool's output is recognised. ``start`` is tried at the beginning of each line (no look-behind, no groups with names)."""

    tool: str
    start: str
    module: str
    repeats: bool = False  # ``start`` matches again inside one output: a further match continues the block
    inside: str = ""  # a tool whose output has lines like this: there a match continues that tool's block

    def parser(self) -> Parser:
        parse: Parser = importlib.import_module(f"kilter.intake.captures.{self.module}").parse
        return parse


CAPTURES: list[Capture] = [
    Capture("nvidia-smi -q", r"=+NVSMI LOG=+\s*$", "nvidia_smi_q"),
    Capture(
        "nvidia-smi -q -x",
        r"<!DOCTYPE nvidia_smi_log|<nvidia_smi_log>|<\?xml[^\n]*\?>\s*\n<!DOCTYPE nvidia_smi_log",
        "nvidia_smi_xml",
        repeats=True,
    ),
    Capture(
        "nvidia-smi", r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4} *\n)?(?:\+-+\+ *\n)?\| NVIDIA-SMI ", "nvidia_smi_table"
    ),
    Capture(
        "nvidia-smi topo -m",
        r"[ \t]{0,64}(?:\x1b\[[0-9;]{0,16}m)?[ \t]{0,64}(?:GPU|NIC|mlx5_)\d+(?:[ \t]+(?:GPU|NIC|mlx5_|CPU|NUMA)[^\n]*)$",
        "nvidia_smi_topo",
    ),
    Capture("nvidia-smi list", r"GPU \d+: [^\n]+ \(UUID: (?:GPU|XPU)-", "nvidia_smi_list", repeats=True),
    Capture("nvidia-smi --version", r"NVIDIA-SMI version\s+: ", "nvidia_smi_version"),
    Capture(
        "nvidia-smi --query-gpu",
        r"(?=[a-z])(?=[^\n]*\b(?:uuid|gpu_uuid|pci\.bus_id|driver_version|pstate|utilization\.gpu|temperature\.gpu|memory\.(?:used|total)|power\.draw|ecc\.mode|clocks\.|pcie\.link|persistence_mode|compute_cap|compute_mode|mig\.mode)\b)[a-z][\w.]*(?: \[[^\]\n]*\])?(?:, ?[a-z][\w.]*(?: \[[^\]\n]*\])?)+[ \t]*$",
        "nvidia_smi_csv",
    ),
    Capture(
        "nvidia-smi error",
        r"(?:Unable to determine the device handle|Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found)",
        "nvidia_smi_error",
        repeats=True,
    ),
    Capture("xpu-smi -q", r"=+ ?XPU-?SMI LOG ?=+\s*$", "xpu_smi"),
    Capture("xpu-smi", r"\| XPU-SMI +(?:\S+ +)?Driver Version: ", "xpu_smi"),
    Capture(
        "xpu_smi", r"Runtime Version: [\d.]+[ \t]*\n[ \t]*Driver Version: \S|\| ?DevID \|\s+PCI Addr", "xpu_smi", repeats=True
    ),
    Capture(
        "xpu-smi -m",
        r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7] \d+ \d+ \S+ \d+ \d+ \d+ \d+ \d+ \d+ ",
        "xpu_smi",
        repeats=True,
    ),
    Capture("xpu-smi -L", r"XPU \d+: \S", "xpu_smi", repeats=True),
    Capture(
        "xpu-smi (Intel)",
        r"Intel(?:\(R\))? XPU System Management Interface|\| Device ID \| Device Information|Timestamp, +DeviceId, ",
        "xpu_smi",
    ),
    Capture(
        "lspci",
        _SLOT + r"(?:/\S+)? (?:\"|[A-Z0-9][^\n:]*: |[0-9a-f]{4}: )|(?:Slot|Device):\s+" + _SLOT + r"\s*$",
        "lspci",
        repeats=True,
    ),
    Capture("lspci -t", r"-(?:\[[0-9a-f]{4}(?::[0-9a-f]{2}(?:-[0-9a-f]{2})?)?\]-|\+-\[)", "lspci_tree", repeats=True),
    Capture("lscpu", r"(?:Architecture|架构)\s*[:\uff1a]\s*\S+|\{\s*\n\s*\"lscpu\":", "lscpu"),
    Capture("numactl -H", r"available: \d+ nodes? \(", "numactl"),
    Capture("ibstat", r"CA '[^'\n]+'|Infiniband device '[^'\n]+' port \d+ status:", "ibstat", repeats=True),
    Capture("ibv_devinfo", r"hca_id:\s*\S+|No IB devices found", "ibv_devinfo", repeats=True),
    Capture("ethtool -S", r"NIC statistics:", "ethtool"),
    Capture(
        "ethtool",
        r"driver: \S+[ \t]*\n(?:version|firmware-version|expansion-rom-version|bus-info):|(?:Settings|Ring parameters|Pause parameters) for \S+:",
        "ethtool",
    ),
    Capture("sysctl", r"(?:abi|debug|dev|fs|kernel|net|sunrpc|user|vm)\.[a-zA-Z0-9_.*/:@-]+ ?= ?", "sysctl", repeats=True),
    Capture("/proc/meminfo", r"MemTotal:\s+\d+ kB", "proc_files"),
    Capture("/proc/cpuinfo", r"processor\s*: \d+", "proc_files", repeats=True),
    Capture(
        "/proc/cmdline",
        r"BOOT_IMAGE=\S+ |(?:initrd=\S+ )?(?:root|console)=\S+ (?=[^\n]*\b(?:ro|rw|quiet|iommu|console)\b)",
        "proc_files",
    ),
    Capture("/proc/driver/nvidia/version", r"NVRM version: ", "proc_files"),
    Capture("/proc/limits", r"Limit\s+Soft Limit\s+Hard Limit\s+Units", "proc_files"),
    Capture(
        "lsmod",
        r"Module\s+Size\s+Used by|(?:nvidia\w{0,20}|nv_peer_mem|gdrdrv|mlx5_(?:core|ib)|ib_core) +\d{4,9} +\d{1,5}(?: +[\w,]+)?[ \t]*$",
        "proc_files",
        repeats=True,
    ),
    Capture("/proc/modules", r"\w+ \d+ \d+ (?:-|[\w,]+,) (?:Live|Loading|Unloading) 0x", "proc_files", repeats=True),
    Capture("uname -a", r"Linux \S{1,255} \d{1,4}\.\d[^\s#]{0,255} #\d", "proc_files"),
    Capture(
        "/etc/os-release",
        r"(?:PRETTY_NAME|NAME|ID|ID_LIKE|VERSION|VERSION_ID|VERSION_CODENAME|[A-Z_]+_URL|UBUNTU_CODENAME|LOGO)=(?:\"[^\"\n]*\"|[^ \"\n]*)$",
        "proc_files",
        repeats=True,
    ),
    Capture("df", r"(?:Filesystem|文件系统)\s+(?:Type\s+|类型\s+)?\S+\s+(?:Used|已用)", "proc_files"),
    Capture("ulimit -a", r"(?:real-time non-blocking time|core file size|time\(seconds\)|-t: cpu time)\s", "ulimit"),
    Capture(
        "env",
        r"(?:declare -x |export )?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK|FI|OFI|NVSHMEM|LD_PRELOAD|NCCL|CUDA|NVIDIA|TORCH|PYTORCH|UCX|OMP|MKL|GLOO|HSA|XPU|BKCL|SLURM|LD_LIBRARY_PATH|PATH|HOME|HOSTNAME|SHELL|USER|PWD|LANG)(?:_[A-Z0-9_]+)?=",
        "env",
        repeats=True,
    ),
    Capture("sysfs", r"/(?:sys|proc)/[^\s:]*(?:\d{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d[^\s:]*)*(?::| -> )", "sysfs_text", repeats=True),
    Capture(
        "kernel config",
        r"# Linux/\S+ [\w.+-]+ Kernel Configuration|CONFIG_[A-Z0-9_]+=(?:[ymn]\b|\d|\")|# CONFIG_[A-Z0-9_]+ is not set[ \t]*$",
        "kernel_config",
        repeats=True,
    ),
    Capture("/proc/interrupts", r"[ \t]+CPU\d+(?:[ \t]+CPU\d+)*[ \t]*$", "interrupts"),
    Capture(
        "ps",
        r"(?=[^\n]{0,400}\bPID\b)(?=[^\n]{0,400}\b(?:STAT|S)\b)[ \t]{0,40}[A-Z%][A-Z%:]{0,20}(?:[ \t]{1,40}[A-Z%][A-Z%:]{0,20}){2,20}[ \t]{0,40}$",
        "ps",
    ),
    Capture(
        "smartctl",
        r"smartctl \d+\.\d+ \d{4}-|SMART overall-health self-assessment|Smart Log for NVME device:",
        "smart",
        repeats=True,
    ),
    Capture("chronyc tracking", r"Reference ID    : |[ \t]+Local time: ", "clock"),
    Capture("kilter collector", r"kilter collector \d+\s*$", "collector"),
    Capture(
        "services",
        r"(?:nvidia|dcgm|opensm|openibd|slurmd|kubelet|containerd|docker)[\w@.-]*: (?:active|inactive|failed|activating|deactivating|unknown|not-found)\s*$",
        "collector",
        repeats=True,
    ),
    Capture("nv-fabricmanager --version", r"Fabric Manager version is ?: ?\d", "collector"),
    Capture(
        "Fabric Manager log",
        r"\[[A-Z][a-z]{2} +\d+ \d{4} [\d:]+\] \[[A-Z]+ *\] \[tid \d+\] |[A-Z][a-z]{2} +\d{1,2} [\d:]{8} \S{1,253} nv-fabricmanager(?:\[\d+\])?: ",
        "fabric_manager",
        repeats=True,
    ),
    Capture("perfquery", r"# Port[\w ]* counters: [^\n]{1,200}port \d+|PortSelect:\.+\d", "perfquery", repeats=True),
    Capture(
        "ibnetdiscover",
        r"(?:#[ \t]*\n)?# Topology file: generated on |vendid=0x[0-9a-f]+[ \t]*\n(?:devid|sysimgguid)=|(?:Switch|Ca|Rt)[ \t]+\d+[ \t]+\"[SHR]-[0-9a-f]{16}\""
        r"|(?:CA|SW|RT) +\d+ +\d+ 0x[0-9a-f]{16} |(?:Ca|Switch|Rt|Router)[ \t]+: 0x[0-9a-f]{16} ports \d+ devid ",
        "ibnetdiscover",
        repeats=True,
    ),
    Capture(
        "iblinkinfo",
        r"(?:CA|Switch|Router): [^\n]{1,160}:[ \t]*\r?\n" + _IB_LINK + r"|" + _IB_LINK,
        "iblinkinfo",
        repeats=True,
    ),
    Capture(
        "ibqueryerrors",
        r"(?:Errors|Data Counters) for (?:0x[0-9a-f]{1,16} )?\"|[ \t]{1,8}GUID 0x[0-9a-f]{1,16} port (?:\d{1,5}|ALL): \[",
        "ibqueryerrors",
        repeats=True,
    ),
    Capture(
        "ibdiagnet",
        r"START_(?:NODES|LINKS|PORTS|PM_INFO|NODES_INFO|CABLE_INFO|SWITCHES|DUMP_FILES_INFO|INDEX_TABLE)[ \t]*\r?$"
        r"|Ty {1,8}: {1,8}# {1,20}: {1,8}#IB {1,8}: GUID|-[EWI]- (?:Discovering \.\.\.|[^\n]{0,300}(?:increased during the run|Unexpected actual link))",
        "ibdiagnet",
        repeats=True,
    ),
    Capture("ibswinfo", r"=+[ \t]*\n[^\n|=]{1,120}\n=+[ \t]*\npart number +\||part number +\| ", "ibswinfo", repeats=True),
    Capture(
        "systemctl",
        r"(?:[●○\u00d7↻*•] ?)?[\w@:.\\-]{1,100}\.service(?: - [^\n]{0,200})?[ \t]*\r?\n[ \t]+Loaded: |[\u25cf\u25cb\u00d7\u2717\u21bb] ?[\w@:.\\-]{1,200}\.service - |[ \t]*UNIT +LOAD +ACTIVE +SUB"
        r"|[ \t]{0,2}(?:[●○\u00d7↻*•] )?[\w@:.\\-]{1,100}\.service +(?:loaded|not-found|masked) +(?:active|inactive|failed|activating)"
        r"|Unit [\w@:.\\-]{1,100}\.service could not be found",
        "systemctl",
        repeats=True,
    ),
    Capture(
        "rdma link",
        r"(?:\d+: )?link [\w.-]{1,64}/\d{1,5} (?:subnet_prefix|lid|state|[a-z]\w+ \d)|[\w.-]{1,64} port \d{1,5} ==> \S+ \((?:Up|Down)\)"
        r"|[0-9a-f:.]{7,16} \w{1,64} \(MT\d{3,6}[^\n]{0,400} ==> |MST modules:|DEVICE_TYPE +MST +PCI|\d+: [\w.-]{1,64}: (?:qp|pd) \d+ ",
        "rdma_tool",
        repeats=True,
    ),
    Capture(
        "/proc/driver/nvidia",
        r"Model:[ \t]+[^\n]{1,100}\r?\nIRQ:|(?:nvidia|mlnx|nv|gdrdrv|kernel-mft|iser|srp|isert|knem|xpmem|nvidia-fs)[\w-]*(?:/|, )\d[\w.+~-]*(?:, \S+, \w+)?: (?:added|built|installed)|"
        r"ResmanDebugLevel: \d|filename: +/\S*/nvidia\.ko|(?:MLNX_OFED_LINUX|OFED-internal|MLNX_EN)-\d[\w.-]*:?[ \t]*\r?$",
        "nvidia_proc",
        repeats=True,
    ),
    Capture(
        "nvidia-imex-ctl",
        r"Connectivity Table Legend:|Domain State: [A-Z]+[ \t]*$|Node #\d{1,5} +-|Nodes:[ \t]*\r?\nNode #\d|\{\s{0,8}\"nodes\": ?\{\s{0,8}\"\d{1,5}\": ?\{",
        "imex",
        repeats=True,
    ),
    Capture("dmidecode", r"# dmidecode \d|Handle 0x[0-9A-F]{4}, DMI type \d", "dmidecode", repeats=True),
    Capture(
        "mlxlink",
        r"Operational Info[ \t]*\r?\n-{5,}|Physical Counters and BER Info[ \t]*\r?\n-{5,}|Symbol BER +: ",
        "mlxlink",
        repeats=True,
    ),
    Capture(
        "nvidia-smi --query-gpu without header",
        r"(?=\d{1,3}, |NVIDIA |Tesla |GPU-[0-9a-f]{8}-|0000[0-9A-F]{4}:|\d{4}/\d\d/\d\d |P\d, )(?=[^\n]{0,300}(?:NVIDIA |Tesla |GPU-[0-9a-f]{8}-|0000[0-9A-F]{4}:[0-9A-F]{2}:|P\d, ))(?=[^\n]{0,300}(?:, \d+(?:\.\d+)? (?:MiB|W|%|MHz)\b|, \d{3}\.\d{2,3}(?:\.\d+)?(?:,|$)))"
        r"[^\n,:{}\"]{1,100}(?:, [^\n,{}\"]{1,100}){2,60}$",
        "nvidia_smi_csv",
        repeats=True,
        inside="nvidia-smi --query-gpu",
    ),
    Capture("show_gids", r"DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID\b", "show_gids"),
    Capture("mlnx_qos", r"DCBX mode: |Priority trust state: |PFC configuration:", "mlnx_qos", repeats=True),
    Capture("cma_roce_mode", r"(?:IB/)?RoCE v[12][ \t]*$", "mlnx_qos"),
    Capture(
        "ip",
        r"\d+: [^\s:]+: <[A-Z0-9_,-]*> mtu \d+|\d+: lo[ \t]+inet 127\.|lo[ \t]+UNKNOWN[ \t]+(?:127\.|00:)|\[ ?\{(?:[ \t]*\n)?[ \t]*\"ifindex\": ?\d+",
        "ip_link",
        repeats=True,
    ),
    Capture(
        "ethtool -m",
        r"[ \t]*Identifier[ \t]+: 0x[0-9a-f]{2} \(|(?:Features|Coalesce parameters|Channel parameters|FEC parameters) for \S+:[ \t]*$",
        "ethtool_more",
    ),
    Capture("sinfo/squeue", _SLURM_TABLE, "slurm", repeats=True),
    Capture("scontrol show node", r"NodeName=\S+ +(?:Arch=|CoresPerSocket=)", "slurm", repeats=True),
    Capture("scontrol show job", r"JobId=\d+ (?:ArrayJobId|HetJobId|JobName)=", "slurm", repeats=True),
    Capture("sdiag", r"\*{20,}[ \t]*\r?\nsdiag output at |sdiag output at ", "slurm", repeats=True),
    Capture(
        "Slurm JSON",
        r"\{\s{0,8}\"(?:meta\": ?\{\s{0,16}\"(?:plugins?|client|command|[Ss]lurm)\"|(?:sinfo|jobs|nodes)\": ?\[\s{0,16}\{)",
        "slurm",
    ),
    Capture(
        "sacct",
        r"(?:JobID|(?=[A-Z]\w{2,20}[|;][^\n]{0,600}\bJobID\b)[A-Z])(?=[^\n]{0,600}\bState\b)[\w|; \t%-]{4,600}\r?$"
        r"|\d{1,12}(?:_\d{1,9}|\+\d{1,4})?\|(?=[^\n]{0,600}\|(?:"
        + _ENDED
        + r")(?: by \d+)?\|)(?=[^\n]{0,600}\|\d{1,3}:\d{1,3}(?:\||\r?$))",
        "slurm_sacct",
        repeats=True,
    ),
    Capture(
        "Slurm log",
        r"\[\d{4}-\d\d-\d\dT[\d:.]{8,16}\] (?:(?:(?:error|fatal|debug\d?): )?(?:Nodes? \S+ |Setting node |Prolog |Killing JobId|requeue |update_node|drain_nodes|"
        r"validate_node|_?slurm_rpc_|_?job_complete|_?slurmd|slurmctld|sched: |backfill: |Launching batch|launch task|cleanup_completing|agent/|"
        r"_?pick_step|Waiting for gres|can't stat gres|Batch JobId|Low |Registering jobs|\[job \d|JobId=\d|gres/gpu)|\[\d{1,12}\.\w{1,12}\] )"
        r"|(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.]{8,18}\S{0,6}) [\w.-]{1,255} slurm(?:ctld|d|stepd|dbd)\[\d{1,10}\]: |slurmstepd: ",
        "slurm_log",
        repeats=True,
    ),
    Capture("kubectl describe", r"Name: {2,}\S+[ \t]*\r?\n(?:Roles|Namespace|Labels): ", "kubectl", repeats=True),
    Capture(
        "kubectl get",
        r"(?:NAMESPACE +)?(?:NAME +(?:STATUS +ROLES|READY +STATUS) +|LAST SEEN +(?:FIRST SEEN +COUNT +NAME +KIND|TYPE) +)",
        "kubectl",
    ),
    Capture(
        "kubectl get -o",
        r"\{\s{0,8}\"apiVersion\": ?\"(?:v1|events\.k8s\.io/v1)\"|\{\s{0,8}\"kind\": ?\"(?:(?:Node|Pod|Event)(?:List)?|List)\""
        r"|apiVersion: (?:v1|events\.k8s\.io/v1)[ \t]*\r?$",
        "kubectl_objects",
        repeats=True,
    ),
    Capture(
        "container log",
        r"(?:(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.]{8,18}\S{0,6}) [\w.-]+ (?:dockerd|containerd|kubelet|k3s|crio|nvidia-[\w-]+)(?:\[\d+\])?: |docker: |Error response from daemon: |nvidia-container-cli: |[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+\.go:\d+\] |time=\"?\d{4}-[^\"\n ]{5,35}\"? level=\w+ |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?=[^\n]*(?:XidCritical|device marked|device plugin|NVML))|libibverbs: )",
        "container_logs",
        repeats=True,
    ),
    Capture(
        "ipmitool sel",
        r" {0,3}[0-9a-f]{1,4} {0,2}[|,] {0,2}(?:\d\d?/\d\d?/\d{2,4} ?[|,] ?\d\d:\d\d:\d\d|Pre-Init)|SEL Record ID {1,20}: |SEL has no entries|ID *[|,] ?Date *[|,] ?Time *[|,] ?Name",
        "ipmi",
        repeats=True,
    ),
    Capture(
        "ipmitool sdr",
        r"[^\s|][^|\n]{1,30}\| (?:[0-9A-F]{2}h \| (?:ok|ns|nc|cr|nr|[lu](?:nc|cr|nr)) {0,3}\| {0,2}\d+\.\d+ \|"
        r"|(?:-?[\d.]+ (?:degrees C|RPM|Volts|Watts|Amps|percent)|no reading|disabled|Not Readable|0x[0-9a-f]{2}) {0,20}\| (?:ok|ns|nc|cr|nr)\s*$"
        r"|(?:-?[\d.]+|na|0x[0-9a-f]+) {0,12}\| (?:degrees C|RPM|Volts|Watts|Amps|percent|discrete|unspecified) )",
        "ipmi",
        repeats=True,
    ),
    Capture(
        "Redfish log",
        r"[\[{]\s{0,8}\{?\s{0,8}\"(?:@odata\.\w+|@Redfish[^\"\n]{0,60}|Members|Description|Id|Name)\"[^\x00]{0,600}?LogEntr",
        "ipmi",
    ),
    Capture(
        "rasdaemon",
        r"(?:Memory controller|PCIe AER|MCE) (?:events|records|errors)(?: summary)?:\s*$|No (?:Memory|PCIe AER|MCE) errors\.\s*$|Label\s+CE\s+UE\s*$"
        r"|(?:[A-Z][a-z]{2} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S{8,32}) \S{1,253} rasdaemon\[\d+\]: |overriding event \(\d+\) (?:ras|mce):|rasdaemon: (?:ras|mce):\w+ event enabled|[ \t]{0,40}\S{1,40}-\d{1,8}[ \t]{1,8}\[\d{1,5}\][ \t]{1,8}[\d.]{1,20}: (?:mc_event|aer_event|mce_record|extlog_mem_event):|Hostname: \S+\n  (?:mc_event|aer_event|mce_record):",
        "rasdaemon",
        repeats=True,
    ),
    Capture(
        "nvidia-smi dmon",
        r"#[ \t]*(?:(?:Date|Time)[, \t]+){0,2}gpu[, \t]+(?:gi|ci|pid|pwr|gtemp|temp|sm|mclk|fb|bar1|pviol|rxpci|sbecc)\b",
        "nvidia_smi_mon",
        repeats=True,
    ),
    Capture(
        "dcgmi",
        r"Successfully ran diagnostic for group|(?:\+-+\+-+\+[ \t]*\n)?\| (?:Diagnostic +\| Result|Health Monitor Report) +\||\d{1,4} GPUs? found(?: \([A-Za-z]+\))?\.[ \t]*$|Error: (?:Unable to (?:complete|run|start) diagnostic|Unable to (?:get|set|check) health|Health watches not enabled|Diagnostic could|unable to establish a connection to the specified host)|(?:\d{4}-\d\d-\d\d[ T][\d:.,]+ )?(?:ERROR|WARN(?:ING)?|INFO) +\[\d+:\d+\] \[\[Health\]\]",
        "dcgmi",
        repeats=True,
    ),
    Capture("dcgmi --version", r"Version ?: \d+\.\d+\.\d+[ \t]*\r?\nBuild ID ?: ", "dcgmi"),
    Capture(
        "dcgmi -j",
        r'\{\s*"(?:DCGM (?:GPU )?Diagnostic"\s*:|body"\s*:\s*\{\s*"(?:GPU|CPU|CPU Core|NvSwitch|Switch|ConnectX|Link|Overall Health)"\s*:)',
        "dcgmi",
    ),
    Capture(
        "Prometheus metrics",
        r"# HELP [a-zA-Z_:][\w:]*[^\n]*\n# TYPE [a-zA-Z_:]|# TYPE [a-zA-Z_:][\w:]* (?:counter|gauge|histogram|summary|untyped|unknown|info|stateset)[ \t]*$|DCGM_(?:FI|EXP)_[A-Z0-9_]+\{|nvidia_smi_[a-z0-9_]+\{",
        "prometheus",
        repeats=True,
    ),
    Capture(
        "NCCL topology",
        r'(?:<\?xml[^\n]*\?>\s*\n)?(?:<!--(?:[^-]|-(?!->)){0,2000}-->\s*)?<system(?: host_hash="[^"\n]*")? version="',
        "nccl_topology",
        repeats=True,
    ),
    Capture(
        "hwloc",
        r'(?:<\?xml[^\n]*\?>\s*\n)?<!DOCTYPE topology SYSTEM "hwloc|<topology(?: version="[\d.]+")?>',
        "hwloc",
        repeats=True,
    ),
    Capture(
        "nccl-tests",
        r"(?:[ \t]{0,8}\[\d+,\d+\](?:<std(?:out|err)>)?:?[ \t]?|[ \t]{0,8}\d+: )?#[ \t]{0,120}(?:nThread \d+ nGpus \d+|Collective test starting: |nccl-tests version |size[ \t]{1,40}count[ \t]{1,40}type|out-of-place[ \t]{1,80}in-place|\(B\)[ \t]{1,40}\(elements\)|Rank[ \t]{1,8}\d{1,7}[ \t]{1,8}(?:Group[ \t]{1,8}\d{1,5}[ \t]{1,8})?Pid[ \t])|\{\s*\"version\"\s*:\s*\d+\s*,\s*\"start_time\"",
        "nccl_tests",
        repeats=True,
    ),
    Capture(
        "perftest",
        r"(?:-{60,120}[ \t]*\n)?[ \t]{0,40}(?:RDMA_|)(?:Write|Read|Send|Atomic|Raw Ethernet)[\w ]{0,20} (?:BW|Latency)[\w ()-]{0,20} Test[ \t]*$|\*+ *\n\* Waiting for client to connect|[ \t]{0,8}#bytes[ \t]+#iterations|IB device \S{1,64} not found[ \t]*$| ?Unable to Connect the HCA's through the link|Failed to modify QP (?:\d{1,9} )?to RT[RS][ \t]*$|Couldn't connect to \S{1,255}:\d{1,5}[ \t]*\n ?Unable to open file descriptor for socket|Couldn't allocate MR[ \t]*$| ?Completion with error at (?:client|server)[ \t]*$|\{\s*\"test_info\"\s*:",
        "ib_write_bw",
        repeats=True,
    ),
    Capture(
        "serving benchmark",
        r"=+ Serving Benchmark Result =+[ \t]*\r?$|={20,}[ \t]*\r?\n= (?:PERFORMANCE OVERVIEW|REQUEST DETAILS)|= PERFORMANCE OVERVIEW[ \t]*\r?$"
        r"|(?:Starting the benchmark![ \t]*\r?\n)?(?:Request concurrency|Concurrency): \d{1,6}[ \t]*\r?$|[ \t]{0,80}NVIDIA (?:GenAI-Perf|AIPerf) \|"
        r"|(?:Metric|Statistic),(?:avg|Value)\b",
        "serving_bench",
        repeats=True,
    ),
    Capture(
        "nvbandwidth",
        r"nvbandwidth Version: |Running \w+_(?:ce|sm|to_all|latency)\w*\.[ \t]*$|\{\s*\"nvbandwidth\"\s*:",
        "nvbandwidth",
        repeats=True,
    ),
    Capture(
        "torch collect_env",
        r"Collecting environment information\.\.\.|PyTorch version ?: |Versions of relevant libraries:|\[(?:pip3?|conda|uv)\] \S+|={5,80}[ \t]*\n {0,60}System Info",
        "collect_env",
        repeats=True,
    ),
    Capture(
        "NCCL RAS",
        r"NCCL version \d{1,4}\.\d{1,4}\.\d{1,4}\S{0,80} compiled with CUDA |\{\s*\"nccl_version\"\s*:\s*\"[^\"\n]*\"\s*,\s*\"cuda_runtime_version\"",
        "nccl_ras",
    ),
    Capture(
        "Flight Recorder",
        r"\{\s*\"(?:entries|pg_config|pg_status|comm_lib_version|nccl_comm_state)\"\s*:|Not all ranks joining collective",
        "flight_recorder",
        repeats=True,
    ),
]

#: Commands whose output says nothing of where it comes from ("active", "version: 3.3.5"): known by the command behind a prompt alone.
BY_COMMAND: list[tuple[re.Pattern[str], Capture]] = [
    (re.compile(r"(?:^|[ /])systemctl +(?:--\S+ +)*is-(?:active|failed) "), Capture("systemctl", "", "systemctl")),
    (re.compile(r"(?:^|[ /])dcgmi +(?:--version|-v)\b"), Capture("dcgmi --version", "", "dcgmi")),
    (
        re.compile(
            r"^(?:sudo +)?(?:systemd-detect-virt(?: .*)?|uname +(?:-[rm]|--kernel-release|--machine)|getconf +PAGE_?SIZE|ulimit +-S?[sln]"
            r"|cat +/(?:sys|proc/sys)/\S+) *$"
        ),
        Capture("one answer", "", "one_answer"),
    ),
]


def by_command(command: str) -> Capture | None:
    """The capture of a command in :data:`BY_COMMAND`."""
    return next((capture for pattern, capture in BY_COMMAND if pattern.search(command)), None)


# The groups that tell which one matched stand empty behind each alternative: then the search looks at an alternative's first character only.
STARTS = re.compile("^(?=.)(?:" + "|".join(f"(?:{capture.start})(?P<c{i}>)" for i, capture in enumerate(CAPTURES)) + ")", re.M)


def capture_of(match: re.Match[str]) -> Capture:
    """The capture whose ``start`` matched."""
    assert match.lastgroup is not None
    return CAPTURES[int(match.lastgroup[1:])]
