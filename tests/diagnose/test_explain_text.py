"""``kilter explain "<error line>"``."""

from __future__ import annotations

import pytest

from kilter.diagnose.explain import explain


@pytest.mark.parametrize(
    ("line", "topic"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "xid 79"),
        ("Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "xid 79"),
        ("RmInitAdapter failed! (0x26:0x56:1474)", "gpu.init_failed"),
        (
            "Got completion from peer 10.0.0.1<4213> with status=12 opcode=0 len=0 vendor err 129",
            "nccl.net.ib.completion_error_12",
        ),
        ("NET/IB : Got completion from peer 10.0.0.1<4213> with status=12 opcode=0 len=0", "nccl.net.ib.completion_error_12"),
    ],
)
def test_an_error_line_leads_to_what_is_known_of_it(line: str, topic: str) -> None:
    found = explain(line)
    assert found is not None
    assert found.topic == topic


@pytest.mark.parametrize("line", ["hello from nowhere", "foo failed: the error is fatal", "GPU is fine", ""])
def test_other_text_is_not_explained(line: str) -> None:
    assert explain(line) is None
