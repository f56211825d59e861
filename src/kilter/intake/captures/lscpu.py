"""``lscpu`` as text (English or Chinese labels) and ``lscpu -J``.

Source of the format: util-linux/util-linux, sys-utils/lscpu.c at v2.34 to v2.41, po/zh_CN.po.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kilter.facts.base import Reason, Ref
from kilter.facts.host import NumaNode
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

#: label -> (field of Cpu, kind)
_LABELS: dict[str, tuple[str, str]] = {
    "CPU(s)": ("logical", "int"),
    "On-line CPU(s) list": ("online", "list"),
    "Off-line CPU(s) list": ("offline", "list"),
    "Thread(s) per core": ("threads_per_core", "int"),
    "Core(s) per socket": ("cores_per_socket", "int"),
    "Socket(s)": ("sockets", "int"),
    "Vendor ID": ("vendor", "text"),
    "Model name": ("model", "text"),
    "CPU family": ("family", "int"),
    "Model": ("model_number", "int"),
    "Stepping": ("stepping", "int"),
    "CPU max MHz": ("max_mhz", "float"),
    "Flags": ("flags", "words"),
}
_TRANSLATED = {
    "架构": "Architecture",
    "CPU": "CPU(s)",
    "在线 CPU 列表": "On-line CPU(s) list",
    "离线 CPU 列表": "Off-line CPU(s) list",
    "每个核的线程数": "Thread(s) per core",
    "每个座的核数": "Core(s) per socket",
    "座": "Socket(s)",
    "厂商 ID": "Vendor ID",
    "型号名称": "Model name",
    "CPU 系列": "CPU family",
    "型号": "Model",
    "步进": "Stepping",
    "CPU 最大 MHz": "CPU max MHz",
    "标记": "Flags",
    "超管理器厂商": "Hypervisor vendor",
}
#: labels that no fact wants; others are reported as not placed
_KNOWN = re.compile(
    r"CPU op-mode\(s\)|Address sizes|Byte Order|BogoMIPS|CPU (?:static |dynamic )?MHz|CPU min MHz|CPU\(s\) scaling MHz"
    r"|Frequency boost|Virtualization(?: type| features)?|L\d[a-z]?(?: cache)?|Caches \(sum of all\)|NUMA(?: node\(s\))?"
    r"|Vulnerabilities|BIOS .*|Machine type|Hypervisor|Book\(s\).*|Drawer\(s\).*|Socket\(s\) per .*|Cluster\(s\)"
    r"|Core\(s\) per cluster|Dispatching mode|Physical .*|Cores|Preferred .*|Microarchitecture|Microcode version"
    r"|CPU 运行模式|字节序|地址大小|虚拟化(?:类型)?|L\d[a-z]? ?缓存|NUMA 节点|缓存.*|CPU(?: 最小)? MHz|CPU .*|频率.*"
)
#: labels end with a colon, in Chinese with the full-width one
_COLONS = ":\N{FULLWIDTH COLON}"
_LINE = re.compile(rf"(\s*)([^\s{_COLONS}][^{_COLONS}]{{0,59}}?)\s{{0,64}}[{_COLONS}](?:\s+(.*)|)$")
_NODE = re.compile(r"NUMA (?:node|节点) ?(\d{1,6}) CPU(?:\(s\))?")
_VULNERABILITY = re.compile(r"(?:Vulnerability|漏洞) (.+)")
_CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")


def _entries(block: Block, fragment: Fragment) -> Iterator[tuple[int, str, str, str]]:
    """(line, indentation, label, value); the wrapped flags of a terminal are joined again."""
    pending: tuple[int, str, str, list[str]] | None = None
    column = 0
    for line, raw in lines(block, fragment):
        if not raw.strip():
            continue
        match = _LINE.match(raw)
        indentation = len(raw) - len(raw.lstrip())
        if pending is not None and column > 8 and indentation >= column:
            pending[3].append(raw[column:])
            continue
        if pending is not None:
            yield pending[0], pending[1], pending[2], _join(pending[3])
            pending = None
        if match is None:
            yield line, "", "", raw
            continue
        value = match[3] or ""
        column = len(raw) - len(value) if value else 0
        # wide characters take two columns of a terminal
        column += sum(1 for char in raw[:column] if ord(char) > 0x2E80)
        pending = (line, match[1], match[2], [value])
    if pending is not None:
        yield pending[0], pending[1], pending[2], _join(pending[3])


def _join(chunks: list[str]) -> str:
    """Undo the wrap at the terminal's width: a full chunk goes on in the middle of a word, a short one lost its last blank."""
    if len(chunks) == 1:
        return chunks[0]
    width = max(len(chunk) for chunk in chunks[:-1])
    text = ""
    for chunk in chunks[:-1]:
        text += chunk if len(chunk) == width else chunk.rstrip() + " "
    return text + chunks[-1]


def _json_entries(block: Block, fragment: Fragment) -> Iterator[tuple[int, str, str, str]]:
    try:
        document = json.loads("\n".join(block.lines))
    except (ValueError, RecursionError) as error:
        fragment.note(f"lscpu -J: no valid JSON, perhaps cut short ({str(error)[:80]})")
        return
    stack = [(document.get("lscpu") if isinstance(document, dict) else None, "")]
    while stack:
        items, parent = stack.pop()
        if not isinstance(items, list):
            continue
        for item in items:
            if not isinstance(item, dict):
                continue
            label = str(item.get("field", "")).rstrip(_COLONS).strip()
            data = item.get("data")
            in_section = f"Vulnerability {label}" if parent.startswith("Vulnerabilit") else label
            if data is not None:
                yield block.first_line, "", in_section, str(data)
            stack.append((item.get("children"), label))


def _integer(value: str) -> int | None:
    """``85``, ``0x1`` (ARM), ``2.2 (pvr 004e 1202)`` (POWER: no integer)."""
    return int(value, 16 if value.startswith("0x") else 10) if re.fullmatch(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,9}", value) else None


def _put(fragment: Fragment, label: str, value: str, ref: Ref) -> bool:
    snapshot = fragment.snapshot
    cpu = snapshot.cpu
    label = _TRANSLATED.get(label, label)
    if label == "Architecture":
        snapshot.kernel.put("arch", value or None, ref)
    elif label == "Hypervisor vendor":
        snapshot.host.put("virtualization", value.lower() or None, ref)
    elif match := _NODE.fullmatch(label):
        _numa(fragment, int(match[1]), value, ref)
    elif match := _VULNERABILITY.fullmatch(label):
        cpu.mitigations[match[1].strip().lower().replace(" ", "_")] = value
    elif label in _LABELS:
        field, kind = _LABELS[label]
        if value in ("", "-"):
            cpu.lacks(field, Reason.NOT_SUPPORTED, f"lscpu prints {label}: {value}".rstrip())
        elif kind == "int":
            cpu.put(field, _integer(value), ref)
        elif kind == "float":
            cpu.put(field, float(value) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value) else None, ref)
        elif kind == "words":
            cpu.put(field, value.split(), ref)
        elif kind == "list":
            cpu.put(field, value if _CPU_LIST.fullmatch(value) else None, ref)
        else:
            cpu.put(field, value, ref)
    else:
        return _KNOWN.fullmatch(label) is not None
    return True


def _numa(fragment: Fragment, index: int, value: str, ref: Ref) -> None:
    cpu = fragment.snapshot.cpu
    if cpu.numa is None:
        cpu.put("numa", [], ref)
    assert cpu.numa is not None
    node = NumaNode(id=index, origin={"": ref})
    if not value or _CPU_LIST.fullmatch(value):
        node.put("cpus", value, ref)
    cpu.numa.append(node)


def parse(block: Block, fragment: Fragment) -> None:
    """``snapshot.cpu``, the architecture, and the hypervisor if there is one."""
    is_json = block.lines[:1] and block.lines[0].lstrip().startswith("{")
    section = ""
    for line, indentation, label, value in _json_entries(block, fragment) if is_json else _entries(block, fragment):
        if not indentation:
            section = label
        elif section in ("Vulnerabilities", "漏洞") and label:
            label = f"Vulnerability {label}"
        if not label or not _put(fragment, label, value.strip(), fragment.ref(line)):
            fragment.unparsed(line, f"{label}: {value}" if label else value)
