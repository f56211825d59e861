"""What kilter knows about one thing: XID, SXid, throttle reason, AER error, counter, recovery action, GPU or SOP.

:func:`explain` takes what people type ("xid 79", "Xid79", "sxid 12028", "CmpltTO", "sop-bus") and returns a structure that a
report renders as text or JSON. Ids of findings are explained by the rules, not here.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator

import msgspec

from kilter.knowledge import aer, gpus, ib_counters, nccl_results, nvlink5, sops, sxid, throttle, tunables, xid
from kilter.knowledge.table import folded, table


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``facts`` is a table of (name, value) in reading order; ``see_also`` holds topics that :func:`explain` takes."""

    topic: str
    kind: str  # xid, sxid, throttle, aer, counter, recovery_action, gpu, sop
    title: str
    paragraphs: list[str] = []
    facts: list[tuple[str, str]] = []
    actions: list[str] = []
    disagreements: list[str] = []
    sources: list[str] = []
    confidence: str = "high"  # high, medium, low
    confidence_why: str = ""
    see_also: list[str] = []


_ACTIONS = {
    "contact_support": "Contact the vendor's support with the logs.",
    "decode_subcode": "Decode the sub-code: unit, registers and driver version together decide.",
    "drain_and_reset_gpu": "Drain the GPU, then reset it.",
    "follow_other_xid": "Follow the other XID that came with it.",
    "follow_recovery_action": "Do what the recovery action in the line says.",
    "inspect_hw": "Have the hardware inspected.",
    "none": "Nothing to do for this code alone.",
    "reboot_node": "Drain and reboot the node.",
    "reset_gpu": "Reset the GPU once its processes are gone.",
    "reset_gpu_at_next_drain": "Reset the GPU at the next drain; running jobs may finish.",
    "reset_gpu_then_inspect": "Reset the GPU; if it comes back, have the hardware inspected.",
    "restart_app": "Restart the application.",
    "restart_vm": "Restart the virtual machine.",
    "update_software": "Update the driver or firmware.",
    "watch": "Watch the rate; no action for one occurrence.",
}
_USER_CODE = {
    "yes": "yes, a program can cause it",
    "possible": "possible",
    "no": "no",
    "unknown": "unknown",
}


def _sop_line(sop_id: str) -> list[str]:
    return [f"Follow {sop_id}: {sops.load(sop_id).title}."] if sop_id else []


def _tools(other: xid.OtherTools) -> Iterator[tuple[str, str]]:
    if other.gpud is not None:
        actions = ", ".join(other.gpud.actions) or "no action named"
        yield "gpud says", f"{other.gpud.event}; {actions}"
    if other.dcgm_4_6_always_on:
        yield "DCGM 4.6 always-on check", other.dcgm_4_6_always_on
    if other.listed_as_fault_by:
        yield "listed as a fault by", ", ".join(other.listed_as_fault_by)
    if other.ignored_by:
        yield "ignored by", ", ".join(other.ignored_by)


def explain_xid(code: int) -> Explanation | None:
    """All that is known of one XID, or ``None`` for a code that the table does not have."""
    entry = xid.lookup(code)
    if entry is None:
        return None
    facts = [("name", entry.name)]
    if entry.catalog_name:
        facts.append(("name in the vendor's catalog", entry.catalog_name))
    if title := xid.dcgm_title(code):
        facts.append(("title in DCGM 4.6 (differs)", title))
    facts += [
        ("severity", entry.severity),
        ("user code can cause it", _USER_CODE[entry.user_code]),
        ("cause classes", ", ".join(entry.cause_class)),
    ]
    if entry.documented_causes:
        facts.append(("documented causes", ", ".join(entry.documented_causes)))
    vendor = list(dict.fromkeys(v for v in (entry.vendor_immediate, entry.vendor_investigate) if v))
    if vendor:
        facts.append(("vendor's action", "; then ".join(vendor)))
    facts += list(_tools(entry.other_tools))
    form = xid.log_form(code)
    if form is not None:
        label = "looks like" if re.search(rf"\): {code}\b", form.example) else "looks like (another code)"
        facts.append((label, form.example))
    facts.append(("curated", "yes" if entry.curated else "no, derived from the symbol's name"))
    paragraphs = [entry.meaning]
    if entry.tell_apart:
        paragraphs.append(f"How to tell apart: {entry.tell_apart}")
    if 144 <= code <= 150:
        units = sorted({r.unit for r in nvlink5.rules() if r.xid == code})
        facts.append(("units that can be decoded", ", ".join(units)))
        paragraphs += [f"Decoding: {line}" for line in table("xid").head("nvlink5_decode_how")]
    if code == 154:
        facts += [(f"action {a.value}: {' / '.join(a.printed)}", a.do) for a in xid.recovery_actions() if a.value is not None]
    actions = [_ACTIONS[entry.action], *_sop_line(xid.sop(code))]
    why = {
        "low": "derived from the symbol's name only",
        "medium": "known from the driver's header, not in the vendor's catalog",
        "high": "",
    }[entry.confidence]
    return Explanation(
        topic=f"xid {code}",
        kind="xid",
        title=f"XID {code}: {entry.name}",
        paragraphs=paragraphs,
        facts=facts,
        actions=actions,
        disagreements=list(xid.disagreements(code)),
        sources=table("xid").source_names(entry.sources),
        confidence=entry.confidence,
        confidence_why=why,
        see_also=[f"xid {c}" for c in entry.see_also] + ([xid.sop(code).lower()] if xid.sop(code) else []),
    )


def explain_sxid(code: int) -> Explanation | None:
    """All that is known of one SXid, or ``None`` for a code that the table does not have."""
    entry = sxid.lookup(code)
    if entry is None:
        return None
    paragraphs = [f"An error of the NVSwitch: {entry.unit}."]
    if entry.note:
        paragraphs.append(entry.note)
    paragraphs.append("The word Fatal or Non-fatal in the line outranks this table.")
    paragraphs += [f"Read together: {line}." for line in sxid.correlations()]
    facts = [("name", entry.name), ("unit", entry.unit), ("severity", entry.severity.replace("_", " "))]
    if entry.doc_name:
        facts.append(("name in the Fabric Manager guide", entry.doc_name))
    facts.append(("cause classes", ", ".join(entry.cause_class).replace("_", " ")))
    facts += [("looks like", form) for form in sxid.log_forms()[:1]]
    why = "severity inferred from the symbol's name" if entry.inferred else "severity not documented"
    return Explanation(
        topic=f"sxid {code}",
        kind="sxid",
        title=f"SXid {code}: {entry.name}",
        paragraphs=paragraphs,
        facts=facts,
        actions=[entry.action[:1].upper() + entry.action[1:] + ".", *_sop_line(entry.sop)],
        sources=table("sxid").source_names(entry.sources),
        confidence=entry.confidence,
        confidence_why=why if entry.confidence == "low" else "",
        see_also=["xid 74", "xid 45", entry.sop.lower()],
    )


def explain_throttle(name: str) -> Explanation | None:
    """A throttle (clocks event) reason by any tool's name."""
    entry = throttle.reason(name)
    if entry is None:
        return None
    facts = [
        ("bit", f"{entry.bit} (mask {entry.mask:#x})"),
        ("severity", entry.severity),
        ("cause", entry.cause.replace("_", " ")),
    ]
    if entry.since:
        facts.append(("since", entry.since))
    facts += [(f"threshold ({t.source})", t.rule) for t in throttle.thresholds() if entry.mask & 0xE8]
    mask = f"{entry.mask:#x}"
    facts += [
        ("read over the node", f"{r.when}: {r.verdict.replace('_', ' ')}")
        for r in throttle.readings()
        if re.search(rf"\b{mask}\b", r.when)
    ]
    return Explanation(
        topic=entry.name,
        kind="throttle",
        title=f"Throttle reason {entry.name}",
        paragraphs=[entry.meaning, *([entry.note] if entry.note else [])],
        facts=facts,
        actions=[*([entry.action] if entry.action != "none" else ["Nothing to do."]), *_sop_line(entry.sop)],
        sources=throttle.sources(),
        see_also=[entry.sop.lower()] if entry.sop else [],
    )


def explain_aer(name: str) -> Explanation | None:
    """A PCIe AER error by its kernel, lspci or long name."""
    entry = aer.lookup(name)
    if entry is None:
        return None
    facts = [
        ("long name", entry.long),
        ("bit", f"{entry.bit} of the {'correctable' if entry.correctable else 'uncorrectable'} error status register"),
        ("default severity", entry.default_severity),
        ("layer", entry.layer.replace("_", " ")),
        ("cause", entry.cause),
    ]
    if entry.aliases:
        facts.append(("also printed as", ", ".join(entry.aliases)))
    if entry.expect_xid:
        facts.append(("XIDs that may follow", ", ".join(map(str, entry.expect_xid))))
    if entry.masked_by_default:
        facts.append(("masked by default", "yes: no such line proves nothing"))
    return Explanation(
        topic=entry.name,
        kind="aer",
        title=f"PCIe AER {entry.name}: {entry.long}",
        paragraphs=[f"{entry.long}: {entry.cause}.", *aer.reading_rules()],
        facts=facts,
        actions=[entry.action[:1].upper() + entry.action[1:] + ".", *_sop_line("SOP-BUS")],
        sources=aer.sources(),
        confidence=entry.confidence,
        confidence_why="cause and action are kilter's reading; bits, names and severities are from the sources",
        see_also=[f"xid {c}" for c in entry.expect_xid] + ["sop-bus"],
    )


def explain_counter(name: str) -> Explanation | None:
    """An RDMA or NIC counter by its sysfs, ethtool or perfquery name."""
    entry = ib_counters.lookup(name)
    if entry is None:
        return None
    facts = [
        ("read at", entry.where),
        ("unit", entry.unit),
        ("points to", entry.fault_class.replace("_", " ")),
        ("severity when it moves", entry.severity),
        ("rule", entry.rule),
    ]
    if entry.aliases:
        facts.append(("also printed as", ", ".join(entry.aliases)))
    paragraphs = [f"{entry.rule[:1].upper()}{entry.rule[1:]}.", *([entry.note] if entry.note else [])]
    paragraphs.append("Judge the rate (change over time), not the total; the counter may wrap or start again at 0.")
    return Explanation(
        topic=entry.name,
        kind="counter",
        title=f"Counter {entry.name}",
        paragraphs=paragraphs,
        facts=facts,
        actions=_sop_line(entry.sop) or ["Nothing to do for this counter alone."],
        sources=[entry.source],
        confidence=entry.confidence,
        confidence_why="no source names a threshold: the rule is kilter's" if entry.own_rule else "",
        see_also=[entry.sop.lower()] if entry.sop else [],
    )


_RECOVERY_SOPS = {"recover_imex_domain": "SOP-NVL", "drain_p2p": "SOP-NVL"}


def explain_recovery(name: str) -> Explanation | None:
    """A GPU recovery action by its name as printed; ``None`` for words that no tool prints."""
    entry = xid.recovery_action(name)
    if entry is None or entry.value is None:
        return None
    sop_id = _RECOVERY_SOPS.get(entry.name, "")
    return Explanation(
        topic=entry.name,
        kind="recovery_action",
        title=f"GPU recovery action {entry.value}: {entry.printed[0]}",
        paragraphs=[
            "nvidia-smi -q prints it as GPU Recovery Action, NVML as a field, and XID 154 logs each change.",
            "It says how to get the GPU back, not what broke: look for the XID before it and follow that one's SOP.",
            "A value that a tool does not know means: treat the GPU as unhealthy until somebody has looked.",
        ],
        facts=[("value", str(entry.value)), ("printed as", " / ".join(entry.printed)), ("do", entry.do)],
        actions=[entry.do[:1].upper() + entry.do[1:] + ".", *_sop_line(sop_id)],
        sources=[table("xid").head("recovery_actions_source")],
        confidence="low" if entry.printed_unconfirmed else "high",
        confidence_why="the words that tools print for this value are unconfirmed" if entry.printed_unconfirmed else "",
        see_also=["xid 154", *([sop_id.lower()] if sop_id else [])],
    )


_SPEC_UNITS = {
    "arch": ("architecture", ""),
    "cc": ("compute capability", ""),
    "sm": ("SMs", ""),
    "memory_gb": ("memory", "GB"),
    "memory_type": ("memory type", ""),
    "memory_gb_s": ("memory bandwidth", "GB/s"),
    "l2_mb": ("L2 cache", "MB"),
    "l3_mb": ("L3 cache", "MiB"),
    "fp32": ("FP32 peak", "TFLOP/s"),
    "tf32": ("TF32 peak (dense)", "TFLOP/s"),
    "bf16": ("BF16 peak (dense)", "TFLOP/s"),
    "fp16": ("FP16 peak (dense)", "TFLOP/s"),
    "fp8": ("FP8 peak (dense)", "TFLOP/s"),
    "fp4": ("FP4 peak (dense)", "TFLOP/s"),
    "int8": ("INT8 peak (dense)", "TOP/s"),
    "bf16_matmul_measured": ("best measured BF16 GEMM", "TFLOP/s"),
    "fp8_matmul_measured": ("best measured FP8 GEMM", "TFLOP/s"),
    "nvlink_gb_s": ("NVLink, all links, one direction", "GB/s"),
    "allreduce_busbw_measured_gb_s": ("all-reduce busbw measured", "GB/s"),
    "pcie": ("PCIe", ""),
    "tdp_w": ("board power", "W"),
}


def _spec_facts(figures: gpus.GpuSpec) -> Iterator[tuple[str, str]]:
    for field, (label, unit) in _SPEC_UNITS.items():
        value = getattr(figures, field)
        if value is None or value == "":
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        mark = " (unconfirmed)" if figures.confidence_of(field) == "low" else ""
        yield label, f"{text} {unit}".rstrip() + mark


def explain_gpu(name: str) -> Explanation | None:
    """A GPU by its product name or by the key of its table entry."""
    by_key = {folded(k): k for k in gpus.spec_keys()}
    product = gpus.product(name=name) or next((p for p in gpus.products() if folded(p.key) == folded(name)), None)
    key = product.spec if product else by_key.get(folded(name))
    figures = gpus.spec(key) if key else None
    if product is None and key:
        product = next((p for p in gpus.products() if p.spec == key), None)
    if product is None and figures is None:
        return None
    facts = list(_spec_facts(figures)) if figures else []
    sources = figures.source_names() if figures else []
    notes = [n for n in (figures.note, figures.nvlink_note, figures.topology) if n] if figures else []
    ids = table("gpu_ids")
    if product is not None:
        facts += [("names", ", ".join(product.names))]
        if product.pci_ids:
            facts.append(("PCI device ids", ", ".join(f"10de:{i}" for i in product.pci_ids)))
        links = product.nvlinks
        if links is not None:
            speed = f" of {links.link_gb_s:g} GB/s" if links.link_gb_s else ""
            also = f" (also seen: {', '.join(f'{s:g}' for s in links.also_gb_s)})" if links.also_gb_s else ""
            bridge = ", or none without a bridge" if links.optional else ""
            facts.append(("NVLinks when healthy", f"{links.count}{speed}{also}{bridge}; confidence {links.confidence}"))
            sources += ids.source_names([links.source])
        sources += ids.source_names([product.source])
    confidence = (
        "low" if figures is None or figures.confidence_of("fp16") == "low" else "medium" if figures.unconfirmed else "high"
    )
    why = f"unconfirmed: {', '.join(figures.unconfirmed)}" if figures and figures.unconfirmed else ""
    return Explanation(
        topic=key or (product.key if product else name),
        kind="gpu",
        title=f"GPU {key or (product.key if product else name)}",
        paragraphs=["What this product can do at most; measure before planning with it.", *notes],
        facts=facts,
        sources=list(dict.fromkeys(sources)),
        confidence=confidence,
        confidence_why=why or ("no figures in the table, only names and links" if figures is None else ""),
    )


def explain_sop(name: str) -> Explanation | None:
    """A SOP by its id; the whole text is ``sops.load(id).text``."""
    if name.strip().upper() not in sops.all_ids():
        return None
    sop = sops.load(name)
    return Explanation(
        topic=sop.id.lower(),
        kind="sop",
        title=f"{sop.id}: {sop.title}",
        paragraphs=[sop.text.split("\n", 1)[1].strip()],
        sources=[" ".join(sop.section("Sources").split())],
    )


def _code(pattern: str, topic: str) -> int | None:
    match = re.fullmatch(pattern, topic, re.IGNORECASE)
    return int(match[1]) if match else None


_CLASSES = {
    "debug": "Meant for debugging; not for production.",
    "debug_in_practice": "Meant for debugging in practice; not for production.",
    "deprecated": "Deprecated: later versions may ignore it.",
    "removed": "Removed: current versions ignore it.",
    "renamed": "Renamed: current versions ignore this name.",
    "unknown": "Unknown to NCCL: it has no effect.",
    "undocumented": "In the source, not in the documentation: it may change without notice.",
    "dangerous": "Dangerous: it can give wrong results or hangs.",
    "experimental": "Experimental.",
}


def explain_tunable(name: str) -> Explanation | None:
    """A parameter of the kernel, PCIe, GPU, NIC, NCCL, a container or a framework."""
    entry = tunables.lookup(name)
    if entry is None:
        return None
    paragraphs = [entry.meaning] if entry.meaning else []
    if entry.class_ in _CLASSES:
        paragraphs.append(_CLASSES[entry.class_])
    if entry.cargo_cult:
        paragraphs.append("Often copied to where it has no effect or does harm: see when.")
    facts = [
        ("read", entry.how_to_read),
        ("set", entry.how_to_set),
        ("for good", entry.persistent_form),
        ("takes effect", entry.needs),
        ("default", str(entry.default)),
        ("value", str(entry.recommended_value)),
        ("when", entry.recommended_when),
        ("only if", entry.gate or ""),
        ("effect", entry.effect),
        ("risk", entry.risk),
        ("since", str(entry.since) if str(entry.since) not in ("", "-") else ""),
        ("conflicts with", ", ".join(entry.conflicts_with)),
    ]
    return Explanation(
        topic=entry.id,
        kind="tunable",
        title=f"{entry.id.split('.', 1)[-1] if entry.layer == 'nccl_env' else entry.id} ({entry.layer})",
        paragraphs=paragraphs,
        facts=[(key, text) for key, text in facts if text],
        sources=entry.source,
        confidence="low" if entry.unverified else entry.confidence,
        confidence_why="a part of it has no source yet" if entry.unverified else "",
        see_also=[one for one in entry.conflicts_with if tunables.lookup(one) is not None],
    )


def explain_nccl_result(text: str) -> Explanation | None:
    """A result code of NCCL, also inside the sentence that a framework prints."""
    one = nccl_results.find(text)
    if one is None:
        return None
    return Explanation(
        topic=one.name,
        kind="nccl_result",
        title=f"{one.name} (result of an NCCL call)",
        paragraphs=[one.meaning],
        actions=[one.first],
        sources=table("nccl_results").source_names(["types", "troubleshooting"]),
        see_also=one.look_at,
    )


def explain(topic: str) -> Explanation | None:
    """What is known of ``topic``, or ``None``; see the module's text for what it takes.

    A bare number is an XID up to 999 and an SXid from 10000 on. A word that means several things is taken in the order of
    the list below: the name of a link error ("Timeout") is more likely meant than anything else of that name.
    """
    topic = topic.strip()[:200]
    code = _code(r"xid[\s:#-]*0*(\d{1,4})", topic)
    if code is None:
        code = _code(r"0*(\d{1,3})", topic)
    if code is not None:
        return explain_xid(code)
    code = _code(r"(?:sxid[\s:#-]*)?0*(\d{5})", topic)
    if code is not None:
        return explain_sxid(code)
    readers: tuple[Callable[[str], Explanation | None], ...] = (
        explain_sop,
        explain_throttle,
        explain_aer,
        explain_counter,
        explain_gpu,
        explain_recovery,
        explain_tunable,
        explain_nccl_result,
        _explain_symbol,
    )
    if re.match(r"recovery[\s_-]*action", topic, re.IGNORECASE):
        return explain_recovery(re.sub(r"(?i)^recovery[\s_-]*action[\s:_-]*", "", topic))
    return next((found for read in readers if (found := read(topic)) is not None), None)


@functools.cache
def _symbols() -> dict[str, tuple[str, int]]:
    """Symbol name -> (table, code), from the text of the tables alone."""
    found: dict[str, tuple[str, int]] = {}
    for kind, section, key in (("sxid", "sxids", "sxid"), ("xid", "xids", "code")):
        text = table(kind).sections[section]
        for code, name in re.findall(rf"^- {key}: (\d+)\n  name: (\S+)$", text, re.MULTILINE):
            found[folded(name)] = (kind, int(code))
    return found


def _explain_symbol(name: str) -> Explanation | None:
    """An XID or SXid by its symbol ("GSP_RPC_TIMEOUT")."""
    kind, code = _symbols().get(folded(name), ("", 0))
    return explain_xid(code) if kind == "xid" else explain_sxid(code) if kind == "sxid" else None


@functools.cache
def topics() -> tuple[str, ...]:
    """All topics that :func:`explain` takes, without aliases."""
    return (
        *(f"xid {c}" for c in xid.codes()),
        *(f"sxid {c}" for c in sxid.codes()),
        *(i.lower() for i in sops.all_ids()),
        *(r.name for r in throttle.reasons()),
        *(e.name for e in aer.errors()),
        *(c.name for c in ib_counters.counters()),
        *(a.name for a in xid.recovery_actions() if a.value is not None),
        *gpus.spec_keys(),
        *tunables.names(),
        *(r.name for r in nccl_results.results()),
    )


def suggest(topic: str, limit: int = 5) -> list[str]:
    """Topics that look like ``topic``, the nearest first."""
    wanted = folded(topic[:200])
    known = {folded(t): t for t in topics()}
    if re.fullmatch(r"s?xid_?\d*", wanted):  # near numbers are other errors: only those with the same beginning help
        kind, digits = re.fullmatch(r"(s?xid)_?(\d*)", wanted).groups()  # type: ignore[union-attr]  # matched above
        return [t for k, t in known.items() if re.fullmatch(rf"{kind}_{digits}\d*", k)][:limit]
    near = difflib.get_close_matches(wanted, known, n=limit, cutoff=0.6)
    inside = [k for k in known if len(wanted) >= 3 and wanted in k and k not in near]
    return [known[k] for k in (*near, *inside)][:limit]
