"""The fault analysis: what stands in it, and that nothing of a log can break out of it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kilter.diagnose.engine import diagnose
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from kilter.report.analysis import Block, document, to_html, to_markdown

ROOT = Path(__file__).parents[2]


def analysis(text: str, name: str = "kern.log") -> list[Block]:
    fragments, info = read_text(name, text, year=2026)
    case = assemble(fragments, [info])
    return document(case, diagnose(case), [], [], title="gpu-017", verdict="")


def test_procedure_has_the_node_and_the_address_filled_in() -> None:
    line = "2026-03-04T18:20:46.652000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=9, name=python, GPU has fallen off the bus.\n"
    text = to_markdown(analysis(line))
    for heading in ("Summary", "Time line", "Evidence and causes", "Impact", "Actions", "Procedures", "Not checked", "Inputs"):
        assert f"\n## {heading}\n" in text
    assert "scontrol update nodename=gpu-017" in text
    assert "kern.log:1" in text
    assert "to be filled in" in text


def test_healthy_input_says_so_and_asks_for_nothing() -> None:
    text = to_markdown(analysis((ROOT / "examples" / "8xh100-vm" / "nvidia-smi-qx.xml").read_text(), "q.xml"))
    assert "Nothing was found in what could be checked" in text
    assert "No procedure is needed." in text


@given(st.text(max_size=200))
def test_no_text_breaks_out_of_markdown_or_html(word: str) -> None:
    blocks = [
        Block("p", word),
        Block("ul", items=[word]),
        Block("pre", word),
        Block("table", rows=[["a", "b"], [word, "c"]]),
    ]
    page = to_html([Block("h1", "x"), *blocks])
    assert "<script" not in page.lower().split("</style>")[1]
    tokens = MarkdownIt("commonmark").enable("table").parse(to_markdown(blocks))
    kinds = [t.type for t in tokens if t.level == 0]
    assert not any(t.type in ("html_block", "heading_open") for t in tokens)
    assert kinds.count("fence") == 1
    assert kinds.count("table_open") == 1
