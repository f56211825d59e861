"""Kernel log lines -> events: XID, SXid, AER, hot plug, mlx5, OOM, hung tasks, machine checks, segfaults, IOMMU faults.

A line becomes an event wherever it stands, also in the middle of another output. What the driver's lines look like: the open GPU
kernel modules (NVIDIA/open-gpu-kernel-modules: src/nvidia/src/kernel/gpu/rc, kernel-open/nvidia/nv.c), the forms listed in
knowledge/tables/xid.yaml, and Linux (drivers/pci/pcie/aer.c, mm/oom_kill.c, kernel/hung_task.c).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from kilter.facts.event import Clock, Event
from kilter.facts.pci import pci_address
from kilter.intake.captures.log_time import Stamp, read_stamp
from kilter.knowledge.machine_check import machine_check_fields

#: A line without any of these words holds no event. Plain literals: finding them is what a large log costs.
MARKS = (
    *("NVRM: ", "SXid", "nvidia-peermem", "nvidia-nvlink", "kunlun", "mlx5_"),
    *("Bus Error: ", "AER: ", "DPC: ", ":    [", "pciehp", "DMAR: ", "AMD-Vi: "),
    *("ut of memory", "blocked for more than", "soft lockup", "LOCKUP", "detected stall", "segfault at"),
    *("Hardware Error", "mce: ", "EDAC ", "Remounting filesystem", "I/O error", "I/O timeout", "controller is down"),
    *("device inaccessible", "; giving up", "+0x"),
    *("Kernel panic", "BUG: ", "Oops: ", "general protection"),
    *("Hardware name: ", "DMI: ", "Linux version ", "ommand line: ", "efault domain type", "Marking clocksource"),
    *("XFS (", "EXT4-fs error", "nfs: server ", " was lost; in progress operations"),
)

#: Longer lines are cut: printk writes at most about 1 KB, a journal's JSON record some KB. Patterns may not meet a line of megabytes.
MAX_LINE = 64 << 10
MAX_MESSAGE = 4096

_PCI = r"(?P<bdf>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?" + _PCI + r"(?: GPU-I:(?P<gi>\d+))?(?: GPU-CI:(?P<ci>\d+))?\):? (?P<code>\d{1,4})(?:, ?(?P<rest>.*))?"
)
_XID_LIKE = re.compile(r"NVRM: .{0,40}\bX[Ii][Dd]\b")
_PID = re.compile(r"pid='?(?P<pid>\d+|<unknown>)'?(?:, name=(?P<name>[^,]*))?")
_NVLINK5 = re.compile(
    r"\b(?P<unit>[A-Z][A-Z0-9_]*(?:/[A-Z0-9_]+)?)\s+(?P<severity>Fatal|Non-?fatal)\s+(?:(?P<xc>XC\d+)\s+)?(?:i(?P<instance>\d+)\s+)?"
    r"Link\s+(?P<link>-?\d+)\s+\((?P<regs>0x[0-9a-fA-F]+(?:\s+0x[0-9a-fA-F]+)*)",
    re.I,
)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d+)")
_RECOVERY = re.compile(r"recovery action changed from (0x[0-9a-fA-F]+) \(([^)]*)\) to (0x[0-9a-fA-F]+) \(([^)]*)\)")
_GSP_FUNCTION = re.compile(r"Expected function (\d+)(?: \((\w+)\))?")
_GSP_GPU = re.compile(r"from GPU(\d+) GSP")
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:"
    + _PCI
    + r"\): (?P<code>\d+), (?:(?P<severity>Fatal|Non-fatal), )?(?:Link (?P<link>-?\d+) )?(?P<rest>.*)"
)
_AER_DEVICE = re.compile(
    r"(?<![\w-])(?P<driver>[\w-]+) "
    + _PCI
    + r": (?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+), type=(?P<type>[^,]+), (?:id=\w+ ?)?\(?(?P<agent>[^)]*)\)?"
)
_AER_BIT = re.compile(r"(?<![\w-])(?P<driver>[\w-]+) " + _PCI + r":? +(?:AER: +)?\[ *(?P<bit>\d+)\] (?P<name>\w+)")
_AER_ROOT = re.compile(
    r"pcieport "
    + _PCI
    + r": AER: (?P<multiple>Multiple )?(?P<severity>Corrected|Correctable|Uncorrected \((?:Non-)?Fatal\)|Uncorrectable \((?:Non-)?Fatal\)) "
    r"error (?:message )?received(?: from |: ?(?:id=)?)?(?P<from>[0-9a-f][0-9a-f:.]*)?"
)
_APEI_DEVICE = re.compile(r"device_id: " + _PCI)
_APEI_SEVERITY = {"fatal": "Uncorrectable (Fatal)", "recoverable": "Uncorrectable (Non-Fatal)", "corrected": "Corrected"}
_PCIEHP = re.compile(
    r"pciehp(?: "
    + _PCI
    + r")?.*?: ?(?:Slot\((?P<slot>[^)]*)\): )?(?P<what>Link Down|Card not present|Link Up|Card present|No device found|Failed to check link status|Powering off due to button press|Surprise Removal)"
)
_OFF_BUS_START = re.compile(r"\s*NVRM: The NVIDIA GPU ([0-9a-f:.]+)\s*(?:\(PCI ID.*)?$")
#: A line of a call trace. "? " marks an address that only lay on the stack.
_FRAME = re.compile(
    r"\s{0,8}(?:\[<[0-9a-f]{8,16}>\] )?(?P<guess>\? )?(?P<function>[A-Za-z_][\w.]{0,99})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}(?: \[(?P<module>[\w-]{1,40})\])?"
)
#: Frames that say that a task waits, and not for what.
_WAITS = re.compile(
    r"(?:__|io_)?schedule\w*$|(?:ret_from_fork|kthread|entry_SYSCALL\w*|do_syscall\w*|__x64_sys_\w+|asm_\w+|syscall_\w+)$"
)
MAX_FRAMES = 12
#: Lines between the message and the last line of its call trace.
MAX_TRACE = 40
_MLX5 = re.compile(r"mlx5_core " + _PCI + r"(?: (?P<netdev>[\w.@-]+))?: (?P<rest>.*)")

Fields = dict[str, str]


def _clean(match: re.Match[str], *names: str) -> Fields:
    groups = match.groupdict()
    return {name: groups[name].strip() for name in names if groups.get(name)}


def _address(match: re.Match[str]) -> str:
    return pci_address(match.group("bdf") or "") or ""


def _xid(match: re.Match[str]) -> Event:
    rest = match.group("rest") or ""
    fields = _clean(match, "gi", "ci")
    if pid := _PID.match(rest):
        for key, value in pid.groupdict().items():
            if value and value.strip("'") != "<unknown>":
                fields[key] = value.strip("'")
    severity = ""
    if nvlink := _NVLINK5.search(rest):
        fields |= _clean(nvlink, "unit", "xc", "instance", "link", "regs")
        severity = nvlink.group("severity")
    if caused := _CAUSED_BY.search(rest):
        fields["caused_by"] = caused.group(1)
    if recovery := _RECOVERY.search(rest):
        fields |= {"action_from": recovery.group(2), "action": recovery.group(4), "action_value": str(int(recovery.group(3), 16))}
    if function := _GSP_FUNCTION.search(rest):
        fields["function"] = function.group(1)
        if function.group(2):
            fields["function_name"] = function.group(2)
    if gpu := _GSP_GPU.search(rest):
        fields["gpu_index"] = gpu.group(1)
    return Event(
        kind="xid", code=int(match.group("code")), device=_address(match), severity=severity, fields=fields, text=match.group(0)
    )


def _sxid(match: re.Match[str]) -> Event:
    fields = _clean(match, "switch", "link")
    return Event(
        kind="sxid",
        code=int(match.group("code")),
        device=_address(match),
        severity=match.group("severity") or "",
        fields=fields,
        text=match.group(0),
    )


def _aer(match: re.Match[str]) -> Event:
    return Event(
        kind="aer",
        device=_address(match),
        severity=match.group("severity").strip(),
        fields=_clean(match, "type", "agent", "driver"),
        text=match.group(0),
    )


def _aer_root(match: re.Match[str]) -> Event:
    source = match.group("from")
    fields = {"from": pci_address(source) or source} if source else {}
    if match.group("multiple"):
        fields["multiple"] = "yes"
    return Event(kind="aer.root", device=_address(match), severity=match.group("severity"), fields=fields, text=match.group(0))


def _pciehp(match: re.Match[str]) -> Event:
    return Event(kind="pcie.hotplug", device=_address(match), fields=_clean(match, "slot", "what"), text=match.group(0))


_MLX5_KINDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"health compromised|Fatal error|device's health|assert_var|assert_exit_ptr|Firmware error|synd\b|handling bad device",
            re.I,
        ),
        "mlx5.health",
    ),
    (re.compile(r"timeout\. Will cause a leak|command timeout|cmd.{0,200}timeout|TX timeout|wait_func", re.I), "mlx5.timeout"),
    (
        re.compile(
            r"Port module event(?:\[error\])?: .{0,200}(?:error|unsupported|power|shorted|high temp|unknown)|Cable error|bad or shorted|High Temperature",
            re.I,
        ),
        "mlx5.module",
    ),
    (re.compile(r"temperature|High temperature on sensors", re.I), "mlx5.temperature"),
    (re.compile(r"Detected insufficient power", re.I), "mlx5.power"),
    (re.compile(r"Link down$|link down", re.I), "mlx5.link_down"),
    (re.compile(r"Link up$|link up", re.I), "mlx5.link_up"),
)


def _mlx5(match: re.Match[str]) -> Event | None:
    rest = match.group("rest")
    for pattern, kind in _MLX5_KINDS:
        if pattern.search(rest):
            if kind == "mlx5.temperature" and not re.search(r"high|critical|exceed|warning", rest, re.I):
                return None
            return Event(kind=kind, device=_address(match), fields=_clean(match, "netdev"), text=match.group(0))
    return None


def _simple(kind: str, *names: str) -> Callable[[re.Match[str]], Event]:
    def make(match: re.Match[str]) -> Event:
        groups = match.groupdict()
        device = pci_address(groups["bdf"]) or "" if groups.get("bdf") else groups.get("device") or ""
        return Event(kind=kind, device=device, fields=_clean(match, *names), text=match.group(0).strip())

    return make


def _machine_check(match: re.Match[str]) -> Event:
    fields = _clean(match, "cpu", "bank")
    if match.group("status"):
        fields |= machine_check_fields(int(match.group("status"), 16))
    return Event(kind="machine_check", severity=fields.pop("severity", ""), fields=fields, text=match.group(0).strip())


Maker = Callable[["re.Match[str]"], "Event | None"]

#: Tried in order; the first match makes the event. The literal is what the pattern cannot match without: looking for it is cheap.
RULES: tuple[tuple[str, re.Pattern[str], Maker], ...] = (
    ("Xid (", _XID, _xid),
    ("SXid (", _SXID, _sxid),
    ("fallen off", re.compile(r"NVRM: (?:The NVIDIA )?GPU " + _PCI + r":? .*fallen off the bus.*"), _simple("gpu.off_bus")),
    ("failed", re.compile(r"NVRM: (?:GPU (?:at )?(?:PCI:)?" + _PCI + r": )?(?:.*)(?:RmInitAdapter|rm_init_adapter) failed!?(?: \((?P<status>[^)]*)\))?.*"), _simple("gpu.init_failed", "status")),
    ("API mismatch", re.compile(r"NVRM: API mismatch: *(?P<rest>.*)"), _simple("driver.api_mismatch", "rest")),
    ("Slow RPC", re.compile(r"NVRM: .*Slow RPC response from GPU(?P<gpu_index>\d+) GSP.*"), _simple("gpu.gsp_slow", "gpu_index")),
    ("ail", re.compile(r"NVRM: (?:GPU )?(?:" + _PCI + r")?.*(?:GSP (?:firmware )?(?:init|boot).*fail|failed to (?:initialize|boot) GSP|_kgspBoot.*fail).*", re.I), _simple("gpu.gsp_boot_failed")),
    ("probably locked", re.compile(r"NVRM: .*(?:RC watchdog: GPU is probably locked|GPU is probably locked).*"), _simple("gpu.watchdog")),
    ("knvlink", re.compile(r"NVRM: knvlink\w+: .*\bfail(?:ed|ure)?\b.*", re.I), _simple("nvlink.detect_failed")),
    ("I/O region", re.compile(r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid.*"), _simple("gpu.bar_invalid")),
    ("probe routine", re.compile(r"NVRM: The NVIDIA probe routine failed.*"), _simple("gpu.probe_failed")),
    ("ailed", re.compile(r"NVRM: (?:GPU )?" + _PCI + r".*(?:rmInit failed|failed to enable MSI|nvAssertFailed).*"), _simple("nvrm.failure")),
    ("cannot find", re.compile(r"NVRM: (?:GPU )?" + _PCI + r".*cannot find.*"), _simple("nvrm.failure")),
    ("invalid context", re.compile(r"nvidia-peermem (?P<function>\w+):\d+ ERROR detected invalid context.*"), _simple("peermem.invalid_context", "function")),
    ("nvidia-peermem", re.compile(r"nvidia-peermem (?P<function>\w+):\d+ ERROR .*"), _simple("peermem.error", "function")),
    ("Bus Error", _AER_DEVICE, _aer),
    ("AER: ", _AER_ROOT, _aer_root),
    ("DPC: containment", re.compile(r"pcieport " + _PCI + r": DPC: containment event, (?P<what>status:.*)"), _simple("pcie.dpc", "what")),
    ("pciehp", _PCIEHP, _pciehp),
    ("mlx5_core", _MLX5, _mlx5),
    ("ut of memory", re.compile(r"(?P<scope>Memory cgroup out of memory|Out of memory)[:,]? (?:Kill(?:ed)? process )?(?P<pid>\d+) \((?P<name>[^)]*)\).*"), _simple("oom.kill", "scope", "pid", "name")),
    ("blocked for", re.compile(r"INFO: task (?P<name>.+?):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds.*"), _simple("hung_task", "name", "pid", "seconds")),
    ("soft lockup", re.compile(r"BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s! \[(?P<name>[^\]]*)\].*"), _simple("lockup", "cpu", "seconds", "name")),
    ("LOCKUP", re.compile(r"(?:Watchdog detected hard LOCKUP|NMI watchdog: .*LOCKUP) on cpu (?P<cpu>\d+).*"), _simple("lockup", "cpu")),
    ("detected stall", re.compile(r"rcu: INFO: \w+ (?:self-)?detected stalls?.*"), _simple("rcu_stall")),
    ("EDAC", re.compile(r"EDAC (?P<device>[\w#]+): (?P<count>\d+) (?P<severity>CE|UE) .*"), _simple("edac", "severity", "count")),
    ("Machine Check", re.compile(r"(?:mce: )?\[Hardware Error\]: (?:CPU (?P<cpu>\d{1,5}): )?Machine Check(?:(?: Exception)?: *[0-9a-f]{1,16} Bank (?P<bank>\d{1,3}): (?P<status>[0-9a-f]{16})\b)?.*"), _machine_check),
    ("[Hardware Error]", re.compile(r"\[Hardware Error\]:.*event severity: (?P<severity>\w+).*"), _simple("machine_check", "severity")),
    ("segfault at", re.compile(r"(?<![^\s\[])(?P<name>[^\s\[]+)\[(?P<pid>\d+)\]: segfault at .* error \d+(?: in (?P<library>[^\[\s]+).*)?"), _simple("segfault", "name", "pid", "library")),
    ("DMAR", re.compile(r"DMAR: (?:DRHD: handling fault status.*|\[[^\]]*\] Request device \[(?:" + r"(?P<device>[0-9a-f:.]+)" + r")\].*)"), _simple("iommu.fault")),
    ("AMD-Vi", re.compile(r"AMD-Vi: Event logged \[(?P<what>\w+) (?:device=(?P<device>[0-9a-f:.]+))?.*"), _simple("iommu.fault", "what")),
    ("Remounting", re.compile(r".*Remounting filesystem read-only.*"), _simple("filesystem.read_only")),
    ("error on dev", re.compile(r"Buffer I/O error on dev(?:ice)? (?P<device>[\w-]{1,40}),.*"), _simple("disk.io_error")),
    ("I/O error", re.compile(r"JBD2: I/O error when updating journal superblock for (?P<device>[\w-]{1,40})-\d+.*"), _simple("disk.io_error")),
    ("XFS (", re.compile(r"XFS \((?P<device>[\w.-]+)\): (?:Filesystem has been shut down|.{0,40}I/O error|Corruption |Metadata corruption|Internal error).*"), _simple("filesystem.error")),
    ("EXT4-fs error", re.compile(r"EXT4-fs error \(device (?P<device>[\w.-]+)\).*"), _simple("filesystem.error")),
    ("nfs: server", re.compile(r"nfs: server (?P<device>\S+) (?P<what>not responding, (?:still trying|timed out)|OK)"), _simple("nfs.server", "what")),
    ("was lost; in progress", re.compile(r"Lustre: .{0,200}?Connection to (?P<device>\S+) .{0,120}was lost; in progress operations.*"), _simple("nfs.server")),
    ("nvme", re.compile(r"nvme (?P<device>nvme\d+): (?:I/O .*timeout|controller is down).*"), _simple("nvme.timeout")),
    ("error, dev", re.compile(r"(?:blk_update_request: )?(?:critical medium|I/O) error, dev (?P<device>\w+).*"), _simple("disk.io_error")),
    ("Marking clocksource", re.compile(r"(?:clocksource: )?timekeeping watchdog.*Marking clocksource '(?P<device>[\w-]+)' as unstable.*"), _simple("clock.unstable")),
    ("inaccessible", re.compile(r"(?P<driver>[\w-]{1,40}) " + _PCI + r": Unable to change power state from \S{1,10} to \S{1,10}, device inaccessible.*"), _simple("pcie.inaccessible", "driver")),
    ("giving up", re.compile(r"(?P<driver>[\w-]{1,40}) " + _PCI + r": not ready \d{1,9} ?ms after (?P<after>[\w ()]{1,40}); giving up.*"), _simple("pcie.inaccessible", "driver", "after")),
    ("Kernel panic", re.compile(r"Kernel panic - not syncing.*"), _simple("kernel.panic")),
    ("BUG: ", re.compile(r"\bBUG: (?!soft).*"), _simple("kernel.oops")),
    ("Oops: ", re.compile(r"\bOops: .*"), _simple("kernel.oops")),
    ("general protection", re.compile(r"general protection fault.*"), _simple("kernel.oops")),
)  # fmt: skip

#: Texts that applications print too: they count only behind a kernel log's time.
_ONLY_STAMPED = {"kernel.oops", "kernel.panic", "disk.io_error", "filesystem.read_only", "filesystem.error", "nfs.server"}
#: Lines of the drivers that matter, with words of failure, that no rule above knows: reported as unknown fault text, never dropped.
_SMELL = re.compile(r"(?:NVRM: |nvidia-(?:nvswitch\d*|nvlink|peermem)|mlx5_(?:core|cmd)|kunlun)")
_FAULT = re.compile(
    r"\b(?:error|err|fail(?:ed|ure|s)?|fatal|assert\w*|timed? ?out|timeout|corrupt\w*|lost|hang|hung|unable|invalid|exception|critical)\b",
    re.I,
)
#: One of these is in every text that the two patterns match; looking for them is cheap.
_STEMS = (
    "xid",
    "err",
    "fail",
    "fatal",
    "assert",
    "time",
    "corrupt",
    "lost",
    "hang",
    "hung",
    "unable",
    "invalid",
    "exception",
    "critical",
)
#: Parts of dumps and messages that belong to an event already reported, or that are no fault.
_BENIGN = re.compile(
    r"RPC buffer contains|RPC (?:event )?history|entry function|^NVRM: +-?\d+ |GPU at PCI:|GPU Board Serial|loading NVIDIA|SXid.{0,200}Data \{|"
    r"Debug mode is|module verification|taint|unregistered|registered|persistence|default.{0,200}disabled|err(?:or)? recovery|Port module event: module \d+, Cable (?:un)?plugged|"
    r"kernel API|Flooding|\bPCIe bandwidth\b",
    re.I,
)


def _is_unknown_fault(message: str) -> bool:
    """Whether a line that no rule knows tells of trouble in a driver that matters."""
    if not ("NVRM: " in message or "nvidia-" in message or "mlx5_" in message or "kunlun" in message):
        return False
    low = message.lower()
    for stem in _STEMS:
        if stem in low:
            return bool(
                _XID_LIKE.search(message) or (_SMELL.search(message) and _FAULT.search(message) and not _BENIGN.search(message))
            )
    return False


#: What a boot log says of the machine itself.
_FACTS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        "software.driver_version",
        "loading NVIDIA",
        re.compile(r"NVRM: loading NVIDIA UNIX .{0,120}?Module(?: for \S{1,80})? {1,16}(\d+\.\d+(?:\.\d+)?)"),
    ),
    ("host.dmi_product", ", BIOS ", re.compile(r"(?:Hardware name|DMI): ([^,\n]{1,160}?)(?:/[^,/\n]{0,160})?, BIOS ")),
    ("kernel.iommu_domain", "efault domain type", re.compile(r"iommu: [Dd]efault domain type: (\w+)")),
    ("kernel.release", "Linux version", re.compile(r"^Linux version (\d\S+)")),
    ("kernel.cmdline", "ommand line: ", re.compile(r"^(?:Kernel c|C)ommand line: (.+)$")),
)


class KernelLog:
    """Turns lines into events; keeps what later lines of the same message refer to."""

    def __init__(self, source: str, *, year: int) -> None:
        self.source = source
        self.year = year
        self.events: list[Event] = []
        self.facts: dict[str, tuple[str, int]] = {}  # "software.driver_version" -> (value, line)
        self._pending_gpu: tuple[str, int] | None = None
        self._last_aer: dict[str, Event] = {}
        self._traced: Event | None = None  # whose call trace the next lines are
        self._apei: Event | None = None  # a record of firmware that is being told, line by line

    def feed(self, number: int, line: str) -> Event | None:
        """Read one line that holds one of :data:`MARKS`. Returns the event it made or added to."""
        line = line.rstrip("\r\n")
        stamp, message = self._message(line[:MAX_LINE])
        message = message[:MAX_MESSAGE]
        if "+0x" in message and (frame := _FRAME.match(message)):
            return self._frame(frame, number)
        if self._multi_line(number, message):
            pass
        elif "[" in message and (bit := _AER_BIT.match(message.lstrip())):
            return self._aer_bit(bit)
        elif self._apei is not None and ("section_type" in message or "device_id" in message):
            return self._apei_line(message)
        for literal, pattern, make in RULES:
            if literal in message and (match := pattern.search(message)) is not None:
                event = make(match)
                if event is not None and (stamp.clock is not Clock.NONE or event.kind not in _ONLY_STAMPED):
                    return self._keep(event, stamp, number)
                break
        return self._unknown(message, stamp, number)

    def _message(self, line: str) -> tuple[Stamp, str]:
        if line.startswith("{") and '"MESSAGE"' in line:
            return self._journal_json(line)
        stamp = read_stamp(line, year=self.year)
        return stamp, line[stamp.end :]

    def _journal_json(self, line: str) -> tuple[Stamp, str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return Stamp(0), line
        message = record.get("MESSAGE") if isinstance(record, dict) else None
        if isinstance(message, list):  # journald writes bytes as a list of numbers when a message is not UTF-8
            message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
        if not isinstance(message, str):
            return Stamp(0), ""
        node = record.get("_HOSTNAME")
        micros = str(record.get("__REALTIME_TIMESTAMP", ""))
        time = int(micros) / 1e6 if micros.isdecimal() and len(micros) < 20 else None
        return Stamp(0, time, Clock.UTC if time is not None else Clock.NONE, 0.0, node if isinstance(node, str) else ""), message

    def _multi_line(self, number: int, message: str) -> bool:
        """``NVRM: The NVIDIA GPU <address>`` + ``... has`` + ``NVRM: fallen off the bus`` is one message on three lines."""
        if "The NVIDIA GPU" in message and (match := _OFF_BUS_START.match(message)):
            self._pending_gpu = (pci_address(match.group(1)) or "", number)
            return True
        for name, literal, pattern in _FACTS:
            if literal in message and (match := pattern.search(message)):
                self.facts.setdefault(name, (match.group(1).strip(), number))
                return True
        return False

    def _frame(self, match: re.Match[str], number: int) -> Event | None:
        """A frame of the call trace below a blocked task or a lockup: functions and modules, the innermost first."""
        event = self._traced
        if event is None or number - event.line > MAX_TRACE:
            return None
        stack = event.fields.get("stack", "").split()
        if not match.group("guess") and len(stack) < MAX_FRAMES and not _WAITS.match(match.group("function")):
            event.fields["stack"] = " ".join([*stack, match.group("function")])
            module = match.group("module")
            if module and module not in event.fields.get("modules", "").split():
                event.fields["modules"] = f"{event.fields.get('modules', '')} {module}".strip()
        return event

    def _aer_bit(self, match: re.Match[str]) -> Event | None:
        event = self._last_aer.get(_address(match))
        if event is not None:
            names = event.fields.get("errors", "")
            if match.group("name") not in names.split():
                event.fields["errors"] = f"{names} {match.group('name')}".strip()
        return event

    def _apei_line(self, message: str) -> Event | None:
        """Lines of a firmware-first record (drivers/firmware/efi/cper.c): a PCIe section makes it an AER event of the device it names."""
        event = self._apei
        assert event is not None
        if "section_type: PCIe error" in message:
            event.kind = "aer"
            event.severity = _APEI_SEVERITY.get(event.fields.get("severity", ""), event.fields.get("severity", ""))
            event.fields = {"type": "reported by firmware (APEI)", **{k: v for k, v in event.fields.items() if k == "year"}}
        elif event.kind == "aer" and (match := _APEI_DEVICE.search(message)):
            event.device = _address(match)
            event.text = f"{event.text}; PCIe error of {event.device}"
            self._last_aer[event.device] = event
            self._apei = None
        return event

    def _keep(self, event: Event, stamp: Stamp, number: int) -> Event:
        event.time, event.clock, event.uncertainty_s, event.node = stamp.time, stamp.clock, stamp.uncertainty_s, stamp.node
        if stamp.year_assumed:
            event.fields["year"] = "assumed"
        event.source, event.line = self.source, number
        event.text = event.text.strip()
        if event.kind == "aer":
            self._last_aer[event.device] = event
        self._traced = event if event.kind in ("hung_task", "lockup") else None
        self._apei = event if event.kind == "machine_check" and "event severity" in event.text else None
        self.events.append(event)
        return event

    def _unknown(self, message: str, stamp: Stamp, number: int) -> Event | None:
        if self._pending_gpu is not None and "fallen off the bus" in message:
            device, _ = self._pending_gpu
            self._pending_gpu = None
            return self._keep(Event(kind="gpu.off_bus", device=device, text=message), stamp, number)
        if _is_unknown_fault(message):
            return self._keep(Event(kind="unknown_fault", text=message[:400]), stamp, number)
        return None


def scan(text: str, source: str, *, year: int, first_line: int = 1) -> KernelLog:
    """All events of ``text``. Lines without a mark are skipped at the speed of one regular-expression search."""
    log = KernelLog(source, year=year)
    for number, line in marked_lines(text, MARKS, first_line):
        log.feed(number, line)
    return log


def marked_lines(text: str, marks: tuple[str, ...], first_line: int = 1) -> Iterator[tuple[int, str]]:
    """(number, line) of each line that holds one of ``marks``, in order; lines are counted without splitting the text."""
    starts: set[int] = set()
    for mark in marks:
        position = text.find(mark)
        while position >= 0:
            starts.add(text.rfind("\n", 0, position) + 1)
            end = text.find("\n", position)
            if end < 0:
                break
            position = text.find(mark, end)
    number = first_line
    counted = 0
    for start in sorted(starts):
        number += text.count("\n", counted, start)
        counted = start
        end = text.find("\n", start)
        yield number, text[start : min(end if end >= 0 else len(text), start + MAX_LINE)]
