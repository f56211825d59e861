"""``kilter tune diff``, ``apply``, ``status``, ``verify``, ``confirm`` and ``rollback``: this host."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from kilter.cli.common import fail, use_color, width
from kilter.cli.tune import command, make_plan
from kilter.facts.plan import Advice, Change, Plan, Verdict

_TO_DO = (Verdict.RECOMMEND, Verdict.REFUSE)


def _read_changes(path: str) -> list[Change]:
    """Changes of a JSON file: a list of them, or a plan as 'kilter tune plan --json' prints it."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise fail(f"{path}: {error.strerror or error}") from None
    try:
        if data.lstrip().startswith(b"{"):
            return _chosen(msgspec.json.decode(data, type=Plan), (), True)[0]
        return msgspec.json.decode(data, type=list[Change])
    except msgspec.DecodeError as error:
        raise fail(f"{path}: expected a plan or a list of changes as JSON (see 'kilter schema plan'): {error}") from None


def _chosen(plan: Plan, only: tuple[str, ...], all_: bool) -> tuple[list[Change], list[Advice]]:
    """(changes to write, advice that is left out because it belongs to the job)."""
    known = {advice.id for advice in plan.advice}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise fail(f"--only {unknown[0]}: no parameter of that name; 'kilter tune plan' prints the ids")
    changes: list[Change] = []
    of_the_job = []
    for advice in plan.advice:
        if advice.verdict not in _TO_DO or (only and advice.id not in only) or not (only or all_ or advice.gain > 0):
            continue
        if any(change.mechanism == "env" for change in advice.changes) and advice.id not in only:
            of_the_job.append(advice)
            continue
        changes += [c for c in advice.changes if (c.mechanism, c.key) not in {(o.mechanism, o.key) for o in changes}]
    return changes, of_the_job


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say what is to be written."""
    for option in (
        click.option(
            "--changes", metavar="FILE", help="Changes or a plan as JSON ('-' reads standard input), instead of planning."
        ),
        click.option("--only", multiple=True, metavar="ID", help="Only this parameter of the plan (repeat it for several)."),
        click.option("--all", "all_", is_flag=True, help="Also hygiene, of which no gain is known."),
        click.option("-w", "--workload", "workload_path", metavar="FILE", help="Workload, see 'kilter workload init'."),
        click.option("--answer", "answers", multiple=True, metavar="NAME=VALUE", help="Answer a question of the plan."),
    ):
        function = option(function)
    return function


def _wanted(
    changes: str | None, only: tuple[str, ...], all_: bool, workload: str | None, answers: tuple[str, ...]
) -> list[Change]:
    if changes is not None:
        return _read_changes(changes)
    chosen, of_the_job = _chosen(make_plan((), workload, answers, None), only, all_)
    if of_the_job:
        names = ", ".join(advice.title for advice in of_the_job)
        click.echo(f"Left out, since they belong to the job and not to the machine: {names} (kilter tune export env)", err=True)
    return chosen


def _print(document: msgspec.Struct | list[Any], text: str, as_json: bool) -> None:
    if as_json:
        from kilter.report.plain import json_text

        text = json_text(document)
    sys.stdout.write(text)


def _seconds(text: str) -> float:
    """``300``, ``300s``, ``5m`` or ``1h``."""
    match = re.fullmatch(r"(\d{1,6})(s|m|h|)", text.strip())
    if match is None or int(match[1]) == 0:
        raise fail(f"--confirm-within {text}: expected a time such as 5m or 300s")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@command.command("diff")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff_command(
    changes: str | None, only: tuple[str, ...], all_: bool, workload_path: str | None, answers: tuple[str, ...], as_json: bool
) -> None:
    """Show what 'kilter tune apply' would write on this host: files line by line, values, commands, and who else sets them.

    Exit code: 0 nothing to write, 1 something to write or refused, 2 usage error.
    """
    from kilter.facts.applied import Outcome
    from kilter.report.apply_text import diff_text
    from kilter.tune.apply.engine import diff
    from kilter.tune.apply.host import Host

    found = diff(_wanted(changes, only, all_, workload_path, answers), Host())
    _print(found, diff_text(found, width=width(), color=use_color()), as_json)
    sys.exit(1 if any(one.outcome in (Outcome.APPLIED, Outcome.REFUSED) for one in found) else 0)


@command.command("apply")
@source_options
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would be written and end; the same as 'kilter tune diff'.")
@click.option("--confirm-within", metavar="TIME", help="Roll back by itself unless 'kilter tune confirm' comes within TIME (5m).")
@click.option("--no-sentinel", is_flag=True, help="Let nothing watch over the next boot when the boot line changes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def apply_command(
    context: click.Context,
    changes: str | None,
    only: tuple[str, ...],
    all_: bool,
    workload_path: str | None,
    answers: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    confirm_within: str | None,
    no_sentinel: bool,
    as_json: bool,
) -> None:
    """Write the plan, or the changes of a file, on this host, with a way back.

    What was there is on disk before anything is written. Without --yes the differences are shown and a question is asked.

    Exit code: 0 all written or right already, 1 something failed, was refused or needs --yes, 2 usage error.
    """
    from kilter.facts.applied import Outcome
    from kilter.report.apply_text import applied_text, diff_text
    from kilter.tune.apply import engine
    from kilter.tune.apply.host import Host

    seconds = None if confirm_within is None else _seconds(confirm_within)
    wanted = _wanted(changes, only, all_, workload_path, answers)
    host = Host()
    if dry_run or not yes:
        found = engine.diff(wanted, host)
        _print(found, diff_text(found, width=width(), color=use_color()), as_json)
        if dry_run or not any(one.outcome is Outcome.APPLIED for one in found):
            sys.exit(1 if any(one.outcome in (Outcome.APPLIED, Outcome.REFUSED) for one in found) else 0)
        if not sys.stdin.isatty():
            click.echo("Nothing was written: say --yes to write it.", err=True)
            sys.exit(1)
        if not click.confirm("Write this?", err=True):
            sys.exit(1)
    try:
        applied = engine.apply(wanted, host, confirm_within=seconds, sentinel=not no_sentinel, progress=_progress())
    except engine.ApplyError as error:
        raise fail(str(error)) from None
    _print(applied, applied_text(applied, width=width(), color=use_color()), as_json)
    sys.exit(1 if applied.count(Outcome.FAILED) or applied.count(Outcome.REFUSED) else 0)


def _progress() -> Callable[[str], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(what: str) -> None:
        from kilter.report.plain import plain

        sys.stderr.write(f"\r\x1b[K{plain(what)[:80]}\r")
        sys.stderr.flush()

    return show


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_command(as_json: bool) -> None:
    """List what kilter has changed on this host, the oldest first.

    Exit code: 0, or 1 where a change was cut short and waits for its rollback.
    """
    from kilter.report.apply_text import status_text
    from kilter.tune.apply.engine import status
    from kilter.tune.apply.host import Host

    found = status(Host())
    _print(found, status_text(found, width=width(), color=use_color()), as_json)
    sys.exit(1 if any(one.state in ("applying", "failed", "unknown") for one in found) else 0)


@command.command("verify")
@click.argument("change", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(change: str | None, as_json: bool) -> None:
    """Say whether a change (the newest that stands) still holds: in force, and for the next boot.

    Exit code: 0 it holds, 1 something has drifted, 2 there is no such change.
    """
    from kilter.report.apply_text import verify_text
    from kilter.tune.apply import engine
    from kilter.tune.apply.host import Host

    try:
        found = engine.verify(Host(), change)
    except engine.ApplyError as error:
        raise fail(str(error)) from None
    _print(found, verify_text(found, width=width(), color=use_color()), as_json)
    sys.exit(0 if found.holds else 1)


@command.command("confirm")
@click.argument("change", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def confirm_command(change: str | None, as_json: bool) -> None:
    """Keep a change that was applied with --confirm-within."""
    from kilter.report.apply_text import status_text
    from kilter.tune.apply import engine
    from kilter.tune.apply.host import Host

    try:
        found = engine.confirm(Host(), change)
    except engine.ApplyError as error:
        raise fail(str(error)) from None
    _print(found, status_text([found], width=width(), color=use_color()), as_json)


@command.command("rollback")
@click.argument("change", required=False)
@click.option("--force", is_flag=True, help="Put back also what somebody else has changed since.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rollback_command(change: str | None, force: bool, as_json: bool) -> None:
    """Put back what was there before a change (the newest that stands or was cut short), byte for byte.

    Exit code: 0 all is back, 1 something was left or failed, 2 there is no such change.
    """
    from kilter.report.apply_text import rollback_text
    from kilter.tune.apply import engine
    from kilter.tune.apply.host import Host

    try:
        found = engine.rollback(Host(), change, force=force, progress=_progress())
    except engine.ApplyError as error:
        raise fail(str(error)) from None
    _print(found, rollback_text(found, width=width(), color=use_color()), as_json)
    sys.exit(1 if found.left or found.failed else 0)
