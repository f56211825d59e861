"""``kilter workload``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, use_color, width, write_file
from kilter.facts.workload import KINDS, Workload


@click.group("workload")
def command() -> None:
    """Describe a job: from a model's config.json, a launch line, a serving command, or answers."""


def _read(sources: tuple[str, ...], line: str, settings: tuple[str, ...]) -> Workload:
    from kilter.intake.errors import UnusableInput
    from kilter.intake.workload.read import read_sources

    try:
        work = read_sources(list(sources), line)
    except UnusableInput as error:
        raise fail(str(error)) from None
    for setting in settings:
        _set(work, setting)
    return work


def _set(work: Workload, setting: str) -> None:
    """``kind=rl``, ``layout.tp=8``, ``model.name=...``, ``environment.NCCL_DEBUG=WARN``."""
    import msgspec

    from kilter.facts.workload import Model

    path, equals, text = setting.partition("=")
    head, dot, rest = path.strip().partition(".")
    if not equals or head not in Workload.__struct_fields__:
        raise fail(f"--set {setting}: expected FIELD=VALUE; fields are {', '.join(Workload.__struct_fields__)}")
    value: object = (
        int(text)
        if text.lstrip("-").isdigit()
        else {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    )
    tree = msgspec.to_builtins(work)
    if dot:
        if head == "model" and work.model is None:
            tree["model"] = msgspec.to_builtins(Model())
        node = tree.setdefault(head, {})
        if not isinstance(node, dict):
            raise fail(f"--set {setting}: {head} has no fields")
        known = {"model": Model.__struct_fields__, "layout": type(work.layout).__struct_fields__}.get(head)
        if known is not None and rest not in known:
            raise fail(f"--set {setting}: {head} has no field {rest!r}; fields are {', '.join(known)}")
        node[rest] = text if head in ("environment", "flags") else value
    else:
        tree[head] = value
    try:
        changed = msgspec.convert(tree, Workload)
    except msgspec.ValidationError as error:
        raise fail(f"--set {setting}: {error}") from None
    if changed.kind is not None and changed.kind not in KINDS:
        raise fail(f"--set {setting}: expected one of {', '.join(KINDS)}")
    for name in Workload.__struct_fields__:
        setattr(work, name, getattr(changed, name))


def _ask(work: Workload) -> None:
    """The few questions that decide most, on a terminal."""
    if work.kind is None:
        work.kind = click.prompt("What does the job do", type=click.Choice(KINDS), err=True)
    if work.framework is None:
        work.framework = click.prompt("Framework or engine (megatron, torchtitan, vllm, ...)", default="", err=True) or None
    if work.nodes is None:
        work.nodes = click.prompt("Nodes", type=int, default=1, err=True)
        work.multi_node = (work.nodes or 1) > 1
    if work.gpus is None:
        work.gpus = click.prompt("GPUs in all", type=int, default=8 * (work.nodes or 1), err=True)
    if work.kind == "inference" and work.latency_sensitive is None:
        work.answers["workload.latency_sensitive"] = click.confirm("Is a percentile of latency (TTFT, ITL) a goal", err=True)


@command.command("init")
@click.argument("sources", nargs=-1, metavar="[FILE|-]...")
@click.option("--command", "line", default="", metavar="TEXT", help="A launch line, in quotes.")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Say or correct a field: kind=rl, layout.tp=8.")
@click.option("-o", "--output", metavar="FILE", help="Write the file instead of printing it.")
def init_command(sources: tuple[str, ...], line: str, settings: tuple[str, ...], output: str | None) -> None:
    """Write a workload file from what describes the job. Without a source, a terminal is asked a few questions."""
    from kilter.intake.workload.load import dump_workload

    work = _read(sources, line, settings)
    if not sources and not line and not settings:
        if not sys.stdin.isatty():
            raise fail(
                "nothing to read: name a config.json, a launch script or '--command \"vllm serve ...\"', or run it on a terminal"
            )
        _ask(work)
    text = dump_workload(work)
    missing = [name for name in ("kind", "framework", "nodes", "gpus") if getattr(work, name) is None]
    if missing:
        text += f"# Not known: {', '.join(missing)}. --set FIELD=VALUE says it.\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_file(output, text)


@command.command("show")
@click.argument("sources", nargs=-1, metavar="[FILE|-]...")
@click.option("--command", "line", default="", metavar="TEXT", help="A launch line, in quotes.")
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Say or correct a field.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see 'kilter schema workload').")
def show_command(sources: tuple[str, ...], line: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Show a job: model, layout, what its GPUs say to each other, and what contradicts itself.

    Exit code: 0 fine, 1 something contradicts itself, 2 unusable input.
    """
    from kilter.intake.workload.messages import checkpoint_bytes, contradictions, messages
    from kilter.intake.workload.model_config import kv_bytes_per_token

    if not sources and not line and not settings:
        raise fail("nothing to show: name a workload file, a config.json, a launch script, or '--command \"vllm serve ...\"'")
    work = _read(sources, line, settings)
    problems = contradictions(work)
    if as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text(work))
    else:
        from kilter.report.workload_text import workload_text

        kv = kv_bytes_per_token(work.model) if work.model is not None and work.kind in (None, "inference", "rl") else None
        text = workload_text(
            work,
            messages=messages(work),
            kv_bytes=kv,
            checkpoint=checkpoint_bytes(work),
            problems=problems,
            width=width(),
            color=use_color(),
        )
        sys.stdout.write(text)
    sys.exit(1 if problems else 0)
