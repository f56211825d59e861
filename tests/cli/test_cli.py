"""The command line as a user meets it: exit codes, help, bad input, formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from kilter.__main__ import help_text
from kilter.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
HEALTHY = str(DATA / "s013-8xh100-vm-xml-570" / "nvidia-smi-qx.xml")
FAULT = str(DATA / "s018-xid119-gsp-timeout-h100" / "dmesg.txt")


def kilter(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kilter", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        check=False,
        timeout=60,
    )


def test_help_needs_no_heavy_import() -> None:
    code = "import sys; sys.argv = ['kilter', '--help']; from kilter.__main__ import main; main(); print([m for m in ('click', 'msgspec', 'yaml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == help_text() + "[]\n"


def test_help_and_version() -> None:
    assert kilter().stdout == kilter("--help").stdout == help_text()
    assert kilter("--version").stdout.startswith("kilter ")
    for name, command in COMMANDS.items():
        done = kilter(name, "--help")
        assert done.returncode == 0
        assert "Usage: kilter " + name in done.stdout
        assert command.summary in help_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("diagnose", HEALTHY), 0),
        (("diagnose", FAULT), 1),
        (("diagnose", "--fail-on", "info", HEALTHY), 1),
        (("diagnose", "--fail-on", "critical", FAULT), 1),
        (("diagnose", str(DATA / "s019-xid13-43-user-fault" / "dmesg.txt")), 0),
        (("diagnose", "--fail-on", "warning", str(DATA / "s019-xid13-43-user-fault" / "dmesg.txt")), 1),
        (("diagnose", "/no/such/file"), 2),
        (("diagnose", "--fail-on", "nonsense", HEALTHY), 2),
        (("nonsense",), 2),
        (("explain", "no such topic"), 2),
        (("topo", FAULT), 2),
        (("snapshot", "--timeout", "-1"), 2),
        (("snapshot", "--root", "/no/such/dir"), 2),
        (("snapshot", "-o", "/no/such/dir/file"), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    done = kilter(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code == 2:
        assert done.stderr.strip()


def test_unrecognised_input_is_an_input_error_that_shows_what_it_saw() -> None:
    done = kilter("diagnose", "-", stdin="hello world\n")
    assert done.returncode == 2
    assert "1 of 1 lines, e.g. 1: hello world" in done.stdout
    assert "nothing in these inputs was recognised" in done.stderr


def test_misspelt_command_and_topic_are_suggested() -> None:
    assert "diagnose" in kilter("diagnoze").stderr
    assert "gpu.throttle.thermal" in kilter("explain", "gpu.throttle.termal").stderr


def test_a_paste_on_standard_input() -> None:
    done = kilter("diagnose", "-", stdin="[1.0] NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=x, GPU has fallen off the bus.\n")
    assert done.returncode == 1
    assert "gpu.xid.79" in done.stdout
    assert "<stdin>:1" in done.stdout


@pytest.mark.parametrize(
    "path",
    [
        HEALTHY,
        FAULT,
        str(DATA / "s016-h100-xe9680-lspci-acs-harmless" / "lspci-vvv.txt"),
        str(DATA / "s059-xid79-rtx4090-fell-off-bus"),
    ],
)
@pytest.mark.parametrize("extra", [(), ("-v",)])
def test_terminal_output_fits_100_columns_without_colour(path: str, extra: tuple[str, ...]) -> None:
    for line in kilter("diagnose", path, *extra).stdout.splitlines():
        assert len(line) <= 100, line
        assert "\x1b" not in line


def test_json_of_diagnosis_follows_its_published_schema() -> None:
    schema = json.loads(kilter("schema", "diagnosis").stdout)
    document = json.loads(kilter("diagnose", "--json", FAULT).stdout)
    jsonschema.validate(document, schema)
    assert document["verdict"] == "critical"
    assert [f["id"] for f in document["findings"]] == ["gpu.xid.119"]
    assert document["inputs"][0]["tools"] == ["kernel log"]
    assert {c["rule"] for c in document["checks"]} >= {"gpu.row_remap.failure", "ib.port_down"}


def test_json_of_snapshot_follows_its_schema_and_diagnoses_the_same(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    assert kilter("snapshot", "-o", str(path)).returncode == 0
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads(kilter("schema", "snapshot").stdout))
    assert document["schema"] == 1
    assert document["cpu"]["logical"]
    live = json.loads(kilter("diagnose", "--json").stdout)
    offline = json.loads(kilter("diagnose", "--json", str(path)).stdout)
    assert {f["id"] for f in live["findings"]} == {f["id"] for f in offline["findings"]}
    assert {c["rule"]: c["not_checked"] > 0 for c in live["checks"]} == {
        c["rule"]: c["not_checked"] > 0 for c in offline["checks"]
    }


def test_html_report_is_one_file_without_outside_loads(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = kilter("diagnose", "--html", str(path), FAULT)
    assert done.returncode == 1
    text = path.read_text()
    assert "gpu.xid.119" in text
    assert "src=" not in text
    assert 'rel="stylesheet"' not in text


def test_collector_script_is_printed_and_its_archive_is_read(tmp_path: Path) -> None:
    script = tmp_path / "collect.sh"
    script.write_text(kilter("snapshot", "--script").stdout)
    archive = tmp_path / "node.tar.gz"
    subprocess.run(["sh", str(script), str(archive)], check=True, capture_output=True, timeout=120, cwd=tmp_path)
    done = kilter("diagnose", "--json", str(archive))
    document = json.loads(done.stdout)
    assert len(document["nodes"]) == 1
    assert {"sysfs", "lscpu"} <= {t for i in document["inputs"] for t in i["tools"]}
    assert not [note for i in document["inputs"] for note in i.get("notes", []) if "report" in note]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    assert "_KILTER_COMPLETE" in kilter("completion", shell).stdout


def test_completion_offers_commands() -> None:
    done = kilter(_KILTER_COMPLETE="bash_complete", COMP_WORDS="kilter dia", COMP_CWORD="1")
    assert "diagnose" in done.stdout or done.returncode == 0


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m kilter diagnose -v {HEALTHY} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("node")


def test_topology_text_and_svg(tmp_path: Path) -> None:
    lspci = str(DATA / "s016-h100-xe9680-lspci-acs-harmless" / "lspci-vvv.txt")
    done = kilter("topo", lspci)
    assert done.returncode == 0
    assert "PIX" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert kilter("topo", "--ascii", lspci).stdout.isascii()
    svg = tmp_path / "t.svg"
    assert kilter("topo", "--svg", str(svg), lspci).returncode == 0
    assert svg.read_text().startswith("<svg")
    document = json.loads(kilter("topo", "--json", lspci).stdout)
    jsonschema.validate(document, json.loads(kilter("schema", "topology").stdout))
