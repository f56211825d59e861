"""``kilter lint``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilter.cli.common import fail, use_color, width, write_file

if TYPE_CHECKING:
    from kilter.facts.workload import Workload
    from kilter.tune.lint.report import Report

_MAX_BYTES = 16 << 20
_SUFFIXES = (
    ".sh",
    ".bash",
    ".sbatch",
    ".slurm",
    ".job",
    ".yaml",
    ".yml",
    ".env",
    ".conf",
    ".py",
    ".dockerfile",
    ".log",
    ".toml",
    ".json",
)
#: GPU -> compute capability times 10 (knowledge/tables/gpus.yaml).
_ARCHITECTURES = {
    "v100": 70,
    "t4": 75,
    "a100": 80,
    "a10": 86,
    "l40s": 89,
    "h100": 90,
    "h200": 90,
    "h800": 90,
    "h20": 90,
    "b200": 100,
    "gb200": 100,
    "b300": 103,
    "gb300": 103,
}


def _files(paths: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        for folder, names, files in os.walk(path):
            names[:] = sorted(n for n in names if not n.startswith("."))
            wanted = [f for f in sorted(files) if f.endswith(_SUFFIXES) or "Dockerfile" in f or "." not in f]
            # Links that lead nowhere, sockets and pipes are not what was asked for.
            found += [path for f in wanted if os.path.isfile(path := os.path.join(folder, f))]
    return found


def _text(path: str) -> str:
    from kilter.intake.encoding import decode

    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES)
    except OSError as error:
        raise fail(f"{path}: {error.strerror or error}") from None
    return decode(data)


@click.command("lint")
@click.argument("paths", nargs=-1, required=True, metavar="[FILE|DIR|-]...")
@click.option("--nccl", default="", metavar="VERSION", help="NCCL that the settings are for, as 2.27.5.")
@click.option("--torch", default="", metavar="VERSION", help="PyTorch that the settings are for.")
@click.option("--vllm", default="", metavar="VERSION", help="vLLM that the flags are for; else that of the image's tag.")
@click.option("--sglang", default="", metavar="VERSION", help="SGLang that the flags are for.")
@click.option("--gpu", default="", metavar="NAME", help="GPU that the job runs on, as h100.")
@click.option("-w", "--workload", "workload_path", metavar="FILE", help="Workload, see 'kilter workload init'.")
@click.option("--fix", is_flag=True, help="Print a patch (for 'patch -p1') instead of reports.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of printing.")
@click.option("-q", "--quiet", is_flag=True, help="Leave notes out.")
def command(
    paths: tuple[str, ...],
    nccl: str,
    torch: str,
    vllm: str,
    sglang: str,
    gpu: str,
    workload_path: str | None,
    fix: bool,
    as_sarif: bool,
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Check what scripts, batch files, Dockerfiles, manifests, /etc/nccl.conf or NCCL logs set: for THIS version.

    Exit code: 0 clean or notes only, 1 warnings or errors, 2 usage or unreadable input.
    """

    from kilter.tune.lint.judge import Target, counts, judge
    from kilter.tune.lint.settings import settings

    if nccl and not re.fullmatch(r"2\.\d+(?:\.\d+)?(?:[-+].*)?", nccl):
        raise fail(f"--nccl {nccl}: expected a version such as 2.27.5")
    for option, version in (("--torch", torch), ("--vllm", vllm), ("--sglang", sglang)):
        if version and not re.fullmatch(r"\d+\.\d+(?:\.\d+)?\S*", version):
            raise fail(f"{option} {version}: expected a version such as 0.10.2")
    if gpu and gpu.lower() not in _ARCHITECTURES:
        raise fail(f"--gpu {gpu}: expected one of {', '.join(_ARCHITECTURES)}")
    architecture = _ARCHITECTURES.get(gpu.lower())
    reports: list[Report] = []
    texts: dict[str, str] = {}
    from kilter.tune.lint.flags import judge_flags

    files = _files(paths)
    for path in files:
        text = _text(path)
        name = "standard input" if path == "-" else path
        found = settings(text, name)
        work = _workload(workload_path, text)
        if not found and work is None:
            continue
        texts[name] = text
        reports += judge(found, Target(nccl=nccl or _logged(text), torch=torch, gpu_sm=architecture), work)
        if work is not None:
            reports += judge_flags(work, text, name, {"vllm": vllm, "sglang": sglang}.get(work.framework or "", ""))
    if quiet:
        reports = [r for r in reports if r.severity != "note"]
    bad = counts(reports)
    _print(_rendered(reports, texts, bad, fix=fix, as_sarif=as_sarif, as_json=as_json, files=len(files)), output)
    sys.exit(1 if bad["error"] or bad["warning"] else 0)


def _logged(text: str) -> str:
    """The version that an NCCL log names."""

    match = re.search(r"NCCL version (2\.\d+\.\d+)", text)
    return match[1] if match else ""


def _workload(path: str | None, text: str) -> Workload | None:
    from kilter.intake.errors import UnusableInput

    if path is not None:
        from kilter.intake.workload.load import load_workload

        try:
            return load_workload(path)
        except UnusableInput as error:
            raise fail(str(error)) from None
    if not re.search(r"CUDA_DEVICE_MAX_CONNECTIONS|vllm|sglang", text):
        return None
    from kilter.intake.workload.read import read_sources

    try:
        return read_sources([], text)
    except UnusableInput:
        return None


def _rendered(
    reports: list[Report], texts: dict[str, str], bad: dict[str, int], *, fix: bool, as_sarif: bool, as_json: bool, files: int
) -> str:
    from kilter import __version__
    from kilter.report.plain import json_text

    if fix:
        from kilter.tune.lint.output import patch

        return patch(texts, reports)
    if as_sarif:
        from kilter.tune.lint.output import sarif

        return json_text(sarif(reports, __version__))
    if as_json:
        return json_text(reports)
    from kilter.report.lint_text import lint_text

    return lint_text(reports, bad, files, width=width(), color=use_color())


def _print(text: str, output: str | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text)
