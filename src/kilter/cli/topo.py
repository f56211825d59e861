"""``kilter topo``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, read_case, use_color, width, write_file


@click.command("topo")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--svg", "svg_path", metavar="FILE", help="Write an SVG picture instead of text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
def command(paths: tuple[str, ...], svg_path: str | None, as_json: bool, ascii_only: bool) -> None:
    """Draw a node: NUMA nodes, the PCIe tree, GPUs, NVLink and NVSwitch, NICs, and how far GPUs and NICs are apart.

    Input as for 'kilter diagnose': lspci -vvv, nvidia-smi topo -m, nvidia-smi -q -x, kilter's snapshot; none = this host.
    """
    from kilter.report.topology import build

    case = read_case(paths)
    drawn = [s for s in case.snapshots if s.pci or s.accelerators or s.topology or s.rdma]
    if not drawn:
        raise fail(
            "nothing to draw: expected a PCI listing (lspci -vvv), nvidia-smi topo -m, nvidia-smi -q, or a kilter snapshot"
        )
    if svg_path:
        from kilter.report.plain import plain
        from kilter.report.topology_svg import render_svg

        if len(drawn) > 1:
            raise fail(f"{len(drawn)} nodes in the input: one picture shows one node; name the files of one")
        write_file(svg_path, render_svg(build(drawn[0])))
        sys.stdout.write(f"wrote {plain(svg_path)}\n")
    elif as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text([build(s) for s in drawn]))
    else:
        from kilter.report.topology_text import render_text

        unicode = not ascii_only and "utf" in (sys.stdout.encoding or "").lower()
        sys.stdout.write(
            "\n\n".join(render_text(build(s), width=width(), color=use_color(), unicode=unicode) for s in drawn) + "\n"
        )
