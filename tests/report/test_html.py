"""The HTML report: complete, self-contained, and closed to what its input says."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.facts.accelerator import Accelerator, EccCounts, Reading
from kilter.facts.base import Reason
from kilter.facts.case import Case, Conflict, Input, Snapshot
from kilter.facts.finding import Cause, Check, Diagnosis, Evidence, Finding, Severity, Subject
from kilter.report.html import render_html

Machines = dict[str, Callable[[], Snapshot]]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&\x00"
VOID = {"meta", "input", "br", "img", "hr", "link"}


class Page(HTMLParser):
    """Checks nesting; collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without start"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def of(self, tag: str, css: str = "") -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag and (not css or css in (attrs.get("class") or "").split())]


def finding(id_: str = "gpu.ecc", severity: Severity = Severity.ERROR, name: str = "GPU0", **facts: object) -> Finding:
    return Finding(
        id=id_, severity=severity, subject=Subject("gpu", name, "n1"), what=str(facts.pop("what", "Something")), **facts
    )  # type: ignore[arg-type]  # tests pass any field


def page(case: Case | None = None, *findings: Finding, checks: list[Check] | None = None) -> Page:
    return Page(render_html(case or Case(), Diagnosis(findings=list(findings), checks=checks or []), title="n1", version="1.2.3"))


def test_machines_render_with_picture_and_table(machine: Snapshot) -> None:
    found = page(Case(snapshots=[machine]), finding())
    assert len(found.of("svg", "kt")) == 1
    assert ("Accelerators" in found.text) == bool(machine.accelerators)


def test_nothing_is_loaded_from_anywhere(machines: Machines) -> None:
    text = render_html(
        Case(snapshots=[make() for make in machines.values()]),
        Diagnosis(findings=[finding(sources=["https://docs.nvidia.com/deploy/xid-errors/index.html"])]),
        title="t",
        version="1",
    )
    found = Page(text)
    assert not [attrs for _, attrs in found.tags if "src" in attrs or "srcset" in attrs or "background" in attrs]
    assert not found.of("link")
    assert {attrs["href"] for attrs in found.of("a")} <= {"https://docs.nvidia.com/deploy/xid-errors/index.html", "#not-checked"}
    assert not re.search(r"@import|url\(", text)


def test_the_worst_severity_is_the_verdict() -> None:
    found = page(None, finding(severity=Severity.INFO), finding("x.y", Severity.CRITICAL), finding("x.z", Severity.WARNING))
    assert "3 findings, the worst is critical" in found.text
    assert [attrs["data-severity"] for attrs in found.of("article")] == ["critical", "warning", "info"]


def test_no_finding_is_not_called_healthy_when_nothing_was_checked() -> None:
    unchecked = Check(rule="a.b", title="A", family="gpu", not_checked=1, reasons=["no input"], hints=["nvidia-smi -q"])
    assert "Nothing could be checked" in page(checks=[unchecked]).text
    fine = Check(rule="a.c", title="C", family="gpu", ok=1)
    text = page(checks=[fine, unchecked]).text
    assert "Nothing found in what could be checked" in text
    assert "1 not checked or only in part" in text


def test_one_card_an_id_with_all_its_subjects() -> None:
    some = [finding(name=f"GPU{n}", evidence=[Evidence(f"line {n}", f"a.txt:{n}")], action="Reset it") for n in range(8)]
    found = page(None, *some)
    assert len(found.of("article")) == 1
    assert "8 subjects" in found.text
    for n in range(8):
        assert f"n1: GPU{n}" in found.text
        assert f"a.txt:{n}" in found.text
    assert found.text.count("Reset it") == 1


def test_different_advice_on_one_id_is_not_lost() -> None:
    found = page(None, finding(action="Reset it"), finding(name="GPU1", action="Replace it", what="Other"))
    assert len(found.of("article")) == 1
    assert "Reset it" in found.text
    assert "Replace it" in found.text
    assert "Other" in found.text


def test_a_finding_shows_all_that_it_carries() -> None:
    full = finding(
        confidence="low",
        evidence=[
            Evidence("e1", "f.txt:1"),
            Evidence("e2", "f.txt:2", "contradicts"),
            Evidence("e3", role="missing"),
            Evidence("e4", role="odd"),
        ],
        causes=[Cause("c1", "likely", "d1"), Cause("c2", "unlikely")],
        action="act",
        next_test="test it",
        sop="sop 7",
        sources=["repo:path"],
        disagreement="A says x, B says y",
        count=4,
        first_time=1744566761.0,
        last_time=12.5,
    )
    text = page(None, full).text
    for part in (
        "e1",
        "f.txt:2",
        "e3",
        "e4",
        "Speaks against it",
        "Missing",
        "c1",
        "d1",
        "c2",
        "act",
        "test it",
        "sop 7",
        "repo:path",
    ):
        assert part in text
    for part in ("A says x, B says y", "4 times", "confidence low", "2025-04-13 17:52:41", "12.500 s after boot"):
        assert part in text


def test_coverage_lists_what_is_fine_and_groups_the_rest_by_command() -> None:
    checks = [
        Check(rule="gpu.a", title="Alpha", family="gpu", ok=8),
        Check(
            rule="gpu.b",
            title="Beta",
            family="gpu",
            ok=1,
            not_checked=7,
            reasons=["GPU1: no ECC", "GPU2: no ECC"],
            hints=["nvidia-smi -q"],
        ),
        Check(rule="ib.c", title="Gamma", family="network", not_checked=1, reasons=["no counters"], hints=["perfquery -x"]),
        Check(
            rule="ib.d", title="Delta", family="network", not_checked=1, reasons=["no state"], hints=["perfquery -x", "ibstat"]
        ),
        Check(rule="x.e", title="Epsilon", family="xpu", not_applicable=1),
        Check(rule="x.f", title="Zeta", family="xpu", not_checked=1, reasons=["nobody knows"]),
    ]
    text = page(checks=checks).text
    assert "1 check fine on all that they apply to" in text
    assert text.count("perfquery -x") == 1
    assert text.count("Delta") == 2  # both commands would show it
    for part in ("GPU1: no ECC", "GPU2: no ECC", "no counters", "no command known", "nobody knows", "1 check about things"):
        assert part in text


def test_inputs_say_what_was_not_recognised() -> None:
    inputs = [
        Input(
            name="a.txt", tools=["lspci"], lines=10, unrecognised_lines=2, unrecognised_sample=["3: what"], notes=["cut short"]
        ),
        Input(name="b.bin", lines=1, unrecognised_lines=1),
    ]
    text = page(Case(inputs=inputs)).text
    for part in ("2 inputs, 1 tool recognised, 3 lines not recognised", "3: what", "cut short", "nothing recognised", "b.bin"):
        assert part in text


def test_missing_values_say_why_and_are_never_zero() -> None:
    one = Accelerator(index=0, pci_address="0000:01:00.0", name="T4", ecc_mode=True, readings=[Reading(power_w=27.0)])
    one.readings[0].lacks("temperature_c", Reason.NOT_READABLE, "timeout", "run as root")
    other = Accelerator(index=1, name="T4", readings=[Reading(temperature_c=40)], ecc_volatile=EccCounts(dram_uncorrected=2))
    found = page(Case(snapshots=[Snapshot(accelerators=[one, other])]))
    titles = [attrs.get("title") for attrs in found.of("span")]
    assert "not readable; timeout; run as root" in titles
    assert "2 / ?" in found.text
    assert "0 / 0" not in found.text
    assert "Not given for any device: " in found.text


def test_facts_on_which_sources_disagree_are_listed() -> None:
    facts = Snapshot(conflicts=[Conflict("GPU0", "power_limit_w", "700", "650")])
    text = page(Case(snapshots=[facts])).text
    assert "power_limit_w" in text
    assert "650" in text


def test_input_cannot_add_markup() -> None:
    bad = HOSTILE
    one = Accelerator(index=0, pci_address=bad, uuid=bad, name=bad, error=bad, fabric_state=bad)
    one.lacks("serial", Reason.NOT_SUPPORTED, bad, bad)
    one.lacks("temperature_c", Reason.NOT_SUPPORTED, bad, bad)
    facts = Snapshot(node=bad, accelerators=[one], conflicts=[Conflict(bad, bad, bad, bad)])
    facts.host.dmi_product = facts.host.os_name = facts.host.virtualization = bad
    case = Case(snapshots=[facts, facts], inputs=[Input(name=bad, tools=[bad], unrecognised_sample=[bad], notes=[bad])])
    cause = Cause(bad, bad, bad)
    some = Finding(id=bad, severity=Severity.ERROR, subject=Subject(bad, bad, bad), what=bad, confidence=bad, disagreement=bad)
    some.evidence, some.causes = [Evidence(bad, bad, bad)], [cause]
    some.action = some.sop = some.next_test = bad
    some.sources = [bad, "https://x.test/" + bad, "javascript:alert(3)"]
    checks = [Check(rule=bad, title=bad, family=bad, ok=1, not_checked=1, reasons=[bad, bad], hints=[bad])]
    text = render_html(case, Diagnosis(findings=[some], checks=checks), title=bad, version=bad)
    found = Page(text)
    assert text.count("<script") == 1
    assert not found.of("img")
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    assert {attrs["href"] for attrs in found.of("a")} == {"https://x.test/", "#not-checked"}
    assert "\x00" not in text


def test_a_thousand_findings_stay_one_page_of_moderate_size() -> None:
    some = [
        finding(f"rule.{n % 40}", name=f"GPU{n}", evidence=[Evidence("text " * 10, f"dmesg:{n}")], action="Do it")
        for n in range(1000)
    ]
    text = render_html(Case(), Diagnosis(findings=some), title="t", version="1")
    assert len(Page(text).of("article")) == 40
    assert len(text) < 1_000_000


def test_the_filter_is_hidden_until_script_runs() -> None:
    tools = [attrs for attrs in page(None, finding()).of("div") if attrs.get("id") == "tools"]
    assert len(tools) == 1
    assert "hidden" in tools[0]


def test_nothing_at_all_renders() -> None:
    found = page()
    assert "No input." in found.text
    assert "Nothing could be checked" in found.text


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text(), st.floats(allow_nan=True, allow_infinity=True))
def test_any_text_and_time_render(one: str, other: str, time: float) -> None:
    some = finding(one, what=other, name=one, evidence=[Evidence(one, other)], sources=[f"http://{one}"], first_time=time)
    assert page(Case(snapshots=[Snapshot(node=one, accelerators=[Accelerator(name=other)])]), some).of("article")
