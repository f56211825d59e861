"""``kilter tune``."""

from __future__ import annotations

import sys

import click

from kilter.cli.common import fail, read_case, use_color, width
from kilter.facts.case import Case, Snapshot
from kilter.facts.plan import Plan, Verdict
from kilter.facts.workload import Workload


class _Group(click.Group):
    """Commands that change this host stand in a module of their own, imported when they are asked for."""

    def _load(self) -> None:
        import kilter.cli.tune_apply  # noqa: F401 (it adds its commands to this group)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._load()
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ("plan", "export"):
            self._load()
        return super().get_command(ctx, cmd_name)


@click.group("tune", cls=_Group)
def command() -> None:
    """Plan changes for a workload and apply them with a way back."""


def _answers(pairs: tuple[str, ...]) -> dict[str, str | int | float | bool]:
    """``name=value`` of the command line, checked against the vocabulary."""
    from kilter.tune.view import vocabulary

    words = vocabulary()
    answers: dict[str, str | int | float | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        fact = words.fact(name.strip())
        if not equals or fact is None:
            hint = words.near(name) if equals else "; expected NAME=VALUE"
            raise fail(f"--answer {pair}: no fact {name!r}{hint}. 'kilter tune plan' prints the names that it asks for")
        answers[fact.name] = _typed(fact.type, fact.values, text.strip(), pair)
    return answers


def _typed(type_: str, values: tuple[str, ...], text: str, pair: str) -> str | int | float | bool:
    if type_ == "bool":
        if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
            raise fail(f"--answer {pair}: expected yes or no")
        return text.lower() in ("yes", "true", "1")
    if type_ == "number":
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            raise fail(f"--answer {pair}: expected a number") from None
    if values and text not in values:
        raise fail(f"--answer {pair}: expected one of {', '.join(values)}")
    return text


def _node(case: Case, name: str | None) -> Snapshot:
    """The node to plan for. Several nodes need a name."""
    snapshots = list(case.snapshots)
    if name is not None:
        found = [s for s in snapshots if s.node == name]
        if not found:
            known = ", ".join(sorted({s.node or "(no name)" for s in snapshots})[:8])
            raise fail(f"--node {name}: no such node in these inputs; there are {known}")
        return found[-1]
    if len({s.node for s in snapshots}) > 1:
        known = ", ".join(sorted({s.node or "(no name)" for s in snapshots})[:8])
        raise fail(f"these inputs hold several nodes ({known}); choose one with --node")
    return snapshots[-1] if snapshots else Snapshot()


def _workload(path: str | None, pairs: tuple[str, ...]) -> Workload:
    workload = Workload()
    if path is not None:
        from kilter.intake.errors import UnusableInput
        from kilter.intake.workload.load import load_workload

        try:
            workload = load_workload(path)
        except UnusableInput as error:
            raise fail(str(error)) from None
    workload.answers |= _answers(pairs)
    return workload


def make_plan(paths: tuple[str, ...], workload_path: str | None, answers: tuple[str, ...], node: str | None) -> Plan:
    from kilter.tune.recommend import plan

    workload = _workload(workload_path, answers)
    case = read_case(paths)
    if paths and not any(i.tools for i in case.inputs):
        raise fail("nothing in these inputs was recognised; 'kilter tune plan --help' tells what is read")
    made = plan(case, _node(case, node), workload)
    if not paths:
        from kilter.tune.apply.host import Host
        from kilter.tune.apply.owners import mark_conflicts

        mark_conflicts(made, Host())
    return made


@command.command("plan")
@click.argument("paths", nargs=-1, metavar="[PATH|DIR|BUNDLE|-]...")
@click.option("-w", "--workload", "workload_path", metavar="FILE", help="Workload, see 'kilter workload init'.")
@click.option("--answer", "answers", multiple=True, metavar="NAME=VALUE", help="Answer a question of an earlier plan.")
@click.option("--node", metavar="NAME", help="Which node, where the inputs hold several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see 'kilter schema plan').")
@click.option("-v", "--verbose", is_flag=True, help="Show everything in full, also what does not apply.")
def plan_command(
    paths: tuple[str, ...], workload_path: str | None, answers: tuple[str, ...], node: str | None, as_json: bool, verbose: bool
) -> None:
    """Rank the changes worth making, with the facts behind each, what others measured, the risk, and what must be asked.

    PATHS are captures as for 'kilter diagnose'; without a path, this host is looked at.

    Exit code: 0 nothing to change, 1 something to change or refused, 2 unusable input.
    """
    found = make_plan(paths, workload_path, answers, node)
    if as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text(found))
    else:
        from kilter.report.plan_text import plan_text

        sys.stdout.write(plan_text(found, width=width(), color=use_color(), verbose=verbose))
    sys.exit(1 if any(a.verdict in (Verdict.RECOMMEND, Verdict.REFUSE, Verdict.CONFLICT) for a in found.advice) else 0)


@command.command("export")
@click.argument("form", metavar="FORM")
@click.argument("paths", nargs=-1, metavar="[PATH|DIR|BUNDLE|-]...")
@click.option("-w", "--workload", "workload_path", metavar="FILE", help="Workload, see 'kilter workload init'.")
@click.option("--answer", "answers", multiple=True, metavar="NAME=VALUE", help="Answer a question of the plan.")
@click.option("--node", metavar="NAME", help="Which node, where the inputs hold several.")
@click.option("--name", default="kilter", show_default=True, help="Name of the profile, role or resource.")
@click.option("-o", "--output", metavar="DIR", help="Write the files below DIR instead of printing them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: files and notes.")
def export_command(
    form: str,
    paths: tuple[str, ...],
    workload_path: str | None,
    answers: tuple[str, ...],
    node: str | None,
    name: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Write the plan as FORM: tuned, ansible, cloud-init, sh, mkosi, containerfile, nodewright, machineconfig, slurm, env.

    What a form cannot say is named on stderr and in --json.
    """
    import re

    from kilter.tune.export import FORMS, export

    if form not in FORMS:
        raise fail(f"no form {form!r}; expected one of {', '.join(FORMS)}")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?", name):
        raise fail(f"--name {name}: expected lower-case letters, digits and -")
    made = export(make_plan(paths, workload_path, answers, node), form, name=name)
    if as_json:
        from kilter.report.plain import json_text

        sys.stdout.write(json_text(made))
        return
    if output is not None:
        _write_tree(output, made.files)
    else:
        for path, text in made.files.items():
            sys.stdout.write(text if len(made.files) == 1 else f"==> {path} <==\n{text}\n")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)


def _write_tree(folder: str, files: dict[str, str]) -> None:
    from pathlib import Path

    from kilter.cli.common import write_file

    for path, text in files.items():
        target = Path(folder, path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail(f"cannot make {target.parent}: {error.strerror or error}") from None
        write_file(str(target), text)
        click.echo(f"wrote {target}", err=True)
