"""``nvidia-imex-ctl -N`` (also ``-N -j``): the nodes of an IMEX domain (NVLink over several nodes), their states and connections.

Source of the format: NVIDIA IMEX service guide; text outputs in issues of NVIDIA/k8s-dra-driver-gpu.
"""

from __future__ import annotations

import json
import re

from kilter.facts.cluster import ImexDomain
from kilter.intake.captures.bounded import lines
from kilter.intake.fragment import Block, Fragment

_NODE = re.compile(
    r"Node #(?P<index>\d{1,5}) +(?P<own>\* *)?- +(?P<host>\S{1,100}) +(?:\*? *)- +(?P<status>[A-Z_]{2,30})(?: +- Version: *(?P<version>\S*))?"
)
_STATE = re.compile(r"Domain State: (?P<state>[A-Z_]{2,20})")
_COLUMNS = re.compile(r"Nodes From\\To +(?P<numbers>[\d ]{1,2000})$")
_ROW = re.compile(r"(?P<index>\d{1,5}) +(?P<cells>[A-Z!][A-Z! ]{0,2000})$")
_REST = re.compile(
    r"Connectivity Table Legend|(?:[IRNDAC]|!V!|!M!) - |Nodes:$|\d{1,2}/\d{1,2}/\d{4} |READY\b|keepGoing|Finishing|stopAtReady"
)
#: letters of the table -> words of the JSON
_WORDS = {
    "C": "CONNECTED",
    "I": "INVALID",
    "N": "NEVER_CONNECTED",
    "R": "RECOVERING",
    "D": "DISCONNECTED",
    "A": "AUTHENTICATING",
    "!V!": "VERSION_MISMATCH",
    "!M!": "NODE_MAP_MISMATCH",
}


def _json(block: Block, fragment: Fragment) -> None:
    try:
        content = json.loads("\n".join(block.lines))
    except (json.JSONDecodeError, RecursionError):
        fragment.note("nvidia-imex-ctl: the JSON is cut short or has other text in it")
        return
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, dict):
        return
    domain = ImexDomain(origin={"": fragment.ref(block.first_line)})
    domain.state = content["status"] if isinstance(content.get("status"), str) else None
    for index, node in list(nodes.items())[:10_000]:
        if not isinstance(node, dict):
            continue
        host = str(node.get("host") or f"node {index}")
        domain.nodes[host] = str(node.get("status") or "")
        if node.get("version"):
            domain.versions[host] = str(node["version"])
        links = node.get("connections")
        for peer, link in links.items() if isinstance(links, dict) else ():
            far = nodes.get(peer)
            name = str(far.get("host") or f"node {peer}") if isinstance(far, dict) else f"node {peer}"
            if isinstance(link, dict) and link.get("status"):
                domain.connections[f"{host} -> {name}"] = str(link["status"])
    fragment.imex_domains.append(domain)


def parse(block: Block, fragment: Fragment) -> None:
    """``fragment.imex_domains``: state of the domain, of each node (by address) and of each connection that is shown."""
    if next((line for line in block.lines if line.strip()), "").lstrip().startswith("{"):
        _json(block, fragment)
        return
    domain = ImexDomain(origin={"": fragment.ref(block.first_line)})
    hosts: dict[str, str] = {}
    columns: list[str] = []
    for line, raw in lines(block, fragment):
        text = raw.strip()
        if match := _NODE.match(text):
            hosts[match["index"]] = match["host"]
            domain.nodes[match["host"]] = match["status"]
            domain.origin[f"nodes/{match['host']}"] = fragment.ref(line)
            if match["version"]:
                domain.versions[match["host"]] = match["version"]
        elif match := _STATE.match(text):
            domain.put("state", match["state"], fragment.ref(line))
        elif match := _COLUMNS.match(text):
            columns = match["numbers"].split()
        elif columns and (match := _ROW.match(text)):
            for column, cell in zip(columns, match["cells"].split(), strict=False):
                pair = f"{hosts.get(match['index'], match['index'])} -> {hosts.get(column, column)}"
                domain.connections[pair] = _WORDS.get(cell, cell)
        elif text and not _REST.match(text):
            fragment.unparsed(line, raw)
    if domain.nodes or domain.state:
        fragment.imex_domains.append(domain)
    else:
        fragment.note("nvidia-imex-ctl: neither nodes nor a state are shown (cut short?)")
