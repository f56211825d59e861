"""nvidia-imex-ctl -N."""

from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

TEXT = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
N - Never Connected
!V! - Version mismatch, communication disabled.
C - Connected - Ready for operation

9/8/2026 09:20:11.044
Nodes:
Node #0   * 192.0.2.81 *     - READY                - Version: 580.95.05
Node #1   - 192.0.2.82       - UNAVAILABLE          - Version: 570.124.06

 Nodes From\\To  0   1
       0        C   !V!
       1        I   C
Domain State: DEGRADED
"""


def read(text):
    fragment = parse_text("imex", text)
    check_references(fragment, text)
    return fragment


def test_domain_and_nodes():
    text = TEXT.replace("* 192.0.2.81 *  ", "- 192.0.2.81    ")
    fragment = read(text)
    assert fragment.unplaced == []
    domain, first, second = fragment.snapshot.diagnostics
    assert (domain.name, domain.result) == ("domain", "DEGRADED")
    assert (first.device, first.result, first.message) == ("node 0 192.0.2.81", "READY", "!V! to node 1")
    assert (second.result, second.message) == ("UNAVAILABLE", "I to node 0")


def test_own_node_is_marked_with_stars():
    assert [t.device for t in read(TEXT).snapshot.diagnostics][1:] == ["node 0 192.0.2.81", "node 1 192.0.2.82"]


def test_the_last_state_of_a_watched_domain_counts():
    text = TEXT + TEXT.replace("DEGRADED", "UP").replace("UNAVAILABLE", "READY      ")
    tests = read(text).snapshot.diagnostics
    assert [t.result for t in tests if t.name == "domain"] == ["UP"]


def test_a_cut_table_has_no_state():
    tests = read(TEXT.partition("Domain")[0]).snapshot.diagnostics
    assert {t.name for t in tests} == {"node"}


def test_a_hostile_row_is_read_in_linear_time():
    read(TEXT + "       0        " + "C!" * 20000 + "?\n")


@given(mangled(TEXT))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    parse_text("imex", text)


@given(long_lines("", TEXT, "Node #0   - ", "       0        C", "Domain State: "))
@settings(max_examples=30, deadline=None)
def test_long_lines_take_no_time(text):
    parse_text("imex", text)
