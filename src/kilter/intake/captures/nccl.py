"""NCCL logs (``NCCL_DEBUG=INFO|WARN``) of any rank mix, NCCL 2.4 to 2.30, with launchers' tags in front.

Message texts: NVIDIA/nccl src/init.cc, src/transport/*.cc, src/misc/*.cc; line prefix: src/debug.cc.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from kilter.facts.event import Clock, Event
from kilter.facts.nccl import NcclConnection, NcclJob, NcclRank
from kilter.facts.pci import pci_address
from kilter.intake.captures.log_time import read_stamp

#: NCCL writes lines of at most about 2 KB.
MAX_LINE = 4096

MARKS = ("NCCL INFO", "NCCL WARN", "NCCL VERSION", "NCCL version")

_LINE = re.compile(
    r"(?<![A-Za-z0-9_])(?P<host>[A-Za-z0-9_][\w.-]{0,254}):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>\d+)\] (?:(?P<stamp>\d[\d.:/ -]*\d) )?(?:(?P<file>[\w/.-]+\.(?:cc|cu|h|cpp)):(?P<line>\d+) )?"
    r"NCCL (?P<level>INFO|WARN|TRACE|VERSION|CALL) (?P<text>.*)"
)
#: Lines whose prefix was stripped, or replaced by a framework's "[rank0]".
_BARE = re.compile(
    r"(?:\[rank ?(?P<device>\d{1,5})\][: ]{0,8})?(?:(?<![\w/.-])(?P<file>[\w/.-]+\.(?:cc|cu|h|cpp)):(?P<line>\d+) )?NCCL (?P<level>INFO|WARN) (?P<text>.*)"
)
#: Lines of several ranks run into each other: "2.7.8+cuda10.2NCCL version 2.7.8+cuda10.2".
_VERSION = re.compile(
    r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?(?:-\d{1,3})?(?:\+cuda\d{1,2}\.\d{1,2})?(?:(?!NCCL)[\w.+-])*)"
)
_CUDA_DRIVER = re.compile(r"cudaDriverVersion (\d+)")
_NETWORK = re.compile(r"(?:Using network|Assigned NET plugin) (.+?)(?: to comm.*)?$")
_IB_USING = re.compile(r"NET/IB ?: ?Using ((?:\[\d+\]\S+ ?)+)")
_IB_NAME = re.compile(r"\[\d+\](\S+)")
_PLUGIN = re.compile(r"(?:Loaded net plugin|NET/Plugin: Loaded(?: coll)? ?(?:net )?plugin) (.+?)(?: \(v\d+\))?$")
_ENV = re.compile(r"(NCCL_[A-Z0-9_]+) set (?:by environment )?to ?(.*?)\.?$")
#: Numbers of ranks have at most six digits: the largest jobs have some 100,000, and what lists all ranks must not grow with a damaged digit.
_RANK = re.compile(r"comm \S+ rank (\d{1,6}) n[rR]anks (\d{1,6})(?!\d)(?: cudaDev (\d{1,4}))?(?:.*?busId ([0-9a-f]+))?")
_SHAPE = re.compile(r"comm \S+ rank (\d{1,6}) nRanks (\d{1,6}) nNodes (\d{1,6}) localRanks (\d{1,6})(?!\d)")
_VIA = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? ?: ?\d{1,6}\[[^\]]*\] -> \d{1,6}\[[^\]]*\](?: +\[(?:send|receive|recv)\])? +via (\S.*?)(?: comm .*)?$"
)
_GDR_HCA = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for (?:GPU (?P<gpu>\S+)(?: / HCA (?P<near>\d+))?|HCA (?P<hca>\d+)(?: '(?P<name>[^']*)')?)"
)
_ALL_P2P = re.compile(r"isAllDirectP2p (\d)")
_CHANNELS = re.compile(r"(\d{1,6}) coll channels, (?:\d{1,6} collnet channels, )?(?:(\d{1,6}) nvls channels, )?")
_RING_GDR = re.compile(r"Connected all rings.*GDR (\d)")
_OWN_ADDRESS = re.compile(r"(?:Bootstrap ?: ?Using|NET/Socket ?: ?Using|OOB) .*")
_ADDRESS = re.compile(r"(?<![\w.-])[\w.-]+:([0-9a-fA-F.:]{1,64})<\d{1,6}>")
_ERROR_TRACE = re.compile(r"(?<![\w/.-])([\w/.-]+\.cc):(\d{1,7}) -> (\d{1,7})(?: |$)")
#: the channel's HCA number in NET/IB/3/GDRDMA(PCI)
_NETDEV_SLOT = re.compile(r"/\d+(?:\(\d+\))?(?=/|$)")

#: Warning texts -> kind of event. Order matters: the first match wins.
WARNINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Got completion (?:from peer .*?)?with (?:status=|error )(?:\w+\()?(?P<code>\d+)"), "nccl.ib.completion"),
    (re.compile(r"Call to ibv_reg_mr\w* failed|ibv_reg_(?:dmabuf_)?mr\w* failed|failed to register memory", re.I), "nccl.ib.reg_mr"),
    (re.compile(r"/dev/shm/nccl-|shared memory segment|failed to extend .*shm|No space left on device", re.I), "nccl.shm"),
    (re.compile(r"(?:Unable to open|failed to open|ibv_open_device).*(?:device|failed)|NET/IB ?: ?Unable to open device", re.I), "nccl.ib.open_device"),
    (re.compile(r"NET/IB.*(?:Got async(?:hronous)? event|async fatal event|async error)", re.I), "nccl.ib.async_event"),
    (re.compile(r"Call to ibv_(?P<call>\w+) failed(?: with error (?P<error>.*))?"), "nccl.ib.call_failed"),
    (re.compile(r"No (?:interface|socket interface|bootstrap interface) found|Bootstrap ?: no socket interface found|no socket interface found", re.I), "nccl.no_interface"),
    (re.compile(r"(?:Connection (?:closed|reset) by (?:remote )?peer|Connection refused|Broken pipe|socketProgress|socketStartConnect|Call to (?:connect|recv|send).*failed|Net ?: Connect|Timeout waiting)", re.I), "nccl.peer_gone"),
    (re.compile(r"Cuda failure (?P<code>\d+)? ?'?(?P<error>[^']*)'?", re.I), "nccl.cuda"),
    (re.compile(r"mismatch|Message truncated", re.I), "nccl.mismatch"),
    (re.compile(r"Duplicate GPU detected", re.I), "nccl.duplicate_gpu"),
    (re.compile(r"[Tt]imed? ?out|Watchdog"), "nccl.timeout"),
)  # fmt: skip


def _bus(text: str | None) -> str | None:
    """``1b000`` (domain<<20 | bus<<12 | device<<4 | function, nccl src/graph/topo: busIdToInt64) -> PCI address."""
    if not text:
        return None
    value = int(text, 16)
    return pci_address(f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}.{value & 0x7}")


#: Of so many lines at the start it is seen whether a text repeats itself.
_SAMPLE = 2000


#: (index of the line in its text, times, line)
Telling = tuple[int, int, str]


def _distinct(lines: list[str]) -> Iterator[Telling]:
    """Equal lines once, where the text repeats itself."""
    sample = lines[:_SAMPLE]
    if 2 * len(set(sample)) > len(sample):
        for index, line in enumerate(lines):
            yield index, 1, line
        return
    index = 0
    for line, times in Counter(lines).items():  # in order of appearance
        index = lines.index(line, index)
        yield index, times, line


#: A message (what stands behind "NCCL INFO ") without any of these tells :class:`NcclLog` nothing but its host ...
_TELLS_OF_HOST = (
    "NET",
    "NCCL_",
    "version ",
    "coll channels",
    "GPU Direct",
    "Connected all rings",
    "isAllDirect",
    "lugin",
    "cudaDr",
    "OOB",
    "Bootstrap",
)
#: ... and with one of these it tells of one rank.
_TELLS_OF_RANK = ("comm 0x", "etwork ", "NET plugin ", " -> ", "rank ")  # fmt: skip


def _host(line: str, at: int) -> str:
    """What stands before process and thread in the prefix that ends at ``at``: the host, maybe with a time or a launcher's tag."""
    host = line[: line.find(":")]
    return host if " " not in host and "[" not in host else line[:at].rsplit(":", 2)[0]


def _key(line: str) -> str:
    """Lines with one key tell :class:`NcclLog` the same. "" for a line that it does not read."""
    at = line.find("NCCL INFO ")
    if at < 0:
        return line if "NCCL " in line and any(mark in line for mark in MARKS) else ""
    via = line.find(" via ", at)
    if via >= 0 and line.startswith(("Channel ", "Ring "), at + 10):
        kind = line[via:]
        return _host(line, at) + (kind if " comm " not in kind else kind.partition(" comm ")[0])
    if line.startswith(("Channel ", "Ring ", "Trees ", "Setting aff"), at + 10) or line.find(": opCount ", at, at + 50) > 0:
        return _host(line, at)
    for word in _TELLS_OF_RANK:
        if word in line:
            return line
    for word in _TELLS_OF_HOST:
        if word in line:
            return _host(line, at) + line[at:]
    return _host(line, at)


def telling(text: str) -> list[Telling]:
    """The lines of ``text`` that :class:`NcclLog` reads, those that tell it the same once: a long log is made of such.

    Lines tell the same when they are equal; when they are connections of one kind from one host; when they come from one host and
    name no rank and no network; and when they are what NCCL writes of each collective call and of its graphs.
    """
    if "NCCL " not in text:
        return []
    times_by_key: dict[str, list[int]] = {}
    kept: list[tuple[int, list[int], str]] = []
    for index, times, line in _distinct(text.split("\n")):
        if not (key := _key(line)):
            continue
        total = times_by_key.get(key)
        if total is None:
            total = times_by_key[key] = [0]
            kept.append((index, total, line[:MAX_LINE]))
        total[0] += times
    return [(index, total[0], line) for index, total, line in kept]


def is_line(line: str) -> bool:
    """Whether :class:`NcclLog` reads a line."""
    line = line[:MAX_LINE]
    return any(pattern.search(line) for pattern in (_LINE, _BARE, _VERSION))


class NcclLog:
    """Reads the lines of one log into one job and its events. Of what a log says several times, the first holds."""

    def __init__(self, source: str, *, year: int) -> None:
        self.job = NcclJob(source=source)
        self.source = source
        self.year = year
        self.events: list[Event] = []
        self.lines = 0
        self._ranks: dict[int, NcclRank] = {}
        self._by_process: dict[tuple[str, str, str], int] = {}
        self._networks: dict[tuple[str, str, str], str] = {}
        self._via: dict[str, NcclConnection] = {}
        self._seen: dict[tuple[str, tuple[str, str, str], str, str], Event] = {}

    def feed(self, number: int, line: str, times: int = 1) -> None:
        """Read one line that holds one of :data:`MARKS` and stands there ``times`` times, in :func:`telling`'s sense."""
        line = line[:MAX_LINE].rstrip("\r\n")
        match = _LINE.search(line)
        if match is None:
            if (bare := _BARE.search(line)) is not None:
                self.lines += times
                self._message(bare, line, number, ("", "", bare.group("device") or ""), times)
            elif version := _VERSION.search(line):
                self._version(version.group(1), number, times)
                self.lines += times
            return
        self.lines += times
        host, pid, _, device = match.group("host", "pid", "tid", "device")
        if host not in self.job.nodes:
            self.job.nodes.append(host)
        self._message(match, line, number, (host, pid, device), times)

    def _message(self, match: re.Match[str], line: str, number: int, process: tuple[str, str, str], times: int) -> None:
        if match.group("level") == "WARN":
            self._warning(match, line, number, process, times)
        else:
            self._info(match.group("text").strip(), number, process, match, line, times)

    def _put(self, field: str, value: object, number: int) -> None:
        if getattr(self.job, field) is None:
            self.job.put(field, value, (0, number))

    def _version(self, version: str, number: int, times: int) -> None:
        self._put("version", version, number)
        self.job.versions[version] = self.job.versions.get(version, 0) + times

    def _info(self, text: str, number: int, process: tuple[str, str, str], match: re.Match[str], line: str, times: int) -> None:
        """The word before each pattern is what it cannot match without: most lines hold none of them."""
        job = self.job
        if process[0] and ("Using" in text or "OOB" in text) and (own := _OWN_ADDRESS.search(text)):
            for address in _ADDRESS.findall(own.group(0)):
                job.addresses.setdefault(address, process[0])
        if "via " in text and (via := _VIA.search(text)):
            self._connection(via.group(1), number, process[0], times)
        elif "version " in text and (found := _VERSION.search("NCCL " + text if text.startswith("version ") else text)):
            self._version(found.group(1), number, times)
        elif ("etwork " in text or "NET plugin " in text) and (found := _NETWORK.search(text)):
            self._networks[process] = found.group(1).strip()
            job.origin.setdefault("networks", (0, number))
        elif "rank " in text and (found := _SHAPE.search(text)):
            self._shape(int(found.group(2)), int(found.group(3)), int(found.group(4)), number)
            self._rank(int(found.group(1)), process, None, None, number)
        elif "rank " in text and (found := _RANK.search(text)):
            if "Init COMPLETE" in text:
                job.init_complete += times
            elif "Init START" in text:
                job.init_started += times
            self._ranks_total(int(found.group(2)), number)
            self._rank(int(found.group(1)), process, found.group(3), found.group(4), number)
        elif "NCCL_" in text and (found := _ENV.search(text)):
            job.environment.setdefault(found.group(1), found.group(2))
            job.origin.setdefault(f"environment/{found.group(1)}", (0, number))
        elif "NET/IB" in text and "No device found" in text:
            if job.ib_devices is None:
                job.put("ib_devices", [], (0, number))
        elif "NET/IB" in text and (found := _IB_USING.search(text)):
            names = _IB_NAME.findall(found.group(1))
            if not job.ib_devices:
                job.put("ib_devices", names, (0, number))
            known = job.ib_devices_by_node.get(process[0])
            if process[0] and (known is None or len(names) < len(known)):
                job.ib_devices_by_node[process[0]] = names
                job.origin[f"ib_devices_by_node/{process[0]}"] = (0, number)
        elif "GPU Direct RDMA" in text and (found := _GDR_HCA.search(text)):
            number_, name, near = found.group("hca"), found.group("name"), found.group("near")
            job.gdr.setdefault(name or f"HCA {number_ or near or '?'}", found.group(1).lower())
            job.origin.setdefault("gdr", (0, number))
        elif "isAllDirectP2p" in text and (found := _ALL_P2P.search(text)):
            self._put("all_direct_p2p", found.group(1) == "1", number)
        elif "coll channels" in text and (found := _CHANNELS.search(text)):
            self._put("channels", int(found.group(1)), number)
            self._put("nvls_channels", int(found.group(2)) if found.group(2) else None, number)
        elif "Connected all rings" in text and (found := _RING_GDR.search(text)):
            self._put("rings_gdr", found.group(1) == "1", number)
        elif "plugin" in text and (found := _PLUGIN.search(text)):
            if found.group(1) not in job.plugins:
                job.plugins.append(found.group(1))
        elif "cudaDriverVersion" in text and (found := _CUDA_DRIVER.search(text)):
            self._put("cuda_driver_version", found.group(1), number)
        elif "init.cc" in text and (found := _ERROR_TRACE.search(text)) and found.group(1).endswith("init.cc"):
            self._event("nccl.init_failed", text, match, line, number, process, times, code=int(found.group(3)))

    def _shape(self, ranks: int, nodes: int, local: int, number: int) -> None:
        """Keep the shape of the largest communicator: frameworks make many small ones beside it."""
        if self.job.n_nodes is None or nodes > self.job.n_nodes:
            self.job.put("n_nodes", nodes, (0, number))
            self.job.put("local_ranks", local, (0, number))
        self._ranks_total(ranks, number)

    def _ranks_total(self, ranks: int, number: int) -> None:
        if self.job.n_ranks is None or ranks > self.job.n_ranks:
            self.job.put("n_ranks", ranks, (0, number))

    def _rank(self, rank: int, process: tuple[str, str, str], cuda: str | None, bus: str | None, number: int) -> None:
        known = self._ranks.get(rank)
        if known is None:
            known = self._ranks[rank] = NcclRank(rank=rank, node=process[0], pid=int(process[1] or -1), origin={"": (0, number)})
            self._by_process.setdefault(process, rank)
        if cuda is not None and known.cuda_device is None:
            known.cuda_device = int(cuda)
        if bus is not None and known.bus_id is None:
            known.bus_id = _bus(bus)

    def _connection(self, via: str, number: int, node: str, times: int) -> None:
        kind = _NETDEV_SLOT.sub("", via.strip())
        if kind == "direct shared memory":  # NCCL before 2.12
            kind = "SHM/direct"
        connection = self._via.get(kind)
        if connection is None:
            connection = self._via[kind] = NcclConnection(via=kind, origin={"": (0, number)})
        connection.count += times
        if node:
            connection.by_node[node] = connection.by_node.get(node, 0) + times

    def _warning(self, match: re.Match[str], line: str, number: int, process: tuple[str, str, str], times: int) -> None:
        text = match.group("text").strip()
        file = match.group("file") or ""
        if "ras/" in file or text.startswith("RAS "):
            kind = "nccl.ras_port" if "Address already in use" in text or "bind" in text else "nccl.ras"
            self._event(kind, text, match, line, number, process, times)
            return
        for pattern, kind in WARNINGS:
            if found := pattern.search(text):
                groups = {key: value for key, value in found.groupdict().items() if value}
                code = groups.pop("code", None)
                if vendor := re.search(r"vendor[ _]err (\d+)", text):
                    groups["vendor_err"] = vendor.group(1)
                self._event(kind, text, match, line, number, process, times, code=int(code) if code else None, fields=groups)
                return
        self._event("nccl.warn", text, match, line, number, process, times)

    def _event(
        self,
        kind: str,
        text: str,
        match: re.Match[str],
        line: str,
        number: int,
        process: tuple[str, str, str],
        times: int,
        *,
        code: int | None = None,
        fields: dict[str, str] | None = None,
    ) -> None:
        stamp = read_stamp(line, year=self.year)
        rank = self._by_process.get(process)
        device = f"rank {rank}" if rank is not None else f"pid {process[1]} [{process[2]}]" if process[1] else ""
        known = self._seen.get((kind, process, device, text))
        if known is not None:  # NCCL repeats itself while a peer does not answer
            known.count += times
            known.last_time = stamp.time if stamp.time is not None else known.last_time
            return
        event = Event(
            kind=kind,
            text=text,
            node=process[0],
            device=device,
            time=stamp.time,
            clock=stamp.clock if stamp.time is not None else Clock.NONE,
            uncertainty_s=stamp.uncertainty_s,
            code=code,
            source=self.source,
            line=number,
            count=times,
            last_time=stamp.time if times > 1 else None,
            fields=fields or {},
        )
        if match.group("file"):
            event.fields["file"] = match.group("file")
        self._seen[kind, process, device, text] = event
        self.events.append(event)

    def finish(self) -> NcclJob:
        """Complete the job: ranks in order, networks counted, the commonest kind of connection first."""
        job = self.job
        job.ranks = [self._ranks[rank] for rank in sorted(self._ranks)]
        for name in self._networks.values():
            job.networks[name] = job.networks.get(name, 0) + 1
        job.connections = sorted(self._via.values(), key=lambda c: -c.count)
        return job
