"""Rules on fabrics, on real captures, on a simulated fabric with a fault and on its healthy twin."""

from pathlib import Path

import pytest

import kilter.diagnose.rules.fabric  # registers its rules
import kilter.diagnose.rules.fabric_state
import kilter.diagnose.rules.ib_switch  # noqa: F401
from kilter.diagnose.engine import diagnose
from kilter.facts.case import Case
from kilter.facts.fabric import FabricNode, FabricPort
from kilter.intake.merge import assemble
from mangle import parse_text

DATA = Path(__file__).parents[1] / "data"
HEALTHY, FAULTY = "ibsim-two-spines", "ibsim-cable-errors"


class Verdict:
    def __init__(self, case):
        self.diagnosis = diagnose(case)

    def of(self, finding_id):
        return [f for f in self.diagnosis.findings if f.id == finding_id]

    @property
    def loud(self):
        return {f.id for f in self.diagnosis.findings if f.severity.rank >= 1}

    @property
    def ids(self):
        return {f.id for f in self.diagnosis.findings}

    def outcome(self, rule):
        (check,) = [c for c in self.diagnosis.checks if c.rule == rule]
        return check.outcome.value


def read(*names):
    """Each name is "folder/file"; the reader's name is the file's up to the first hyphen or dot."""
    fragments = [parse_text(Path(n).name.split(".")[0].split("-")[0], (DATA / n).read_text()) for n in names]
    return Verdict(assemble(fragments, []))


def fabric(*nodes):
    return Verdict(Case(fabric=list(nodes)))


def port(number, **counters):
    return FabricPort(number=number, lid=9, counters={"port_xmit_packets": 10**12, **counters})


def switch(*ports, **more):
    return FabricNode(guid="lid 9", ports=list(ports), **more)


def test_discards_of_one_port_are_a_warning():
    (finding,) = read("s034-perfquery-switch-discards/perfquery-x.txt").of("ib.port_xmit_discards")
    assert finding.severity.value == "warning"
    assert finding.subject.name == "lid 2052 port 1"
    assert any("second reading" in e.text for e in finding.evidence)


def test_waits_alone_are_nothing():
    verdict = read("s035-perfquery-switch-clean/perfquery-x.txt")
    assert verdict.ids == set()
    assert verdict.outcome("ib.port_xmit_discards") == "ok"


def test_discards_on_all_ports_alike_are_information():
    verdict = fabric(switch(*[port(n, port_xmit_discards=20_000 + n) for n in range(1, 9)]))
    (finding,) = verdict.of("ib.port_xmit_discards")
    assert (finding.severity.value, finding.what[:7]) == ("info", "8 ports")


def test_a_32_bit_packet_counter_that_stopped_gives_no_share():
    stopped = {"port_xmit_packets": 0xFFFFFFFF}
    assert fabric(switch(*[port(n, port_xmit_discards=5000 * (n == 3), **stopped) for n in range(1, 9)])).of(
        "ib.port_xmit_discards"
    )
    assert fabric(switch(*[port(n, port_xmit_discards=999 * (n == 3), **stopped) for n in range(1, 9)])).ids == set()


def test_a_few_discards_are_nothing():
    assert fabric(switch(*[port(n, port_xmit_discards=900 * (n == 3)) for n in range(1, 9)])).ids == set()


def test_a_healthy_fabric_is_silent():
    names = [
        f"{HEALTHY}/{n}.txt"
        for n in ("ibnetdiscover", "ibnetdiscover-p", "perfquery", "perfquery-x", "perfquery-a", "perfquery-l")
    ]
    verdict = read(*names)
    assert verdict.ids == set()
    for rule in ("ib.port_xmit_discards", "ib.symbol_errors", "ib.link_downed", "ib.port_no_link", "ib.uplinks_unbalanced"):
        assert verdict.outcome(rule) == "ok"


@pytest.mark.parametrize("form", ["ibnetdiscover", "ibnetdiscover-p"])
def test_a_bad_cable_is_named_once_with_both_ends(form):
    verdict = read(f"{FAULTY}/{form}.txt", f"{FAULTY}/perfquery.txt")
    (downs,) = verdict.of("ib.link_downed")
    assert (downs.severity.value, downs.subject.name) == ("error", "leaf1 port 9 - spine1 port 1")
    assert len([e for e in downs.evidence if e.where]) == 2
    (errors,) = verdict.of("ib.symbol_errors")
    assert errors.subject.name == "leaf1 port 9 - spine1 port 1"
    (received,) = verdict.of("ib.port_errors")
    assert received.subject.name == "leaf2 port 3"
    assert "node07" in received.what
    (dropped,) = verdict.of("ib.port_xmit_discards")
    assert "node02" in dropped.what
    assert dropped.causes[0].likelihood == "likely"


def test_counters_without_cables_accuse_each_end():
    verdict = read(f"{FAULTY}/perfquery.txt")
    assert {f.subject.name for f in verdict.of("ib.link_downed")} == {"lid 1 port 9", "lid 4 port 1"}
    assert all(f.severity.value == "warning" for f in verdict.of("ib.link_downed"))


def test_one_end_that_complains_is_contradicted_by_the_other():
    near = FabricNode(
        guid="a", name="leaf", kind="switch",
        ports=[FabricPort(number=1, remote_guid="b", remote_port=1, counters={"link_downed": 8})],
    )  # fmt: skip
    far = FabricNode(
        guid="b", name="spine", kind="switch",
        ports=[FabricPort(number=1, remote_guid="a", remote_port=1, counters={"link_downed": 0})],
    )  # fmt: skip
    (finding,) = fabric(near, far).of("ib.link_downed")
    assert finding.severity.value == "warning"
    assert any(e.role == "contradicts" and "spine port 1" in e.text for e in finding.evidence)


def test_downs_after_every_reboot_of_the_neighbours_are_no_fault():
    assert fabric(switch(*[port(n, link_downed=30) for n in range(1, 9)])).ids == set()


def test_the_same_lids_of_two_subnets_are_not_mixed():
    rails = [
        FabricNode(guid=guid, name=guid, kind="switch", ports=[FabricPort(number=0, lid=9), FabricPort(number=1, lid=None)])
        for guid in ("rail1", "rail2")
    ]
    (finding,) = fabric(*rails, switch(port(1, port_xmit_discards=5000))).of("ib.port_xmit_discards")
    assert finding.subject.name == "lid 9 port 1"


def test_a_fan_summary_with_all_fans_turning():
    verdict = read("s036-ibswinfo-fan-error/ibswinfo.txt")
    assert verdict.loud == {"ib.switch.fan_error"}
    (finding,) = verdict.of("ib.switch.fan_error")
    assert (finding.severity.value, "8 fans turn" in finding.what) == ("warning", True)
    assert verdict.outcome("ib.switch.psu_failed") == "ok"


def test_supplies_heat_and_a_fan_that_stands():
    bad = switch(
        kind="switch", temperature_c=106, fans={"fan status": "OK", "fan#1": "0", "fan#2": "7000"}, power_supplies={"PSU0": "OK", "PSU1": "ERROR"}
    )  # fmt: skip
    verdict = fabric(bad)
    assert {f.id: f.severity.value for f in verdict.diagnosis.findings} == {
        "ib.switch.fan_error": "error",
        "ib.switch.psu_failed": "error",
        "ib.switch.overheat": "error",
    }
    fine = switch(
        kind="switch", temperature_c=60, fans={"fan status": "OK", "fan#1": "7000"}, power_supplies={"PSU0": "OK", "PSU1": "N/A"}
    )
    assert fabric(fine).ids == set()


def test_no_value_of_a_fan_is_not_health():
    assert fabric(switch(kind="switch", fans={"fan status": "N/A"})).outcome("ib.switch.fan_error") == "not checked"


def test_an_adapter_without_link_and_an_empty_discovery():
    for name in ("s039-ibnetdiscover-hca-without-link/ibnetdiscover.txt", f"{FAULTY}/ibnetdiscover-node08.txt"):
        verdict = read(name)
        assert verdict.loud == {"ib.port_no_link", "discovery.incomplete"}


@pytest.mark.parametrize(
    "name", ["s037-ibnetdiscover-p-parser/ibnetdiscover-p.txt", "s038-ibnetdiscover-ndr-rail-gb200/ibnetdiscover.txt"]
)
def test_open_ports_and_cut_listings_are_no_fault(name):
    verdict = read(name)
    assert verdict.ids == set()
    assert verdict.outcome("ib.port_no_link") == "ok"


def test_a_list_of_nodes_says_nothing_of_links():
    assert read(f"{FAULTY}/ibnetdiscover-l.txt").outcome("ib.port_no_link") == "not checked"


def test_a_missing_uplink_shows_by_its_absence():
    for names in ([f"{FAULTY}/ibnetdiscover.txt"], [f"{FAULTY}/ibnetdiscover.txt", f"{FAULTY}/ibnetdiscover-l.txt"]):
        (finding,) = read(*names).of("ib.uplinks_unbalanced")
        assert (finding.severity.value, finding.subject.name) == ("info", "leaf2")


def linked(widths, kind="switch", speeds=None):
    """A switch with a cable of each width to a node of ``kind``."""
    ports = [
        FabricPort(number=n, width=w, speed=(speeds or {}).get(n, "HDR"), remote_guid=f"n{n}", remote_port=1, remote_name=f"n{n}")
        for n, w in enumerate(widths, 1)
    ]
    far = [
        FabricNode(guid=f"n{n}", name=f"n{n}", kind=kind, ports=[FabricPort(number=1, remote_guid="s", remote_port=n)])
        for n in range(1, len(widths) + 1)
    ]
    return [FabricNode(guid="s", name="s", kind="switch", ports=ports), *far]


def severities(nodes):
    return [f.severity.value for f in fabric(*nodes).of("ib.link_below_siblings")]


def test_links_below_their_siblings():
    assert severities(linked(["4x"] * 7 + ["1x"], "ca")) == ["error"]
    assert severities(linked(["4x"] * 7 + ["2x"], "switch")) == ["warning"]
    assert severities(linked(["4x"] * 7 + ["2x"], "ca")) == ["info"]
    assert severities(linked(["4x"] * 8, "switch", {3: "EDR"})) == ["warning"]
    assert severities(linked(["4x"] * 8)) == []
    assert severities(linked(["4x", "2x"] * 4, "ca")) == []


def test_nothing_given_is_not_checked():
    assert Verdict(Case()).outcome("ib.symbol_errors") == "not checked"


LOSSY = "ibsim-lossy-links"


@pytest.mark.parametrize("errors", ["ibqueryerrors.txt", "ibqueryerrors-details.txt"])
@pytest.mark.parametrize("links", ["iblinkinfo.txt", "iblinkinfo-l.txt", "ibnetdiscover.txt"])
def test_ibqueryerrors_with_any_listing_names_the_cables(errors, links):
    verdict = read(f"{LOSSY}/{links}", f"{LOSSY}/{errors}")
    (cable,) = verdict.of("ib.symbol_errors")
    assert cable.subject.name == "leaf1 port 9 - spine1 port 1"
    assert verdict.of("ib.link_downed")[0].severity.value == "error"
    (dropped,) = verdict.of("ib.port_xmit_discards")
    assert dropped.subject.name == "leaf1 port 2"
    assert any("the most that it can hold" in e.text for e in dropped.evidence)
    assert any(c.text.startswith("the host on this port") and c.likelihood == "likely" for c in dropped.causes)
    (lane,) = verdict.of("ib.link_below_siblings")
    assert lane.subject.name == "leaf1 port 10 - spine1 port 2"
    assert verdict.outcome("ib.port_no_link") == "ok"


def test_ibqueryerrors_alone_judges_and_links_with_r():
    assert "ib.symbol_errors" in read(f"{LOSSY}/ibqueryerrors-c.txt").loud
    (cable,) = read(f"{LOSSY}/ibqueryerrors-r.txt").of("ib.symbol_errors")
    assert cable.subject.name == "leaf1 port 9 - spine1 port 1"


def test_views_of_one_switch_are_one_node():
    views = [
        FabricNode(guid="0000:0000:0020:0001", kind="switch", name="leaf1", ports=[FabricPort(number=0, lid=3)]),
        FabricNode(guid="0000:0000:0020:0001", name="Quantum", fans={"fan#1": "ERROR"}),
        FabricNode(guid="lid 3", ports=[port(1, symbol_error=0)]),
        FabricNode(guid="leaf1", kind="switch", name="leaf1", power_supplies={"PSU1": "ERROR"}),
    ]
    views[2].ports[0].lid = 3
    verdict = fabric(*views)
    (fans,), (power,) = verdict.of("ib.switch.fan_error"), verdict.of("ib.switch.psu_failed")
    assert fans.subject.name == power.subject.name == "leaf1"
    assert not [c for c in verdict.diagnosis.checks if c.rule == "ib.switch.fan_error" and c.outcome.value == "missing"]


def test_an_adapter_by_its_own_guid_and_by_its_ports():
    node = FabricNode(
        guid="0000:0000:0010:0000",
        kind="ca",
        name="node01",
        ports=[FabricPort(number=1, guid="0000:0000:0010:0001", remote_guid="lid 9")],
    )
    errors = FabricNode(guid="0000:0000:0010:0001", name="node01", ports=[port(1, symbol_error=60_000)])
    (finding,) = fabric(node, errors).of("ib.symbol_errors")
    assert finding.subject.name == "node01 port 1"
    assert len(fabric(node, errors).of("ib.symbol_errors")) == 1


def up_port(number, **facts):
    more = {"width": "4x", "speed": "NDR", "state": "ACTIVE", "physical_state": "LinkUp", **facts}
    return FabricPort(number=number, remote_guid=f"far{number}", remote_name=f"node{number}", remote_port=1, **more)


def test_one_link_below_what_both_ends_support_is_a_warning_many_are_information():
    slow = {"speed": "HDR", "speed_possible": "NDR"}
    one = fabric(switch(*[up_port(n, **(slow if n == 3 else {})) for n in range(1, 9)])).of("ib.link_below_possible")
    assert [(f.severity.value, f.what) for f in one] == [("warning", "HDR, both ends support NDR (to node3 port 1)")]
    all_alike = fabric(switch(*[up_port(n, **slow) for n in range(1, 9)])).of("ib.link_below_possible")
    assert [f.severity.value for f in all_alike] == ["info"]
    assert fabric(switch(*[up_port(n) for n in range(1, 9)])).outcome("ib.link_below_possible") == "ok"


def test_a_link_up_that_is_not_active_needs_the_subnet_manager():
    (finding,) = fabric(switch(up_port(1, state="INIT"), up_port(2))).of("ib.fabric_port_not_active")
    assert (finding.severity.value, finding.subject.name) == ("error", "lid 9 port 1 - node1 port 1")
    (training,) = fabric(switch(up_port(1, state="DOWN", physical_state="LinkErrorRecovery"))).of("ib.fabric_port_not_active")
    assert training.severity.value == "warning"
    assert (
        fabric(switch(up_port(1), FabricPort(number=2, state="DOWN", physical_state="Polling"))).outcome(
            "ib.fabric_port_not_active"
        )
        == "ok"
    )


@pytest.mark.parametrize(
    ("ber", "found"),
    [
        ({"raw": 1e-5, "effective": 1e-15, "symbol": 1e-15}, 0),
        ({"raw": 1e-5, "effective": 1e-9, "symbol": 1e-15}, 0),  # the symbol rate counts
        ({"raw": 1e-5, "effective": 1e-9}, 1),
        ({"raw": 1e-5, "symbol": 3e-11}, 1),
    ],
)
def test_bit_errors_after_correction(ber, found):
    verdict = fabric(switch(up_port(1, ber=ber)))
    assert len(verdict.of("ib.ber")) == found
    assert verdict.outcome("ib.ber") == ("finding" if found else "ok")


def test_errors_that_rise_while_ibdiagnet_looks():
    (finding,) = fabric(switch(up_port(1, growth={"symbol_error": 117, "port_xmit_discards": 9999}))).of("ib.errors_rising")
    assert finding.what == "symbol_error rose by 117 during the run of ibdiagnet"
    assert (
        fabric(switch(up_port(1, growth={"symbol_error": 2, "port_rcv_remote_physical_errors": 500}))).outcome("ib.errors_rising")
        == "ok"
    )
