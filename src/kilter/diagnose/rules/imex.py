"""The IMEX domain of multi-node NVLink systems, as its own control tool shows it."""

from __future__ import annotations

from kilter.diagnose.engine import Context, rule
from kilter.facts.finding import Cause, Evidence, Finding, Subject
from kilter.facts.measure import DiagnosticTest


@rule(
    "imex.domain_not_up",
    "All nodes of the IMEX domain are connected",
    scope="diagnostic",
    family="nvlink",
    sop="SOP-NVL",
    hint="nvidia-imex-ctl -N, on a node or in the daemon's pod, while the domain is in use",
    sources=("NVIDIA IMEX guide: nvidia-imex-ctl", "NVIDIA/aicr#2641 (no daemon while no compute domain is active: normal)"),
    action="Look at nvidia-imex on the nodes that are not READY: its log, nodes_config.cfg alike on all nodes, port 50000 open.",
)
def domain(test: DiagnosticTest, ctx: Context) -> Finding | None:
    """The domain's state is not UP: memory cannot be shared over NVLink between some of its nodes.

    Only a daemon that runs can print this table, so the domain is wanted. A node without a daemon prints nothing and is not judged.
    """
    if test.tool != "nvidia-imex-ctl" or test.name != "domain":
        raise ctx.skip("no state of an IMEX domain")
    if test.result == "UP":
        return None
    nodes = [t for t in ctx.snapshot.diagnostics or [] if t.tool == test.tool and t.name == "node"]
    bad = [t for t in nodes if t.result != "READY"] or [t for t in nodes if t.message]
    versions = any("!V!" in (t.message or "") for t in nodes)
    return ctx.finding(
        "warning" if test.result == "DEGRADED" else "error",
        f"IMEX domain is {test.result}"
        + (f": {len(bad)} of {len(nodes)} nodes not connected ({', '.join(t.device for t in bad[:4])})" if bad else ""),
        subject=Subject("node", "", ctx.node),
        evidence=[
            Evidence(f"Domain State: {test.result}", ctx.where(test)),
            *[Evidence(f"{t.device}: {t.result}" + (f", {t.message}" if t.message else ""), ctx.where(t)) for t in bad[:8]],
        ],
        causes=[
            Cause(
                "IMEX of different versions", "likely" if versions else "possible", "rpm -q or dpkg -l nvidia-imex on all nodes"
            ),
            Cause("daemon stopped or node down", "possible" if versions else "likely", "systemctl status nvidia-imex there"),
            Cause(
                "network between the nodes, or different node lists", "possible", "port 50000; /etc/nvidia-imex/nodes_config.cfg"
            ),
        ],
    )
