"""linux-rdma perftest: ib_write_bw, ib_read_bw, ib_send_bw, their ``_lat`` sisters, and ``--out_json``.

MB of ``BW average[MB/sec]`` is 2**20 bytes; samples are converted to GB/s (1e9), and keep what was printed. Client and server often share one
stream: their headers interleave and each row appears twice, so equal rows count once. A peak of 0 (duration mode, ``-D``) was not measured.
The JSON has no unit: it is taken from message size and rate, and refused when they do not agree. ``t_stdev`` is an integer computation
in the tool and is not read. linux-rdma/perftest: src/perftest_parameters.c.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kilter.facts.event import Event
from kilter.facts.measure import Sample
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.nccl_tests import finite
from kilter.intake.fragment import Block, Fragment

TOOL = "perftest"

_TITLE = re.compile(
    r"\s*((?:RDMA_|)?(?:Write|Read|Send|Atomic|Raw Ethernet)[\w /.-]{0,40}?(?:BW|Latency)[\w /.-]{0,20}?Test(?: for \w+)?)\s*$"
)
_COLUMN = re.compile(
    r"(99(?:\.9)? ?% percentile|BW peak|BW average|MsgRate|CPU_Util|t_min|t_max|t_typical|t_avg|t_stdev|tps average)\s*(?:\[([^\]]{1,16})\])?"
)
_FIELD = re.compile(
    r"(Dual-port|Device|Number of qps|Transport type|Connection type|Using SRQ|Mtu|Link type|GID index"
    r"|CQ Moderation|TX depth|RX depth)\s*:\s*(\S{1,64})"
)
_ADDRESS = re.compile(
    r"\s*(?:local|remote) address:|\s*(?:GID|RAW Ethernet)\s*[:*]|\s*(?:ibv_wr\* API|PCIe relax order"
    r"|Max inline data|Max Inline|rdma_cm QPs|Data ex\. method|Use \w+ memory|WARNING:|Force Link)"
)
_RULE = re.compile(r"\s*(?:-{20,}|\*{3,}|\* Waiting for client)")
#: What the tool says when a run cannot go on -> what failed. Texts of src/perftest_resources.c, perftest_communication.c, perftest_parameters.c.
_FAILURES = (
    (re.compile(r"Couldn't connect to \S{1,255}:\d{1,5}"), "connect"),
    (re.compile(r"IB device (?P<device>\S{1,64}) not found|Unable to find the Infiniband/RoCE device"), "device"),
    (re.compile(r"Port number \d{1,3} state is (?!Active)\w{1,20}"), "port"),
    (re.compile(r"Failed to modify QP (?:\d{1,9} )?to (?:RTR|RTS)|Unable to Connect the HCA's through the link"), "queue_pair"),
    (re.compile(r"Couldn't allocate MR"), "memory"),
    (re.compile(r"Failed status(?:-[\w -]{1,60}\()? ?(?P<status>\d{1,3})\)?: wr_id"), "completion"),
    (re.compile(r"Error: (?:BW result is below bw limit|Msg rate  ?is below msg_rate limit)"), "below_limit"),
)
#: What follows from a failure that was told already.
_FOLLOWS = re.compile(
    r"(?:ethernet|rdma)_(?:read|write)_keys: |.{0,80}\b(?:Couldn't read remote address|Failed to (?:exchange data|create MR|close connection)|"
    r"Failed to (?:sync|complete run_iter|deallocate|destroy)|failed to create mr|Unable to (?:read|write) (?:from|to) socket|"
    r"Unable to open file descriptor|Unable to init the socket|Unable to set up|Couldn't (?:create IB resources|get context|set the link layer)|"
    r"Completion with error at (?:client|server)|[sr]cnt=\d|Error occurred while running)"
)
_METRICS = {
    "BW peak": "bandwidth_peak",
    "BW average": "bandwidth",
    "MsgRate": "message_rate",
    "t_min": "latency_min",
    "t_max": "latency_max",
    "t_typical": "latency",
    "t_avg": "latency_average",
    "99% percentile": "latency_p99",
    "99.9% percentile": "latency_p999",
}
#: unit as printed -> (factor, unit of the sample)
_UNITS = {
    "MB/sec": (1048576 / 1e9, "GB/s"),
    "MiB/sec": (1048576 / 1e9, "GB/s"),
    "Gb/sec": (1.0, "Gbit/s"),
    "Mpps": (1.0, "Mpps"),
    "usec": (1.0, "us"),
    "cycles": (1.0, "cycles"),
}
_CONDITIONS = {
    "Device": "device",
    "Number of qps": "qps",
    "Connection type": "connection",
    "Mtu": "mtu",
    "Link type": "link_layer",
    "GID index": "gid_index",
    "Transport type": "transport",
}


def parse(block: Block, fragment: Fragment) -> None:
    """Samples bandwidth and bandwidth_peak (GB/s or Gbit/s), message_rate (Mpps), latency* (us) by message size; what failed as events."""
    if block.lines and block.lines[0].lstrip().startswith("{"):
        _json(block, fragment)
        return
    conditions: dict[str, str] = {}
    columns: list[tuple[str, str]] = []
    seen: set[tuple[str, ...]] = set()
    twice = 0
    failures: dict[str, Event] = {}
    for number, line in lines(block, fragment):
        text = line.strip()
        if not text or _RULE.match(line) or _ADDRESS.match(line):
            continue
        if failure := _failure(text):
            kind, device, status = failure
            event = Event(
                kind="job.test_failed", text=text, source=fragment.source.name, line=number, fields={"tool": TOOL, "what": kind}
            )
            event.fields |= {name: value for name, value in (("device", device), ("status", status)) if value}
            failures.setdefault(kind, event)
            continue
        if _FOLLOWS.match(text):
            continue
        if text.startswith("#bytes"):
            columns = [(name.replace(" %", "%"), unit) for name, unit in _COLUMN.findall(text)]
        elif found := _TITLE.match(line):
            conditions["test"] = found.group(1)
        elif fields := _FIELD.findall(line):
            conditions.update({_CONDITIONS[name]: value.removesuffix("[B]") for name, value in fields if name in _CONDITIONS})
        elif (
            text[0].isdecimal()
            and columns
            and len(tokens := text.split()) >= 3
            and tokens[0].isdecimal()
            and tokens[1].isdecimal()
        ):
            if _FOLLOWS.search(text):  # the row was printed while the run broke
                fragment.note(f"line {number}: the run broke in this row, which is not read")
                failures.setdefault(
                    "broke",
                    Event(
                        kind="job.test_failed",
                        text=text,
                        source=fragment.source.name,
                        line=number,
                        fields={"tool": TOOL, "what": "broke"},
                    ),
                )
                continue
            key = (conditions.get("test", ""), conditions.get("device", ""), *tokens)
            if key in seen:
                twice += 1
                continue
            seen.add(key)
            fragment.snapshot.samples += _row(fragment, number, tokens, columns, conditions)
        elif "CPU Frequency" in text or "CPU frequency" in text:
            fragment.note("perftest says that CPU clocks differ or are not at their maximum: latencies are uncertain")
        else:
            fragment.unparsed(number, line)
    if twice:
        fragment.note(f"{twice} result rows appear twice (client and server in one stream); counted once")
    for event in failures.values():
        event.fields |= {
            name: conditions[name] for name in ("test", "device", "gid_index", "mtu", "link_layer") if name in conditions
        }
    fragment.events += failures.values()
    if not seen and not failures:
        fragment.note("perftest output without a result row: the run failed or was cut short")


def _failure(text: str) -> tuple[str, str, str] | None:
    """(what failed, device, completion status) of a line."""
    for pattern, kind in _FAILURES:
        if found := pattern.match(text):
            groups = found.groupdict()
            return kind, groups.get("device") or "", groups.get("status") or ""
    return None


def _row(
    fragment: Fragment, number: int, tokens: list[str], columns: list[tuple[str, str]], conditions: dict[str, str]
) -> list[Sample]:
    samples = []
    for (name, unit), printed in zip(columns, tokens[2:], strict=False):
        value = finite(printed)
        metric = _METRICS.get(name)
        if metric is None or value is None or (value == 0 and name.startswith(("BW", "t_"))):
            continue
        factor, known = _UNITS.get(unit, (1.0, unit))
        samples.append(
            Sample(
                metric=metric,
                value=value * factor,
                unit=known,
                tool=TOOL,
                conditions={
                    **conditions,
                    "size_bytes": tokens[0],
                    "iterations": tokens[1],
                    "printed": f"{printed} {unit}".strip(),
                },
                origin={"": fragment.ref(number)},
            )
        )
    return samples


def _json(block: Block, fragment: Fragment) -> None:
    text = "\n".join(block.lines)
    # --output=bandwidth leaves a comma before the closing brace.
    text = re.sub(r",\s{0,100}\}", "}", text)
    try:
        content: Any = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        fragment.note(f"perftest JSON that cannot be read: {error}")
        for number, line in block.numbered():
            fragment.unparsed(number, line[:200])
        return
    results = content.get("results") if isinstance(content, dict) else None
    info = content.get("test_info") if isinstance(content, dict) else None
    if not isinstance(results, dict):
        fragment.note("perftest JSON without results")
        return
    info = info if isinstance(info, dict) else {}
    keys = (
        ("test", "test"),
        ("Device", "device"),
        ("Number_of_qps", "qps"),
        ("Connection_type", "connection"),
        ("Mtu", "mtu"),
        ("Link_type", "link_layer"),
    )
    conditions = {name: str(info[key]) for key, name in keys if info.get(key) is not None}
    size, count = str(results.get("MsgSize", "")), str(results.get("n_iterations", ""))
    numbers = {key: finite(str(value)) for key, value in results.items() if isinstance(value, (int, float))}
    unit = _unit(block.source.command, numbers)
    printed: list[tuple[str, str, str]] = [
        ("BW peak", "BW_peak", unit),
        ("BW average", "BW_average", unit),
        ("MsgRate", "MsgRate", "Mpps"),
        *((name, name, "usec") for name in ("t_min", "t_max", "t_typical", "t_avg")),
        ("99% percentile", "percentile_99", "usec"),
        ("99.9% percentile", "percentile_99.9", "usec"),
    ]
    if not unit and numbers.get("BW_average"):
        fragment.note(
            "perftest JSON prints no unit, and its message rate does not decide between MB/s and Gbit/s: bandwidth not read"
        )
    for name, key, of in printed:
        if of and numbers.get(key) is not None:
            fragment.snapshot.samples += _row(
                fragment, block.first_line, [size, count, str(results[key])], [(name, of)], conditions
            )


def _unit(command: str, numbers: dict[str, float | None]) -> str:
    """Which unit makes bandwidth = size x rate; "" when neither does."""
    size, rate, bandwidth = numbers.get("MsgSize"), numbers.get("MsgRate"), numbers.get("BW_average")
    if size and rate and bandwidth:
        for unit, scale in (("MB/sec", 1e6 / 1048576), ("Gb/sec", 8e6 / 1e9)):
            if abs(size * rate * scale / bandwidth - 1) < 0.02:
                return unit
    return "Gb/sec" if "--report_gbits" in command else ""
