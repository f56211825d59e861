"""IMEX: the service that lets GPUs of several nodes share memory over NVLink (GB200, GB300)."""

from __future__ import annotations

from collections import Counter

from kilter.diagnose.engine import Context, rule
from kilter.facts.case import Case
from kilter.facts.finding import Cause, Evidence, Finding, Subject


@rule(
    "imex.domain_degraded",
    "All nodes of the IMEX domain are connected",
    scope="case",
    family="nvlink",
    sop="SOP-NVL",
    hint="nvidia-imex-ctl -N",
    sources=("NVIDIA IMEX service guide", "NVIDIA/k8s-dra-driver-gpu"),
    action="On the nodes named: systemctl status nvidia-imex, its log, the same nodes_config.cfg and version on all nodes; then restart it there.",
)
def degraded(case: Case, ctx: Context) -> Finding | None:
    """A node of the domain is not ready or not connected: memory cannot be shared with it, and jobs over NVLink between nodes hang or fail.

    No domain at all is normal while no job needs one (a domain that Kubernetes makes for each job); that is not judged.
    """
    if not case.imex_domains:
        raise ctx.missing("state of the IMEX domain")
    domain = case.imex_domains[-1]
    away = {host: status for host, status in domain.nodes.items() if status != "READY"}
    # What a node that is away has with itself and others is told by its own state.
    apart = {
        pair: status
        for pair, status in domain.connections.items()
        if status not in ("CONNECTED", "") and not any(host in pair.split(" -> ") for host in away)
    }
    versions = Counter(domain.versions.values())
    if not away and not apart and len(versions) < 2 and domain.state in (None, "UP"):
        return None
    mixed = len(versions) > 1 or "VERSION_MISMATCH" in domain.connections.values()
    parts = [f"{host} is {status}" for host, status in list(away.items())[:6]]
    parts += [f"{pair} {status}" for pair, status in list(apart.items())[:4]]
    if len(versions) > 1:
        parts.append(f"versions differ: {', '.join(versions)}")
    state = f"domain is {domain.state}" if domain.state not in (None, "UP") else "domain is not whole"
    return ctx.finding(
        "warning" if domain.state in (None, "UP", "DEGRADED") and not apart and len(away) < len(domain.nodes) else "error",
        state + (f": {'; '.join(parts)}" if parts else ""),
        subject=Subject("case", "IMEX"),
        evidence=[
            Evidence(f"{host}: {status}", case.where(domain.ref(f"nodes/{host}"))) for host, status in list(away.items())[:6]
        ]
        or [Evidence(state, case.where(domain.ref("state")))],
        causes=[
            *(
                [Cause("nvidia-imex of different versions", "likely", "rpm -q or dpkg -l nvidia-imex on all nodes")]
                if mixed
                else []
            ),
            Cause(
                "nvidia-imex is stopped there, or its node is down",
                "likely" if away else "possible",
                "systemctl status nvidia-imex",
            ),
            Cause("its port 50000 is blocked between the nodes", "possible", "nc -z <node> 50000"),
            Cause("lists of nodes differ", "possible", "/etc/nvidia-imex/nodes_config.cfg of all nodes"),
        ],
    )
