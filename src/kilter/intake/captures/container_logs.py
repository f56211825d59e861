"""Lines of container runtimes and of the NVIDIA device plugin and dcgm-exporter that tell of GPUs: docker, containerd, CRI-O, kubelet.

Texts: NVIDIA/libnvidia-container (src/cli, src/error.c), NVIDIA/k8s-device-plugin (internal/rm/health.go, internal/plugin/server.go), moby
(daemon/devices.go: "could not select device driver"), containerd (no runtime for "nvidia"), and issues of NVIDIA/nvidia-container-toolkit.
Kinds begin with ``container.`` or ``k8s.``: they are no lines of a kernel log.
"""

from __future__ import annotations

import datetime
import re

from kilter.facts.event import Clock, Event
from kilter.intake.captures.bounded import lines as bounded
from kilter.intake.captures.log_time import read_stamp
from kilter.intake.fragment import Block, Fragment

#: A line without any of these words holds no event of this module.
MARKS = (
    "nvidia",
    "NVIDIA",
    "NVML",
    "nvml",
    "XidCritical",
    "device marked",
    "select device driver",
    "libibverbs",
    "/dev/infiniband",
    "unresolvable CDI",
    "DCP metrics",
    "dcgm-exporter",
)

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("container.exporter_no_profiling", re.compile(r"[Nn]ot collecting DCP metrics: (?P<error>[^\"\\]{1,160})")),
    ("container.exporter_version", re.compile(r"Starting dcgm-exporter\"? [Vv]ersion=\"?(?P<version>\d+\.\d+\.\d+)")),
    ("k8s.plugin_xid", re.compile(r"XidCriticalError: Xid=(?P<xid>\d{1,4}) on Device=(?P<device>[\w./:-]+)")),
    (
        "k8s.plugin_unhealthy",
        re.compile(
            r"'(?P<resource>[\w./-]+)' device marked unhealthy: (?P<device>[\w./:-]+)|^device marked unhealthy: (?P<device2>[\w./:-]+)"
        ),
    ),
    (
        "k8s.plugin_healthy",
        re.compile(r"'(?P<resource>[\w./-]+)' device (?:marked healthy|recovered)\S*:? ?(?P<device>[\w./:-]*)"),
    ),
    (
        "k8s.plugin_no_device",
        re.compile(
            r"No devices found\. Waiting indefinitely|Incompatible (?:platform|strategy) detected|no NVIDIA devices? found"
        ),
    ),
    (
        "k8s.plugin_no_nvml",
        re.compile(
            r"[Ff]ailed to initialize NVML: (?P<error>(?!Unknown Error)[^\"\\]{1,80})|could not load NVML library: (?P<error2>[^\"\\]{1,80})"
        ),
    ),
    ("container.device_access_lost", re.compile(r"Failed to initialize NVML: Unknown Error")),
    (
        "container.runtime_missing",
        re.compile(
            r"could not select device driver \\?\"(?:nvidia|)\\?\"(?: or \S+)? with capabilities: \[\[[^\]\n]{0,80}\]\]"
            r"|(?:[Uu]nknown or invalid runtime name|Unknown runtime specified):? '?nvidia"
            r"|nvidia-container-runtime(?:-hook)?\\?\": (?:executable file not found|stat [^\n]{1,120}: no such file)"
            r"|(?:no runtime for|[Rr]untime[Hh]andler) \\?\"nvidia\\?\"(?: is configured| not supported)?"
            r"|unresolvable CDI devices (?P<cdi>[^\n]{1,120})"
        ),
    ),
    ("container.driver_mismatch", re.compile(r"nvidia-container-cli(?:\.real)?: [^\n]{0,60}(?:driver/library version mismatch)")),
    (
        "container.driver_not_loaded",
        re.compile(
            r"nvidia-container-cli(?:\.real)?: [^\n]{0,60}"
            r"(?:driver not loaded|driver (?:rpc )?error|cuda error: no cuda-capable device|nvml error: (?P<error>[^\\\"\n]{1,80}))"
        ),
    ),
    (
        "container.library_missing",
        re.compile(
            r"(?:load library failed: |nvidia-container-cli[^\n]{0,40}: )(?P<library>lib[\w.-]+|cannot open shared object file)[^\n]{0,80}"
        ),
    ),
    ("container.requirement", re.compile(r"requirement error: (?:unsatisfied condition: )?(?P<condition>[^\\\"\n]{1,120})")),
    (
        "container.device_missing",
        re.compile(
            r"(?:stat failed: |lstat |failed to stat |open )(?P<path>/dev/nvidia[\w/-]*)|device error: (?P<device>[\w./:-]+): unknown device"
        ),
    ),
    (
        "container.device_rules",
        re.compile(
            r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed|failed to add device rules|container_linux[^\n]{0,80}cgroup[^\n]{0,60}nvidia"
        ),
    ),
    (
        "container.no_rdma",
        re.compile(
            r"libibverbs: Warning: no userspace device-specific driver found for (?P<path>\S{1,120})"
            r"|/dev/infiniband(?P<node>/\S{1,60})?:? (?:[^\n]{0,40})?[Nn]o such file"
        ),
    ),
)
_KLOG = re.compile(r"(?P<level>[IWEF])(?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d\.\d{1,6}) +\d+ [\w./-]+:\d+\] ")
_LOGFMT = re.compile(r"time=\"(?P<time>[^\"]{10,40})\" level=(?P<level>\w+) msg=")
_GO = re.compile(r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) ")
_UNIT = re.compile(
    r"(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.]{8,20}\S{0,6}) (?P<node>[\w.-]+) (?P<unit>[\w.-]+)(?:\[\d+\])?: "
)
_BAD = re.compile(r"level=(?:error|fatal)|^[EF]\d{4} |\b(?:error|failed|fatal)\b", re.I)
_GPU_WORD = re.compile(r"nvidia|\bgpu\b|nvml|\bcdi\b", re.I)


def event_of(text: str) -> Event | None:
    """The event that a message tells of, without time and place."""
    text = text[:4000]
    if not any(mark in text for mark in MARKS):
        return None
    for kind, pattern in _KINDS:
        match = pattern.search(text)
        if match is None:
            continue
        groups = {name.rstrip("2"): value.strip(" .") for name, value in match.groupdict().items() if value and value.strip(" .")}
        code = groups.pop("xid", None)
        device = groups.pop("device", "")
        start = 0 if match.start() <= 120 else text.rfind(" ", 0, match.start() - 20) + 1
        return Event(
            kind=kind,
            text=text[start : match.end() + 120].strip()[:300],
            device=device,
            code=int(code) if code else None,
            fields=groups,
        )
    return None


def parse(block: Block, fragment: Fragment) -> None:
    """Lines about GPUs become events; other lines of the log say nothing. Errors that name a GPU and are not known go to ``unparsed``."""
    year = datetime.datetime.now(tz=datetime.timezone.utc).year
    for number, text in bounded(block, fragment, limit=1 << 14):
        event = event_of(text)
        if event is None:
            if _GPU_WORD.search(text) and _BAD.search(text):
                fragment.unparsed(number, text[:200])
            continue
        _stamp(event, text, year)
        event.source, event.line = fragment.source.name, number
        fragment.events.append(event)


def _stamp(event: Event, text: str, year: int) -> None:
    """Time, host and level of a line, where it begins with them."""
    rest = text
    if unit := _UNIT.match(text):
        event.node = unit["node"]
        rest = text[unit.end() :]
        stamp = read_stamp(text, year=year)
        event.time, event.clock, event.uncertainty_s = stamp.time, stamp.clock, stamp.uncertainty_s
        if stamp.year_assumed:
            event.fields["year"] = "assumed"
    if match := _KLOG.match(rest):
        event.severity = match["level"]
        event.time = _moment(f"{year}-{match['month']}-{match['day']}T{match['time'].partition('.')[0]}")
        event.clock, event.fields["year"] = Clock.LOCAL, "assumed"
    elif match := _LOGFMT.match(rest):
        event.severity = match["level"]
        stamp = read_stamp(match["time"] + " ", year=year)
        event.time, event.clock, event.uncertainty_s = stamp.time, stamp.clock, stamp.uncertainty_s
    elif match := _GO.match(rest):
        event.time, event.clock, event.uncertainty_s = (
            _moment(match["time"].replace("/", "-").replace(" ", "T")),
            Clock.LOCAL,
            0.5,
        )
    if event.time is None:
        event.clock = Clock.NONE


def _moment(text: str) -> float | None:
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc).timestamp()
    except ValueError:
        return None
