"""PyTorch's Flight Recorder: its JSON dump, its pickle dump (plain data only, never unpickled), and what ``torchfrtrace`` prints.

A dump does not say whose it is: the rank stands only in the file's name (``nccl_trace_rank_3``), as torchfrtrace takes it too.
pytorch/pytorch: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp (keys), torch/csrc/jit/serialization/pickler.cpp
(the subset of pickle), torch/distributed/flight_recorder/components/utils.py (messages).
"""

from __future__ import annotations

import pickletools
import re
from typing import Any

import msgspec

from kilter.facts.event import Event
from kilter.facts.measure import CollectiveRecord
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: A recorder of 20000 entries with stacks is about 40 MB; larger files are not dumps.
MAX_BYTES = 64 << 20
MAX_OPCODES = 8_000_000
CONVERT = (
    "convert it where it was written: python3 -c 'import json,pickle,sys; "
    'json.dump(pickle.load(open(sys.argv[1],"rb")), sys.stdout, default=str)\' FILE'
)

_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|trace[_-]|[_-])(\d{1,7})(?:\.\w{1,10})*$")
_NOT_ALL = re.compile(r"Not all ranks joining collective(?:,? sequence number:)? ?(\d{1,18})?(?: at entry (\d{1,18}))?")
_NOT_ALL_OLD = re.compile(r"Not all ranks joining collective for group (\S{1,80}?):(\S{0,80}) collective (\S{1,80})")
_MISSING = re.compile(r"[Mm]issing ranks(?: are|:) \{?([\d, ]{1,4096})\}?")
_MISMATCH = re.compile(
    r"(?:Error(?:s)? (?:found )?(?:with|in)|Collective sequence number: |mismatch between collectives|.{0,40}has (?:errors|mismatch))"
)
_DETAIL = re.compile(
    r"\s*(group info|collective|missing ranks|input sizes|"
    r"output sizes|world size|expected ranks|collective state|error|Culprit rank \d+; .{0,80}): (.{0,300})"
)


class _Symbol:
    """A name that a pickle refers to; never looked up."""

    def __init__(self, name: str) -> None:
        self.name = name


class NotPlain(ValueError):
    """A pickle that holds more than plain data."""


#: Wrappers of TorchScript's pickler around plain values; the first argument is the value.
_TRANSPARENT = {
    "torch.jit._pickle restore_type_tag",
    "torch.jit._pickle build_intlist",
    "torch.jit._pickle build_doublelist",
    "torch.jit._pickle build_boollist",
}


def plain_pickle(data: bytes) -> Any:
    """The plain data in a pickle: dicts with text or number keys, lists, tuples, texts, numbers, booleans, None.

    An own evaluator of the few opcodes that such data needs: nothing is imported or called, whatever the file says. Raises
    :class:`NotPlain` for everything else, and for damaged data.
    """
    if len(data) > MAX_BYTES:
        raise NotPlain("too large")
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise NotPlain("too many operations")
            name = opcode.name
            if name == "STOP":
                return stack.pop()
            _step(name, argument, stack, marks, memo)
    except NotPlain:
        raise
    except Exception as error:  # genops raises ValueError, struct.error, UnicodeDecodeError; short stacks raise IndexError
        raise NotPlain(f"damaged: {type(error).__name__}") from None
    raise NotPlain("ends early")


_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINUNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING",
}  # fmt: skip
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def _step(name: str, argument: Any, stack: list[Any], marks: list[int], memo: dict[int, Any]) -> None:
    if name in _VALUES:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"D": {}, "L": [], "T": ()}[name[6]])
    elif name == "MARK":
        marks.append(len(stack))
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[int(argument)] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[int(argument)])
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        size = int(name[-1])
        stack[-size:] = [tuple(stack[-size:])]
    elif name in ("TUPLE", "LIST", "DICT"):
        items = _since_mark(stack, marks)
        stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else _pairs({}, items))
    elif name == "APPEND":
        value = stack.pop()
        _is(stack[-1], list).append(value)
    elif name == "APPENDS":
        items = _since_mark(stack, marks)
        _is(stack[-1], list).extend(items)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _pairs(_is(stack[-1], dict), [key, value])
    elif name == "SETITEMS":
        items = _since_mark(stack, marks)
        _pairs(_is(stack[-1], dict), items)
    elif name == "GLOBAL":
        stack.append(_Symbol(str(argument)))
    elif name == "REDUCE":
        arguments, symbol = stack.pop(), stack.pop()
        if (
            not isinstance(symbol, _Symbol)
            or symbol.name not in _TRANSPARENT
            or not isinstance(arguments, tuple)
            or not arguments
        ):
            raise NotPlain(f"calls {getattr(symbol, 'name', 'something')}")
        stack.append(arguments[0])
    elif name not in ("PROTO", "FRAME"):
        raise NotPlain(f"operation {name}")


def _since_mark(stack: list[Any], marks: list[int]) -> list[Any]:
    start = marks.pop()
    items = stack[start:]
    del stack[start:]
    return items


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise NotPlain("damaged")
    return value


def _pairs(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, int, float)):
            raise NotPlain("a key that is no text or number")
        target[key] = value
    return target


def is_pickle(data: bytes) -> bool:
    """Whether ``data`` begins like a pickle of protocol 2 to 5 that holds a dict or list."""
    return len(data) > 3 and data[0] == 0x80 and 2 <= data[1] <= 5 and (data[2] in b"}]ch\x95(" or data[2] == 0x8C)


def read_bytes(data: bytes, fragment: Fragment) -> bool:
    """Read a pickled dump; False when it is none. What is not plain data is named in a note, with the way to convert it."""
    if not is_pickle(data):
        return False
    try:
        content = plain_pickle(data)
    except NotPlain as error:
        fragment.note(f"a Python pickle that is not read ({error}), since unpickling runs code; {CONVERT}")
        return True
    if not isinstance(content, dict) or "entries" not in content:
        fragment.note("a Python pickle of plain data that is no Flight Recorder dump")
        return True
    _dump(content, fragment, 0)
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """Collective records of a JSON dump; events of torchfrtrace's messages."""
    first = next((line.lstrip("\ufeff \t") for line in block.lines if line.strip()), "")
    if first.startswith("{"):
        try:
            content: Any = msgspec.json.decode("\n".join(block.lines).encode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            fragment.note(f"Flight Recorder JSON that cannot be read (cut short?): {error}")
            for number, line in block.numbered():
                fragment.unparsed(number, line[:200])
            return
        if isinstance(content, dict) and isinstance(content.get("entries"), list):
            _dump(content, fragment, block.first_line)
        else:
            fragment.note("JSON without Flight Recorder entries")
        return
    _analyzer(block, fragment)


def operation_of(name: str) -> str:
    """``nccl:all_reduce`` -> ALL_REDUCE, ``nccl:recv 0<-1`` -> RECV."""
    return name.partition(":")[2].split(" ")[0].upper() if ":" in name else name.split(" ")[0].upper()


def elements(sizes: object) -> int | None:
    """Number of elements of a list of shapes; None when nothing was printed."""
    if not isinstance(sizes, list) or not sizes:
        return None
    total = 0
    for shape in sizes:
        if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
            return None
        product = 1
        for n in shape[:16]:
            product *= n
        total += product
    return total if abs(total) < 1 << 62 else None


def _text(value: object) -> str:
    """A value that should be a word. Structures are none: in a pickle a few shared tuples can spell out to gigabytes."""
    return str(value)[:300] if isinstance(value, (str, int, float)) else ""


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _ranks(value: object) -> list[int]:
    if isinstance(value, str):
        return [int(n) for n in re.findall(r"\d{1,7}", value[:100_000])]
    return [n for n in value if isinstance(n, int)] if isinstance(value, list) else []


def _dump(content: dict[Any, Any], fragment: Fragment, line: int) -> None:
    rank = _number(content.get("rank"))
    if rank is None and (match := _RANK_IN_NAME.search(fragment.source.name)):
        rank = int(match.group(1))
    if rank is None:
        rank = -1
        fragment.note("a Flight Recorder dump does not say its rank; name the file as PyTorch does: nccl_trace_rank_<rank>")
    version = content.get("version")
    fragment.source.version = str(version) if isinstance(version, (str, int, float)) else ""
    node = _text(content.get("host_name"))
    odd = 0
    for entry in content["entries"]:
        record = _record(entry, rank, node, fragment, line) if isinstance(entry, dict) else None
        if record is None:
            odd += 1
        else:
            fragment.collectives.append(record)
    if odd:
        fragment.note(f"{odd} Flight Recorder entries without a collective's name were left out")
    if not content["entries"]:
        fragment.note("a Flight Recorder dump without entries: TORCH_NCCL_TRACE_BUFFER_SIZE was 0, or nothing ran")
    _expected(content, rank, fragment, line)


def _record(entry: dict[Any, Any], rank: int, node: str, fragment: Fragment, line: int) -> CollectiveRecord | None:
    name = entry.get("profiling_name")
    if not isinstance(name, str):
        return None
    group = entry.get("process_group")
    label = ""
    if isinstance(group, (list, tuple)) and group:
        description = _text(group[1]) if len(group) > 1 else ""
        label = description if description and description != "undefined" else _text(group[0])
    record = CollectiveRecord(rank=rank, node=node, group=label, origin={"": fragment.ref(line)})
    p2p = entry.get("is_p2p") is True
    record.sequence = _number(entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id")))
    record.operation = operation_of(name)
    record.input_elements = elements(entry.get("input_sizes"))
    record.output_elements = elements(entry.get("output_sizes"))
    types = entry.get("input_dtypes")
    record.dtype = _text(types[0]) or None if isinstance(types, list) and types else None
    record.state = _text(entry.get("state")) or None
    for field, key in (("time_created", "time_created_ns"), ("time_started", "time_discovered_started_ns")):
        value = _number(entry.get(key))
        record.put(field, value / 1e9 if value else None)
    duration = entry.get("duration_ms")
    record.duration_ms = float(duration) if isinstance(duration, (int, float)) else None
    timeout = _number(entry.get("timeout_ms"))
    record.timeout_ms = float(timeout) if timeout else None
    return record


def _expected(content: dict[Any, Any], rank: int, fragment: Fragment, line: int) -> None:
    """How far each group of this rank came, as events: its members are known even when their dumps are not given."""
    config, status = content.get("pg_config"), content.get("pg_status")
    if not isinstance(config, dict):
        return
    for key, group in list(config.items())[:4096]:
        if not isinstance(group, dict):
            continue
        label = _text(group.get("desc")) or _text(group.get("name")) or _text(key)
        fields = {"group": label if label != "undefined" else _text(group.get("name")) or _text(key)}
        if members := _ranks(group.get("ranks")):
            fields["members"] = ",".join(str(n) for n in members[:65536])
        state = status.get(key) if isinstance(status, dict) else None
        if isinstance(state, dict):
            for name, word in (("last_enqueued_collective", "enqueued"), ("last_completed_collective", "completed")):
                if (value := _number(state.get(name))) is not None:
                    fields[word] = str(value)
        fields["rank"] = str(rank)
        text = f"group {fields['group']}: enqueued up to {fields.get('enqueued', '?')}, completed up to {fields.get('completed', '?')}"
        fragment.events.append(
            Event(kind="torch.group", text=text, device=f"rank {rank}", source=fragment.source.name, line=line, fields=fields)
        )


def _analyzer(block: Block, fragment: Fragment) -> None:
    """What torchfrtrace logs about a collective that not all ranks joined."""
    event: Event | None = None
    for number, line in lines(block, fragment):
        text = line.strip()
        if not text:
            continue
        if match := _NOT_ALL_OLD.search(text):
            fields = {"group": match.group(2) or match.group(1), "op": operation_of(match.group(3))}
        elif match := _NOT_ALL.search(text):
            fields = {"seq": match.group(1) or ""}
        else:
            fields = {}
        if fields:
            event = Event(kind="torch.not_joined", text=text[:300], source=fragment.source.name, line=number, fields=fields)
            fragment.events.append(event)
        if event is not None and (missing := _MISSING.search(text)):
            event.fields["missing"] = ",".join(re.findall(r"\d{1,7}", missing.group(1)))
            continue
        if fields:
            continue
        if event is not None and (detail := _DETAIL.match(line)):
            key, value = detail.groups()
            if key == "group info":
                event.fields["group"] = value.partition(":")[2] or value
            elif key == "collective":
                event.fields["op"] = operation_of(value)
            elif key == "collective state":
                event.fields["state"] = value
            continue
        if event is not None and (" at /" in line or "collective stack trace" in line or "site-packages" in line):
            continue
        fragment.unparsed(number, line)
