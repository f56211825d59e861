"""Texts without what names a site: hosts, users, addresses, serial numbers, UUIDs and secrets become tokens, one a value over all files.

What diagnosis needs stays: PCI addresses, versions, XIDs, times, line numbers, distinctness of devices. :class:`Redactor` is used twice over the
same texts: :meth:`Redactor.learn` finds the names that stand in telling places (a prompt, a syslog line, ``uname``), :meth:`Redactor.redact` then
replaces them wherever they stand. Documentation ranges: RFC 5737, RFC 3849, RFC 9542 (locally administered MAC addresses).
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable

_HOST = r"[A-Za-z0-9](?:[\w.-]{0,250}\w)?"
#: Where a host's name stands, whatever it is. Group 1 is the name.
PLACES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.M)
    for pattern in (
        rf"^\[?(?:\([\w.-]{{1,64}}\) ?)?[\w.-]{{1,64}}@({_HOST})[: ][^\n#$]{{0,120}}[#$] ",
        rf"^(?:<\d+>)?[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d+)?(?: \d{{4}})? ({_HOST}) [\w./()@-]{{1,64}}(?:\[\d+\])?: ",
        rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\S{{0,16}} ({_HOST}) [\w./()@-]{{1,64}}(?:\[\d+\])?: ",
        rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\S{{0,16}} ({_HOST}) (?:kernel|systemd|sshd)(?:\[\d+\])?: ",
        rf"(?<![\w.-])({_HOST}):\d{{1,10}}:\d{{1,10}} (?:\[\d+\] )?NCCL ",
        rf"\bLinux ({_HOST}) \d+\.\d+\S{{0,100}} #\d",
        rf"^({_HOST}): (?=\[ *\+?\d+\.\d|\[[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} )",
        rf"(?i:\b(?:static hostname|pretty hostname|host ?name|node_?name|_HOSTNAME|NodeHostName|NodeAddr|BatchHost|MASTER_ADDR|"
        rf"SLURMD_NODENAME|SLURM_TOPOLOGY_ADDR|SLURM_SUBMIT_HOST|SLURM_LAUNCH_NODE_IPADDR|kubernetes\.io/hostname))"
        rf"[\"']?[ \t]*[=:][ \t]*[\"']?({_HOST})",
        rf"\"(?:node|host)\": ?\"({_HOST})\"",
        rf"[\"']({_HOST}) (?:HCA-\d|mlx[45]_\d)",
        rf"\bnode_desc[:=]? ?[\"']?({_HOST}) (?:HCA-\d|mlx[45]_\d)",
    )
)  # fmt: skip
#: Folder names of collectors that carry the host.
_FOLDERS = re.compile(
    rf"(?:^|/)(?:kilter-({_HOST}?)-\d{{8}}T\d{{6}}Z|sosreport-({_HOST}?)-(?:\d{{4}}-\d\d-\d\d-\w+|\d+-\w+|\w+))(?=/|\.|$)"
)

_USERS = (
    re.compile(r"(?<![\w.-])/(?:[\w.-]{1,64}/){0,4}(?:home|Users|users|homes)/([A-Za-z_][\w.-]{0,63})"),
    re.compile(r"^\[?(?:\([\w.-]{1,64}\) ?)?([A-Za-z_][\w.-]{0,63})@[\w.-]{1,250}[: ][^\n#$]{0,120}[#$] ", re.M),
    re.compile(r"\b(?:USER|LOGNAME|SUDO_USER|SLURM_JOB_USER|USERNAME)=([A-Za-z_][\w.-]{0,63})"),
)
#: Names that are words of tools, systems and logs: replaced only where a host or user must stand, never at large.
_COMMON_WORDS = """
localhost hostname localdomain linux kernel ubuntu debian rocky centos rhel fedora node nodes host hosts server worker
master login head compute gpu cpu nvidia cuda nccl mpi slurm docker container kubernetes root none null unknown
admin administrator user users test train training default system service info warn warning error debug notice
critical fatal trace systemd python python3 bash home data shared public opt work scratch project projects local
true false yes the and for not with from this that all any new old active inactive enabled disabled true up down
link port device state memory power thermal fan rank world size name type version driver dgx hgx ec2-user nobody
nfs lustre message module status address bus pci time date end start run job jobs queue batch debug model models
cluster switch ibstat lspci dmesg aws azure gcp oracle rdma mellanox infiniband ethernet ethtool intel amd arm
supermicro dell hpe lenovo vm guest
"""
_COMMON = frozenset(_COMMON_WORDS.split())
#: Names that tools give to devices: GPU0, mlx5_3, eth1. Nobody's tool prints a leading zero or a hyphen.
_TOOLISH = re.compile(
    r"(?:mlx[45]|eth|ib|bond|gpu|nic|xpu|cpu|nvme|sd|rank|card|port|dev|hca|node|numa|vf|pf|mc|dimm|ens|enp|eno|tty|sm|xid|cuda|rail|link|slot|fan|psu?)_?"
    r"(?:0|[1-9]\d?)",
    re.I,
)

_HEX2 = re.compile(r"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4,30}[0-9A-Fa-f]{2}(?![0-9A-Za-z:])")
_HEX4 = re.compile(r"(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}(?![0-9A-Za-z:.])")
_ENX = re.compile(r"(?<![0-9A-Za-z])(enx)([0-9a-f]{12})(?![0-9A-Za-z])")
_GUID = re.compile(r"(?i:guid[\w ]{0,12}[\"']?[ \t]*[=:(]?[ \t.]*[\"']?(?:0x)?)([0-9a-fA-F]{16})(?![0-9a-fA-F])")
_IB_NAME = re.compile(r"\"(?:S|H|R|SW|CA)-([0-9a-fA-F]{16})\"")
_IB_ROW = re.compile(r"\b(?:CA|SW|RT|Ca|Switch|HCA) +(?:\d+ +){0,2}0x([0-9a-fA-F]{16})\b")
#: GUIDs that a tool prints without leading zeros (ibqueryerrors, ibnetdiscover)
_SHORT_GUID = re.compile(r"(?:GUID 0x|(?:Errors|Data Counters) for 0x|guid=0x|\]\()([0-9a-fA-F]{6,15})(?![0-9a-fA-F])")
_IPV4 = re.compile(r"(?<![\w.-])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\w-])(?!\.\d)")
_AWS_NAME = re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b")
_VERSIONISH = re.compile(
    r"(?:vers(?:ion)?|ver|release|firmware|fw|driver|vbios|bios|\brev|nccl|cuda|cudnn|ofed|ucx|package|lib[\w.-]*|\bv)[\s:=\w/\"'().-]{0,16}$",
    re.I,
)
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,39}:[0-9A-Fa-f:]{0,39}:)[0-9A-Fa-f:]{2,39}(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]|\.\d)"
)
_UUID = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])")
_SHORT_UUID = re.compile(r"\b(GPU|MIG|XPU)-([0-9a-f]{6,12})(?![0-9a-f-])")
_ID32 = re.compile(
    r"(?i:\b(?:machine[ _-]?id|boot[ _-]?id|_BOOT_ID|_MACHINE_ID|invocation[_ ]?id)\b)\W{1,6}([0-9a-fA-F]{32})(?![0-9a-fA-F])"
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@((?:[A-Za-z0-9-]{1,63}\.){1,6}([A-Za-z]{2,24}))(?![\w-])")
_NO_MAIL = frozenset({"service", "socket", "slice", "scope", "timer", "mount", "target", "device", "path", "conf", "swap", "so"})
_PUBLIC_MAIL = frozenset({"linux-bugs@nvidia.com", "freebsd-gfx-bugs@nvidia.com", "linux-kernel@vger.kernel.org"})
_SERIAL = re.compile(
    r"(?:(?i:\b(?:board |chassis |product |system |module |device |gpu |baseboard |tray |node )?"
    r"(?:serial(?:[ _-]?(?:number|num|no))?|asset[ _-]?tag|service[ _-]?tag)\b)"
    r"|\[SN\](?: Serial number)?)(?:\"?[ \t]*[:=][ \t]*\"?|</?[a-z_]*>|\">)([A-Za-z0-9][\w./-]{2,63})"
)
_SERIAL_XML = re.compile(r"<(?:\w*_)?serial(?:_number)?>([A-Za-z0-9][\w./-]{2,63})</")
_SERIAL_COLUMN = re.compile(r"(?i)^(?:gpu_|board_)?serial(?:_number)?$")
_NO_SERIAL = re.compile(
    r"(?i)^(?:n/?a|none|unknown|not[ _-].*|to[ _.]be.*|default.*|system|0+|x+|[0-9]{1,3}|tty\w*|console\w*|"
    r"number|null|undefined|8250\S*|unspecified|port\S*)$"
)

_SECRET = re.compile(
    r"(?i)(?<![A-Za-z0-9])((?:[\w.-]{0,60}[_.-])?(?:password|passwd|passphrase|secret|token|api_?key|access_?key(?:_?id)?|secret_?key|private_?key|auth_?key|credentials?|jwt))"
    r"(\"?[ \t]*(?:=|:)[ \t]*)(\"[^\"\n]{4,}\"|'[^'\n]{4,}'|[^\s\"',;<>]{4,})"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic) ([A-Za-z0-9._~+/=-]{16,})")
_KNOWN_SECRET = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|nvapi-[\w-]{20,}|AKIA[0-9A-Z]{16}|xox[abp]-[\w-]{10,}|"
    r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})"
)
_URL_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]{1,12}://)[^\s/@:]{1,64}:[^\s/@]{1,128}@")
_SECRET_MARK = re.compile(r"(?i)passw|passphrase|secret|token|key|credential|jwt")
_SERIAL_MARK = re.compile(r"(?i)serial|asset|service.?tag|\[SN\]")
_AT = re.compile("@")
_HOST_LIST = re.compile(
    r"\b([A-Za-z][\w.-]{0,60})\[(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?){0,500})\]((?:\.[\w.-]{1,100})?)"
)
MAX_HOST_LIST = 20_000
_PEM_BEGIN, _PEM_END = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_BLOB = re.compile(r"(?<![\w/+=])[A-Za-z0-9+/]{64,}={0,2}(?![\w/+=])")
REMOVED = "[REMOVED]"


#: Folders of benchmark results are named after what was set, not after a host.
_CONFIGURATION = re.compile(
    r"vllm|sglang|tensorrt|trtllm|engine|prefix|chunk|batch|baseline|quant|fp8|int[48]|(?<![a-z])(?:tp|pp|dp|ep|isl|osl|conc)[_-]?\d",
    re.I,
)


class Redactor:
    """Replaces; see the module's text. ``counts`` = values seen by kind, ``mapping`` = (kind, original) -> token, ``warnings`` for a person."""

    def __init__(self, hosts: tuple[str, ...] = (), words: tuple[str, ...] = ()) -> None:
        self.mapping: dict[tuple[str, str], str] = {}
        self.replaced: Counter[str] = Counter()
        self.blobs = 0
        self._ids: Counter[str] = Counter()
        self._names: dict[str, str] = {}  # lower-case name -> token, replaced at large
        self._placed: dict[str, str] = {}  # common words, replaced in their places only
        self._serials: dict[str, str] = {}
        self._guids: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._in_key = False
        for name in hosts:
            self._learn_host(name, forced=True)
        for word in words:
            self._names.setdefault(word.lower(), self._token("word", word, lambda n: f"word-{n}"))

    # -- tokens

    def _token(self, kind: str, original: str, make: Callable[[int], str]) -> str:
        known = self.mapping.get((kind, original))
        if known is None:
            self._ids[kind] += 1
            known = self.mapping[kind, original] = make(self._ids[kind])
        return known

    def _count(self, kind: str, token: str) -> str:
        self.replaced[kind] += 1
        return token

    # -- first pass

    def learn(self, text: str, path: str = "") -> None:
        """Remember the names in ``text`` and in ``path``, the file's name within its bundle."""
        for match in _FOLDERS.finditer(path):
            self._learn_host(match.group(1) or match.group(2))
        for pattern in PLACES:
            if "NCCL " in pattern.pattern and "NCCL " not in text:
                continue
            for name in {match.group(1) for match in pattern.finditer(text)}:
                self._learn_host(name)
        for name in set(_AWS_NAME.findall(text)):
            self._learn_host(name)
        for pattern in _USERS:
            for name in {match.group(1) for match in pattern.finditer(text)}:
                self._learn_user(name)
        self._lines_with(_SERIAL_MARK, text, self._learn_serials)
        self._learn_columns(text)
        for pattern in (_GUID, _IB_NAME, _IB_ROW):
            for value in {match.group(1) for match in pattern.finditer(text)}:
                self._guid(value.lower())
        for value in {match.group(1) for match in _SHORT_GUID.finditer(text)}:
            self._guid(value.lower().zfill(16))
        for value in {match.group(0) for match in _HEX4.finditer(text)}:
            self._guid(value.replace(":", "").lower())
        self._pattern = None

    def learn_folder(self, name: str) -> None:
        """A top folder of a bundle is read as a node's name: learn it when it looks like one."""
        if re.search(r"\d", name) and "." not in name and not _FOLDERS.match(name) and not _CONFIGURATION.search(name):
            self._learn_host(name)
        self._pattern = None

    def _learn_host(self, name: str, *, forced: bool = False) -> None:
        name = name.strip(".-")
        low = name.lower()
        if (
            not name
            or low in self._names
            or low in self._placed
            or name.isdecimal()
            or _is_ipv4(name)
            or low in ("localhost", "none")
        ):
            return
        short, _, domain = low.partition(".")
        token = self._names.get(short) or self._placed.get(short) or self._token("host", short, lambda n: f"host-{n}")
        at_large = forced or (
            len(short) >= 3 and short not in _COMMON and not _TOOLISH.fullmatch(short) and not short.isdecimal()
        )
        (self._names if at_large else self._placed)[short] = token
        if domain:
            self._names[low] = token
            if domain.count(".") and not domain.endswith(("cluster.local", "compute.internal")):
                self._names.setdefault(domain, self._token("domain", domain, lambda n: f"domain{n}.example"))

    def _learn_user(self, name: str) -> None:
        low = name.lower()
        if low in ("root", "nobody", "slurm", "ubuntu", "runner") or low in self._names or low in self._placed:
            return
        at_large = len(name) >= 3 and low not in _COMMON and not _TOOLISH.fullmatch(name)
        (self._names if at_large else self._placed)[low] = self._token("user", low, lambda n: f"user-{n}")

    def _learn_serials(self, line: str) -> str:
        for pattern in (_SERIAL, _SERIAL_XML):
            for match in pattern.finditer(line):
                self._learn_serial(match.group(1))
        return line

    def _learn_serial(self, value: str) -> None:
        value = value.rstrip(".,;")
        if value in self._serials or _NO_SERIAL.match(value) or not re.search(r"\d", value):
            return
        width = len(value)

        def make(number: int) -> str:
            return f"{number:0{width}d}" if value.isdecimal() else f"SN{number:0{max(width - 2, 1)}d}"

        self._serials[value] = self._token("serial", value, make)

    def _learn_columns(self, text: str) -> None:
        """Serial numbers below a column of that name (``nvidia-smi --query-gpu=serial --format=csv``)."""
        if "serial" not in text:
            return
        column = cells = 0
        for line in text.split("\n"):
            if len(line) > 4096:
                continue
            parts = [part.strip().strip('"') for part in line.split(",")]
            found = next((i for i, part in enumerate(parts) if _SERIAL_COLUMN.match(part)), -1) if "serial" in line else -1
            if found >= 0:
                column, cells = found, len(parts)
            elif cells and len(parts) == cells:
                self._learn_serial(parts[column])
            else:
                cells = 0

    def _guid(self, value: str) -> str:
        if value.strip("0") == "" or value.startswith("020000fffe"):
            return value
        token = self._token("guid", value, lambda n: f"020000fffe{n:06x}")
        self._guids[value] = token
        return token

    @staticmethod
    def _lines_with(mark: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
        """``text`` with ``change`` applied to the lines that hold ``mark``: what is dear is done to few lines."""
        parts = []
        done = 0
        while (match := mark.search(text, done)) is not None:
            start = max(text.rfind("\n", 0, match.start()) + 1, done)
            end = text.find("\n", match.end())
            end = len(text) if end < 0 else end
            parts += [text[done:start], change(text[start:end])]
            done = end
        parts.append(text[done:])
        return "".join(parts)

    # -- second pass

    def start_file(self) -> None:
        """Forget what a cut-off key block of the file before left open."""
        self._in_key = False

    def redact(self, text: str) -> str:
        """``text`` with tokens; the number of lines stays."""
        text = self._keys(text)
        text = self._lines_with(_SECRET_MARK, text, lambda line: _SECRET.sub(self._secret, line))
        text = _BEARER.sub(lambda m: self._count("secret", f"{m.group(1)} {REMOVED}"), text)
        text = _KNOWN_SECRET.sub(lambda m: self._count("secret", REMOVED), text)
        text = self._lines_with(_AT, text, self._logins)
        text = _HOST_LIST.sub(self._expand, text)
        text = self._name_places(text)
        text = self._names_at_large(text)
        text = self._lines_with(_AT, text, lambda line: _EMAIL.sub(self._email, line))
        text = _UUID.sub(self._uuid, text)
        text = _SHORT_UUID.sub(self._short_uuid, text)
        text = _ID32.sub(self._id32, text)
        text = self._all_guids(text)
        text = _HEX2.sub(self._hex2, text)
        text = _HEX4.sub(lambda m: self._hex4(m.group(0)), text)
        text = _ENX.sub(lambda m: m.group(1) + self._mac(m.group(2)), text)
        text = _IPV6.sub(self._ipv6, text)
        text = _IPV4.sub(self._ipv4, text)
        self.blobs += sum(1 for m in _BLOB.finditer(text) if _looks_secret(m.group(0)))
        return text

    def _expand(self, match: re.Match[str]) -> str:
        """A Slurm host list whose nodes are known becomes the list of their tokens; their number stays."""
        prefix, inner, suffix = match.groups()
        names = []
        for part in inner.split(","):
            first, _, last = part.partition("-")
            if int(last or first) - int(first) >= MAX_HOST_LIST:
                return match.group(0)
            names += [f"{prefix}{n:0{len(first)}d}{suffix}" for n in range(int(first), int(last or first) + 1)]
        if len(names) > MAX_HOST_LIST or not any(name.lower() in self._names for name in names):
            return match.group(0)
        for name in names:
            self._learn_host(name, forced=True)
        return ",".join(self._names.get(name.lower(), name) for name in names)

    def redact_path(self, name: str) -> str:
        """A file's name within its bundle; a folder named after a host that is a common word is replaced here too."""
        return self.redact("/".join(self._placed.get(part.lower(), part) for part in name.split("/")))

    def _keys(self, text: str) -> str:
        """Private keys: each line of theirs is removed, so that line numbers stay."""
        if not self._in_key and "PRIVATE KEY-----" not in text:
            return text
        lines = text.split("\n")
        for index, line in enumerate(lines):
            if self._in_key:
                self._in_key = _PEM_END.search(line) is None and len(line) < 200
                lines[index] = self._count("secret", REMOVED)
            elif _PEM_BEGIN.search(line):
                self._in_key = _PEM_END.search(line) is None
                lines[index] = self._count("secret", REMOVED)
        return "\n".join(lines)

    def _logins(self, line: str) -> str:
        return _URL_LOGIN.sub(lambda m: self._count("secret", f"{m.group(1)}{REMOVED}@"), line)

    def _secret(self, match: re.Match[str]) -> str:
        name, middle, value = match.groups()
        bare = value.strip("\"'")
        if (
            re.fullmatch(r"[\d.,]+(?:[a-zA-Z/%]{0,8})?|true|false|null|none|n/a|\[?n/a\]?|<[^>]*>|not\b.*|\*+", bare, re.I)
            or bare == REMOVED
        ):
            return match.group(0)
        quote = value[0] if value[0] in "\"'" else ""
        return self._count("secret", f"{name}{middle}{quote}{REMOVED}{quote}")

    def _name_places(self, text: str) -> str:
        if not self._placed:
            return text

        def put(match: re.Match[str]) -> str:
            token = self._placed.get(match.group(1).lower())
            if token is None:
                return match.group(0)
            start, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match.group(0)[:start] + self._count("host or user", token) + match.group(0)[end:]

        for pattern in (*PLACES, *_USERS):
            text = pattern.sub(put, text)
        return text

    def _names_at_large(self, text: str) -> str:
        known = {**self._names, **{value.lower(): token for value, token in self._serials.items() if len(value) >= 6}}
        if not known:
            return text
        if self._pattern is None:
            words = sorted(known, key=len, reverse=True)
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])", re.I)
        text = self._pattern.sub(lambda m: self._count("name or serial", known[m.group(0).lower()]), text)
        # Short serial numbers are replaced behind their label only.
        return self._lines_with(
            _SERIAL_MARK, text, lambda line: _SERIAL_XML.sub(self._short_serial, _SERIAL.sub(self._short_serial, line))
        )

    def _short_serial(self, match: re.Match[str]) -> str:
        token = self._serials.get(match.group(1))
        return match.group(0) if token is None else match.group(0).replace(match.group(1), self._count("serial", token))

    def _email(self, match: re.Match[str]) -> str:
        address = match.group(0)
        if (
            match.group(2).lower() in _NO_MAIL
            or address.lower() in _PUBLIC_MAIL
            or match.group(1).endswith((".example", "example.com"))
        ):
            return address
        return self._count("e-mail", self._token("e-mail", address, lambda n: f"person-{n}@example.com"))

    def _uuid(self, match: re.Match[str]) -> str:
        value = match.group(0)
        if not value.strip("0-") or value.startswith("00000000-0000-4000-8000-"):
            return value
        return self._count("UUID", self._token("UUID", value.lower(), lambda n: f"00000000-0000-4000-8000-{n:012x}"))

    def _short_uuid(self, match: re.Match[str]) -> str:
        prefix, value = match.groups()
        if value.isdecimal() and len(value) < 8:
            return match.group(0)
        full = next(
            (token for (kind, original), token in self.mapping.items() if kind == "UUID" and original.startswith(value)), ""
        )
        number = int(full[-12:], 16) if full else int(self._token("short UUID", value, lambda n: str(n)))
        return self._count("UUID", f"{prefix}-{number:0{len(value)}x}")

    def _id32(self, match: re.Match[str]) -> str:
        value = match.group(1)
        token = self._token("machine or boot id", value.lower(), lambda n: f"{n:032x}")
        return match.group(0).replace(value, self._count("machine or boot id", token))

    def _all_guids(self, text: str) -> str:
        if not self._guids:
            return text

        def put(match: re.Match[str]) -> str:
            token = self._guids.get(match.group(0).lower().zfill(16))
            return match.group(0) if token is None else self._count("GUID", token)

        return re.sub(
            r"(?<![0-9a-fA-F])(?<!000000)[0-9a-fA-F]{16}(?![0-9a-fA-F])|(?<=0x)[0-9a-fA-F]{6,16}(?![0-9a-fA-F])"
            r"|(?<=\()[0-9a-fA-F]{6,15}(?=\))",
            put,
            text,
        )

    def _mac(self, digits: str) -> str:
        if digits.lower() in ("0" * 12, "f" * 12) or digits.startswith("02000000"):
            return digits
        return self._count(
            "MAC", self._token("MAC", digits.lower(), lambda n: f"02000000{n:04x}" if n < 65536 else f"0200{n:08x}")
        )

    def _hex2(self, match: re.Match[str]) -> str:
        separator = match.group(1)
        digits = match.group(0).replace(separator, "")
        size = len(digits) // 2
        if size == 6:
            token = self._mac(digits)
        elif size == 8:
            known = self._guid(digits.lower())
            token = known if known == digits.lower() else self._count("GUID", known)
        elif size == 20:  # IPoIB: flags and queue pair, then a GID
            token = digits[:24] + self._guid(digits[24:].lower())
            self.replaced["GUID"] += 1
        elif size in (16, 32):
            token = self._count("key fingerprint", self._token("fingerprint", digits.lower(), lambda n: f"{n:0{2 * size}x}"))
        else:
            return match.group(0)
        return separator.join(token[i : i + 2] for i in range(0, len(token), 2))

    def _hex4(self, text: str) -> str:
        digits = text.replace(":", "").lower()
        token = self._guid(digits)
        if token != digits:
            self.replaced["GUID"] += 1
        return ":".join(token[i : i + 4] for i in range(0, 16, 4)) if token != digits else text

    def _ipv4(self, match: re.Match[str]) -> str:
        text = match.group(0)
        before = match.string[max(match.start() - 40, 0) : match.start()].rpartition("\n")[2]
        if _VERSIONISH.search(before) and not re.search(r"(?i)\b(?:addr|ip|host|via|from|gateway)\b", before):
            return text
        return self._ipv4_token(text) if _is_ipv4(text) else text

    def _ipv4_token(self, text: str) -> str:
        address = ipaddress.IPv4Address(text)
        if (
            address.is_loopback
            or address.is_multicast
            or address.is_unspecified
            or text.startswith(("255.", "0.", "169.254.169.254"))
        ):
            return text
        if any(address in net for net in _DOC4):
            return text
        return self._count("IPv4", self._token("IPv4", text, _doc4))

    def _ipv6(self, match: re.Match[str]) -> str:
        text = match.group(0)
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        value = int(address)
        if value < 2 or address.is_multicast or value >> 96 == 0x20010DB8 or text.strip(":0") == "" or text.endswith("::"):
            return text
        exploded = text.count(":") == 7
        mapped = address.ipv4_mapped
        if mapped is not None:
            new = ipaddress.IPv6Address((0xFFFF << 32) | int(ipaddress.IPv4Address(self._ipv4_token(str(mapped)))))
            if "." in text:
                return f"::ffff:{new.ipv4_mapped}"
        elif value >> 118 in (0x3FA, 0x3FB):  # fe80::/10 and fec0::/10: a GID or a link-local address; the prefix says which
            low = f"{value & (1 << 64) - 1:016x}"
            new = ipaddress.IPv6Address(value >> 64 << 64 | int(self._guid(low), 16))
            self.replaced["IPv6 or GID"] += 1
        else:
            new = ipaddress.IPv6Address(self._token("IPv6", str(address), lambda n: f"2001:db8::{n:x}"))
            self.replaced["IPv6 or GID"] += 1
        return new.exploded if exploded else str(new)


_DOC4 = tuple(ipaddress.IPv4Network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15"))


def _doc4(number: int) -> str:
    """The documentation ranges first, then the benchmarking range of RFC 2544, which holds 131,070 more."""
    for net, first in ((_DOC4[0], 1), (_DOC4[1], 255), (_DOC4[2], 509)):
        if number - first < 254:
            return str(net[number - first + 1])
    return str(_DOC4[3][(number - 762) % 131_070 + 1])


def _is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(p.isdecimal() and len(p) <= 3 and int(p) < 256 and (p == "0" or p[0] != "0") for p in parts)


def _looks_secret(blob: str) -> bool:
    """Whether a long run is base64 rather than hexadecimal or a word: upper and lower case and digits, mixed."""
    return bool(
        re.search(r"[a-z]", blob) and re.search(r"[A-Z]", blob) and re.search(r"\d", blob) and re.search(r"[G-Zg-z]", blob)
    )
