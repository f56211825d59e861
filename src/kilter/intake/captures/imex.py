"""``nvidia-imex-ctl -N`` (and ``-n``): which nodes of a multi-node NVLink domain reach each other.

Format: NVIDIA IMEX guide, command service; outputs in issues of the NVIDIA DRA driver (kubernetes-sigs/dra-driver-nvidia-gpu).
"""

from __future__ import annotations

import re

from kilter.facts.measure import DiagnosticTest
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

TOOL = "nvidia-imex-ctl"
_NODE = re.compile(r"Node #(?P<number>\d{1,4}) {1,20}[*-] (?P<name>\S{1,255})(?: \*)? {1,40}- (?P<state>[A-Z_]{2,40})\b")
_DOMAIN = re.compile(r"Domain State: (?P<state>[A-Z_]{2,40})$")
_HEAD = re.compile(r"Nodes From\\To +\d")
_ROW = re.compile(r"(?P<number>\d{1,4}) {2,}(?P<cells>(?:(?:[A-Z]|![A-Z]!) *)+)$")
_LEGEND = re.compile(r"(?:Connectivity Table Legend:|!?[A-Z]!? - [A-Z])")
_OTHER = re.compile(r"(?:Nodes:|\d{1,2}/\d{1,2}/\d{4} [\d:.]+)$")


def parse(block: Block, fragment: Fragment) -> None:
    """State of the domain and of each node into ``snapshot.diagnostics``; the letters of a node that are not "C" are its message."""
    tests: list[DiagnosticTest] = []
    nodes: dict[str, DiagnosticTest] = {}
    for number, raw in lines(block, fragment):
        text = raw.strip()
        if match := _DOMAIN.match(text):
            tests.append(_test("domain", match["state"], "", fragment, number))
        elif match := _NODE.match(text):
            nodes[match["number"]] = _test("node", match["state"], f"node {match['number']} {match['name']}", fragment, number)
        elif (match := _ROW.match(text)) and match["number"] in nodes:
            bad = [f"{cell} to node {to}" for to, cell in enumerate(match["cells"].split()) if cell != "C"]
            nodes[match["number"]].message = ", ".join(bad) or None
        elif text and not (_LEGEND.match(text) or _OTHER.match(text) or _HEAD.match(text)):
            fragment.unparsed(number, raw)
    found = [*tests[-1:], *nodes.values()]
    if found:
        fragment.snapshot.diagnostics = [*(fragment.snapshot.diagnostics or []), *found]


def _test(name: str, result: str, device: str, fragment: Fragment, line: int) -> DiagnosticTest:
    return DiagnosticTest(tool=TOOL, name=name, result=result, device=device, origin={"": fragment.ref(line)})
