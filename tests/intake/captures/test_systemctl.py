"""systemctl status and is-active, and Fabric Manager's lines in the journal."""

import pytest
from hypothesis import given, settings

from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

FAILED = """\
\u00d7 nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/usr/lib/systemd/system/nvidia-fabricmanager.service; enabled; preset: enabled)
     Active: failed (Result: timeout) since Wed 2026-01-28 04:11:09 UTC; 2 weeks 6 days ago
   Main PID: 4711 (code=killed, signal=TERM)
        CPU: 2.204s

Jan 28 04:11:09 dgx nv-fabricmanager[4711]: fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with driver version 530.41.03.
Jan 28 04:11:09 dgx systemd[1]: nvidia-fabricmanager.service: Failed with result 'timeout'.
"""
RUNNING = """\
\u25cf nvidia-imex.service - NVIDIA IMEX service
     Loaded: loaded (/usr/lib/systemd/system/nvidia-imex.service; enabled; preset: enabled)
     Active: active (running) since Thu 2026-02-26 08:06:00 UTC; 5min ago
   Main PID: 811 (nvidia-imex)
      Tasks: 12 (limit: 98304)
     CGroup: /system.slice/nvidia-imex.service
             \u2514\u2500811 /usr/bin/nvidia-imex -c /etc/nvidia-imex/config.cfg
"""


def read(text):
    fragment = parse_text("systemctl", text)
    check_references(fragment, text)
    return fragment


def whole(text):
    fragments, _ = read_text("pasted", text, year=2026)
    return assemble(fragments, [])


def test_states_and_since_when():
    fragment = read(FAILED + RUNNING)
    services = fragment.snapshot.software.services
    assert (services["nvidia-fabricmanager"].state, services["nvidia-imex"].state) == ("failed", "active")
    assert services["nvidia-fabricmanager"].since == "Wed 2026-01-28 04:11:09 UTC"
    assert fragment.unplaced == []


def test_what_the_manager_wrote_is_kept_with_its_host():
    (event,) = read(FAILED).events
    assert (event.kind, event.node, event.line) == ("fabric_manager.version_mismatch", "dgx", 7)


def test_units_that_are_not_there():
    missing = "Unit nvidia-fabricmanager.service could not be found.\n"
    assert read(missing).snapshot.software.services["nvidia-fabricmanager"].state == "not-found"
    masked = "\u25cb nvidia-imex.service\n     Loaded: not-found (Reason: Unit nvidia-imex.service not found.)\n     Active: inactive (dead)\n"
    assert read(masked).snapshot.software.services["nvidia-imex"].state == "not-found"


@pytest.mark.parametrize("word", ["active", "inactive", "failed", "activating"])
def test_a_bare_word_is_known_by_its_command(word):
    (snapshot,) = whole(f"root@n1:~# systemctl is-active nvidia-fabricmanager.service\n{word}\nroot@n1:~# uptime\n").snapshots
    assert snapshot.software.services["nvidia-fabricmanager"].state == word


def test_several_units_are_answered_in_order():
    (snapshot,) = whole("$ systemctl is-active nvidia-imex nvidia-dcgm\nactive\nunknown\n").snapshots
    services = snapshot.software.services
    assert services["nvidia-imex"].state == "active"
    assert services["nvidia-dcgm"].state is None
    assert "state" in services["nvidia-dcgm"].missing


def test_the_same_word_without_its_command_says_nothing():
    assert all(not s.software.services for s in whole("active\n").snapshots)


def test_lines_of_the_manager_in_a_journal():
    text = "".join(line + "\n" for line in FAILED.splitlines() if line.startswith("Jan"))
    events = [e for e in whole(text).events if e.kind.startswith("fabric_manager")]
    assert [e.kind for e in events] == ["fabric_manager.version_mismatch"]


@given(mangled(FAILED + RUNNING))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    parse_text("systemctl", text)


@given(long_lines("", FAILED, "\u25cf ", "     Active: failed (Result: ", "Jan 28 04:11:09 dgx nv-fabricmanager[1]: version "))
@settings(max_examples=30, deadline=None)
def test_long_lines_take_no_time(text):
    parse_text("systemctl", text)
