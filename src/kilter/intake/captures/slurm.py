"""Slurm's outputs: ``sinfo``, ``squeue``, ``scontrol show node|job``, ``sdiag``, in any of their forms. The first line tells which."""

from __future__ import annotations

from kilter.intake.captures import slurm_json, slurm_show, slurm_tables
from kilter.intake.captures import slurm_values as values
from kilter.intake.captures.bounded import lines as bounded
from kilter.intake.fragment import Block, Fragment

#: Rows of an ``-O`` format with many wide columns are long.
_MAX_LINE = 1 << 14


def parse(block: Block, fragment: Fragment) -> None:
    """Nodes go to ``fragment.cluster_nodes``, jobs to ``fragment.cluster_jobs``."""
    first = next((line for line in block.lines if line.strip(" *")), "").lstrip()
    if first.startswith("{"):
        slurm_json.parse(block, fragment)
    elif first.startswith("NodeName="):
        slurm_show.parse_nodes(block, fragment)
    elif first.startswith("JobId="):
        slurm_show.parse_jobs(block, fragment)
    elif first.startswith("sdiag "):
        slurm_show.parse_sdiag(block, fragment)
    else:
        _table(block, fragment)


def _table(block: Block, fragment: Fragment) -> None:
    """One table or several; rows above the first header have none."""
    header = ""
    rows: list[slurm_tables.Row] = []
    for number, text in bounded(block, fragment, limit=_MAX_LINE):
        if not text.strip():
            continue
        if (taken := values.printed_at(text[:64]) if len(text) < 64 else None) is not None:
            fragment.source.time = taken
        elif _is_header(text):
            _read(header, rows, fragment)
            header, rows = text, []
        else:
            rows.append((number, text))
    _read(header, rows, fragment)


def _read(header: str, rows: list[slurm_tables.Row], fragment: Fragment) -> None:
    if header:
        slurm_tables.read(header, rows, fragment)
    elif rows:
        slurm_tables.read_headerless(rows, fragment)


def _is_header(line: str) -> bool:
    """Headers are in capitals and name a column that tells nodes or jobs apart."""
    names = {name.strip().strip("#") for name in line.replace("|", " ").replace(";", " ").replace(",", " ").split()}
    return line == line.upper() and bool(
        names & {"NODELIST", "NODELIST(REASON)", "JOBID", "HOSTNAMES", "NODE_ADDR", "ARRAY_JOB_ID", "PARTITION"}
    )
