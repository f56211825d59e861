"""Command lines and boot loaders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import Machine, build, tree

from kilter.facts.applied import Outcome
from kilter.facts.plan import Change
from kilter.tune.apply import boot, engine
from kilter.tune.apply.host import Done, Host

KEYS = st.sampled_from(["iommu", "isolcpus", "pci", "quiet", "init_on_alloc", "module_blacklist"])
VALUES = st.sampled_from(["", "pt", "0,1", "realloc", "realloc=off", "a b", "noaer"])
LINES = st.lists(st.tuples(KEYS, VALUES).map(lambda p: boot._quoted(*p)), max_size=8).map(" ".join)


@given(LINES, KEYS, st.none() | VALUES)
def test_a_parameter_is_set_once_and_the_others_stay(line: str, key: str, value: str | None) -> None:
    new = boot.with_parameter(line, key, value)
    assert boot.holds(new, key, value)
    assert [w for w in boot.words(new) if w.partition("=")[0] == key] == (
        [] if value is None else [boot._quoted(key, boot.get(new, key) or "")]
    )
    others = [w for w in boot.words(line) if w.partition("=")[0] != key]
    assert [w for w in boot.words(new) if w.partition("=")[0] != key] == others
    assert boot.with_parameter(new, key, value) == new


@given(st.text(max_size=200))
def test_any_line_is_words(line: str) -> None:
    assert "".join("".join(boot.words(line)).split()) == "".join(line.split())


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ("", "realloc", "realloc"),
        ("noaer", "realloc", "noaer,realloc"),
        ("realloc=off,noaer", "realloc", "realloc,noaer"),
        ("a,b", "b,c", "a,b,c"),
    ],
)
def test_lists_are_merged_not_doubled(old: str, new: str, merged: str) -> None:
    assert boot.merged(old, new) == merged


def bls(root: Path, options: str = "root=UUID=1 ro quiet") -> None:
    build(root)
    for path in ("boot/grub/grub.cfg", "etc/default/grub"):
        (root / path).unlink()
    folder = root / "boot/loader/entries"
    folder.mkdir(parents=True)
    for version in ("5.14.0-1", "5.14.0-9"):
        (folder / f"id-{version}.conf").write_text(
            f"title RHEL\nversion {version}\nlinux /vmlinuz-{version}\noptions {options}\n"
        )
    (root / "etc/kernel").mkdir()
    (root / "etc/kernel/cmdline").write_text(options + "\n")


def test_entries_of_their_own(tmp_path: Path) -> None:
    bls(tmp_path)
    host = Host(tmp_path, Machine(tmp_path))
    before = tree(tmp_path)
    changes = [Change(mechanism="cmdline", key="iommu", value="pt"), Change(mechanism="cmdline", key="quiet", value=None)]
    applied = engine.apply(changes, host)
    assert [r.outcome for r in applied.results] == [Outcome.APPLIED, Outcome.APPLIED]
    for path in (*sorted((tmp_path / "boot/loader/entries").iterdir()), tmp_path / "etc/kernel/cmdline"):
        assert "root=UUID=1 ro iommu=pt\n" in path.read_text()
    assert engine.rollback(host, applied.id).failed == []
    assert tree(tmp_path) == before


def test_grubby_where_the_line_stands_in_grubenv(tmp_path: Path) -> None:
    bls(tmp_path, "$kernelopts $tuned_params")
    machine = Machine(tmp_path)
    calls = []
    machine.COMMANDS = [*machine.COMMANDS, "grubby"]

    def grubby(*argv: str) -> Done:
        calls.append(argv)
        for path in (tmp_path / "boot/loader/entries").iterdir():
            path.write_text(path.read_text().replace("$kernelopts", "$kernelopts iommu=pt"))
        return Done(0, "")

    machine.grubby = grubby
    host = Host(tmp_path, machine)
    before = tree(tmp_path)
    applied = engine.apply([Change(mechanism="cmdline", key="iommu", value="pt")], host)
    assert calls == [("--update-kernel=ALL", "--args=iommu=pt")]
    assert applied.results[0].outcome is Outcome.APPLIED
    assert engine.rollback(host, applied.id).failed == []
    assert tree(tmp_path) == before


def test_rpm_ostree(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "run/ostree-booted").write_text("")
    machine = Machine(tmp_path)
    machine.COMMANDS = [*machine.COMMANDS, "rpm-ostree"]
    kargs = ["root=UUID=1", "pci=noaer", "quiet"]

    def rpm_ostree(verb: str, *flags: str) -> Done:
        for flag in flags:
            action, _, word = flag.partition("=")
            kargs.remove(word) if action == "--delete" else kargs.append(word)
        return Done(0, " ".join(kargs))

    machine.rpm_ostree = rpm_ostree
    host = Host(tmp_path, machine)
    applied = engine.apply([Change(mechanism="cmdline", key="pci", value="realloc")], host)
    assert applied.results[0].outcome is Outcome.APPLIED
    assert kargs == ["root=UUID=1", "quiet", "pci=noaer,realloc"]
    assert engine.rollback(host, applied.id).failed == []
    assert sorted(kargs) == ["pci=noaer", "quiet", "root=UUID=1"]


def test_without_a_known_boot_loader(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "boot/grub/grub.cfg").unlink()
    (difference,) = engine.diff([Change(mechanism="cmdline", key="iommu", value="pt")], Host(tmp_path, Machine(tmp_path)))
    assert difference.outcome is Outcome.SKIPPED
    assert "no boot loader" in difference.why


def test_a_parameter_that_no_file_names_is_said(host: Host) -> None:
    menu = host.real("/boot/grub/grub.cfg")
    menu.chmod(0o644)
    menu.write_text(menu.read_text().replace("isolcpus=0,1", "isolcpus=0,1 hidden=1"))
    (difference,) = engine.diff([Change(mechanism="cmdline", key="hidden", value=None)], host)
    assert difference.outcome is Outcome.SKIPPED
    assert "in none of the files" in difference.why
