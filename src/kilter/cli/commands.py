"""Which commands there are, without importing them. A new command is one line here and one file."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str  # below kilter.cli; holds a click command named ``command``
    summary: str


COMMANDS: dict[str, Command] = {
    "diagnose": Command("diagnose", "Say what is wrong or slow, with evidence."),
    "snapshot": Command("snapshot", "Record the facts of this machine as JSON."),
    "timeline": Command("timeline", "The merged time line of all logs, and who failed first."),
    "compare-nodes": Command("compare_nodes", "What differs between nodes that should be alike."),
    "bisect": Command("bisect", "Find guilty nodes and paths by rounds of tests."),
    "redact": Command("redact", "Copy a bundle without what names its site."),
    "workload": Command("workload", "Describe a job from its files and launch line."),
    "tune": Command("tune", "Plan changes for a workload and apply them with a way back."),
    "lint": Command("lint", "Check what scripts and manifests set for NCCL, CUDA and PyTorch."),
    "topo": Command("topo", "Draw a node: NUMA, PCIe tree, GPUs, NVLink, NICs."),
    "explain": Command("explain", "The knowledge behind a finding, an XID, a counter."),
    "schema": Command("schema", "JSON schema of the outputs."),
    "completion": Command("completion", "Shell completion for bash, zsh or fish."),
}
