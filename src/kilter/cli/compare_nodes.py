"""``kilter compare-nodes``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, read_case, use_color, width


@click.command("compare-nodes")
@click.argument("paths", nargs=-1, required=True, metavar="DIR|FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Show what differs between nodes that should be alike: settings, versions, sizes, and numbers far from their peers'.

    Input as for 'kilter diagnose': snapshots ('kilter snapshot -o FILE' on every node), or one folder of captures a node.

    Exit code: 0 alike, 1 drift or an outlier that matters (a warning), 2 unusable input.
    """
    from kilter.diagnose.fleet.compare import outliers
    from kilter.diagnose.fleet.drift import compare_config
    from kilter.diagnose.fleet.numbers import METRICS
    from kilter.diagnose.fleet.profile import kinds, latest, profiles

    nodes = latest(profiles(read_case(paths).snapshots))
    if len(nodes) < 2:
        raise fail(f"expected facts of two nodes or more, found {len(nodes)}; give one snapshot or one folder of captures a node")
    compared = compare_config(nodes)
    if not compared.facts:
        raise fail(f"{len(nodes)} nodes have no fact in common; collect the same on each: kilter snapshot -o <node>.json")
    far = outliers(nodes)
    if as_json:
        from kilter.report.plain import json_text

        document = {"schema": 1, "configuration": compared, "outliers": far}
        sys.stdout.write(json_text(document))
    else:
        from kilter.diagnose.rules.fleet import outlier_text
        from kilter.report.fleet_text import DriftRow, comparison_text

        several = len(kinds(nodes)) > 1
        rows = []
        for drift in compared.drifts:
            if drift.common is None:
                common = f"no common value ({drift.known} nodes)"
                odd = [(_few(camp.nodes, camp.count), camp.value) for camp in drift.camps]
            else:
                common = f"{drift.common} ({drift.common_count} of {drift.known})"
                values: dict[str, list[str]] = {}
                for one in drift.odd:
                    values.setdefault(one.value, []).append(one.node)
                odd = [(_few(names, len(names)), value) for value, names in values.items()]
            kind = (drift.kind or "no GPU known") if several else ""
            rows.append(DriftRow(drift.area, drift.fact, drift.severity == "warning", common, odd, kind))
        told = [(f"{o.node} {o.subject}".strip(), outlier_text(o)) for o in far]
        gaps = [(gap.area, gap.facts, gap.nodes) for gap in compared.gaps]
        sys.stdout.write(
            comparison_text(rows, told, gaps, nodes=len(nodes), facts=compared.facts, width=width(), color=use_color())
        )
    is_loud = any(d.severity == "warning" for d in compared.drifts) or any(METRICS[o.metric].severity == "warning" for o in far)
    sys.exit(1 if is_loud else 0)


def _few(names: list[str], count: int) -> str:
    return ", ".join(names[:8]) + (f" and {count - 8} more" if count > 8 else "")
