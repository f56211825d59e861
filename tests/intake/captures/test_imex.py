from hypothesis import given, settings
from hypothesis import strategies as st

from kilter.diagnose.engine import diagnose
from kilter.intake.merge import assemble
from kilter.intake.paste import read_text
from mangle import check_references, long_lines, mangled, parse_text

# layout of nvidia-imex-ctl -N in issues of NVIDIA/k8s-dra-driver-gpu; addresses invented
WHOLE = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
N - Never Connected
R - Recovering - Connection was lost, but clean up has not yet been triggered.
!V! - Version mismatch, communication disabled.
C - Connected - Ready for operation

5/12/2025 06:08:10.580
Nodes:
Node #0   - 10.0.0.2    -  READY         - Version: 570.133.20
Node #1   - 10.0.0.3    -  READY         - Version: 570.133.20

 Nodes From\\To  0   1
       0        C   C
       1        C   C
Domain State: UP
"""
BROKEN = (
    WHOLE.replace("10.0.0.3    -  READY         - Version: 570.133.20", "10.0.0.3    -  UNAVAILABLE   - Version:")
    .replace("0        C   C", "0        C   N")
    .replace("1        C   C", "1        N   I")
    .replace("UP", "DEGRADED")
)
JSON = (
    '{"nodes": {"0": {"status": "READY", "host": "10.0.0.2", "connections": {"0": {"status": "CONNECTED"}, "1": {"status": "RECOVERING"}}, '
    '"version": "570.133.20"}, "1": {"status": "READY", "host": "10.0.0.3", "connections": {}, "version": "570.124.06"}}, '
    '"timestamp": "5/12/2025 06:08:10.580", "status": "UP"}\n'
)


def findings(text):
    fragments, _ = read_text("x", text, year=2026)
    return [f for f in diagnose(assemble(fragments, [])).findings if f.id.startswith("imex")]


def test_a_whole_domain_is_silent():
    fragment = parse_text("imex", WHOLE)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    (domain,) = fragment.imex_domains
    assert (domain.state, domain.nodes) == ("UP", {"10.0.0.2": "READY", "10.0.0.3": "READY"})
    assert domain.connections["10.0.0.2 -> 10.0.0.3"] == "CONNECTED"
    assert findings(WHOLE) == []


def test_a_node_that_is_away_is_named_once():
    (finding,) = findings(BROKEN)
    assert (finding.severity.value, finding.what) == ("warning", "domain is DEGRADED: 10.0.0.3 is UNAVAILABLE")


def test_json_with_a_lost_connection_and_two_versions():
    (finding,) = findings(JSON)
    assert "10.0.0.2 -> 10.0.0.3 RECOVERING" in finding.what
    assert "versions differ: 570.133.20, 570.124.06" in finding.what


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_texts_raise_nothing(data):
    for whole in (BROKEN, JSON):
        text = data.draw(mangled(whole))
        check_references(parse_text("imex", text), text)


@given(long_lines("", "Node #0 - ", " Nodes From\\To ", " Nodes From\\To 0 1\n 0 C ", '{"nodes": {"0": {'))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("imex", text)
