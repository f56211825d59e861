"""Every table loads typed, has sources, and its slices equal the whole."""

from __future__ import annotations

import msgspec
import pytest

from kilter.knowledge import aer, drivers, gpus, ib_counters, kunlunxin, nvlink5, sxid, throttle, xid
from kilter.knowledge import table as tables
from kilter.knowledge.table import Table, parse, table, typed

NAMES = [
    "xid",
    "sxid",
    "throttle_reasons",
    "aer",
    "ib_counters",
    "gpus",
    "gpu_ids",
    "driver_branches",
    "kunlunxin",
    "kunlunxin_more",
]


@pytest.mark.parametrize("name", NAMES)
def test_sections_of_a_table_are_the_whole_table(name):
    whole = parse(table(name).text)
    assert list(table(name).sections) == list(whole)
    assert {key: table(name).head(key) for key in whole} == whole


@pytest.mark.parametrize("name", NAMES)
def test_no_value_is_cut_by_a_comma_in_a_flow_mapping(name):
    # "{rule: x = stuck, pause cut off}" is read as a second key without a value
    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                assert not (inner is None and " " in str(key)), key
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(parse(table(name).text))


@pytest.mark.parametrize(("name", "section", "key"), [("xid", "xids", "code"), ("sxid", "sxids", "sxid")])
def test_an_entry_cut_out_of_the_text_equals_the_entry_of_the_whole_table(name, section, key):
    whole = parse(table(name).text)[section]
    assert [int(k) for k in table(name).keys(section, key)] == [e[key] for e in whole]
    for entry in whole:
        assert table(name).entry(section, key, entry[key]) == entry


def test_a_gpu_cut_out_of_the_text_equals_the_gpu_of_the_whole_table():
    whole = parse(table("gpus").text)["gpus"]
    assert gpus.spec_keys() == list(whole)
    for key, entry in whole.items():
        assert table("gpus").member("gpus", key) == entry


def test_missing_sections_and_entries_are_none():
    small = Table("small", "rows:\n- code: 1\n  name: a\n")
    assert small.entry("rows", "code", 1) == {"code": 1, "name": "a"}
    assert small.entry("rows", "code", 2) is None
    assert small.entry("nothing", "code", 1) is None
    assert small.head("nothing") is None
    assert small.member("rows", "x") is None
    assert small.keys("nothing", "code") == []


def test_an_unknown_key_in_a_table_is_an_error():
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        typed({"codes": [1], "note": "x", "surprise": 1}, xid.Disagreement)


def test_tables_are_not_parsed_by_importing_the_loaders():
    # the command line imports them; it must not pay for tables that nobody asks for
    import subprocess
    import sys

    code = (
        "import sys; from kilter.knowledge import aer, drivers, explain, gpus, ib_counters, kunlunxin, sops, sxid, throttle, xid;"
        "sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_xid_has_named_sources():
    known = set(table("xid").head("sources"))
    for entry in xid.all_xids():
        assert entry.sources, entry.code
        assert set(entry.sources) <= known
        others = entry.other_tools
        assert set(others.ignored_by) | set(others.listed_as_fault_by) <= known | {"gcm_noncritical"}


def test_every_sxid_has_named_sources():
    known = set(table("sxid").head("sources"))
    for entry in sxid.all_sxids():
        assert entry.sources
        assert set(entry.sources) <= known


def test_every_gpu_has_named_sources_and_marks_of_memory():
    known = set(table("gpus").head("sources"))
    for key in gpus.spec_keys():
        entry = gpus.spec(key)
        assert entry.sources
        assert set(entry.sources) <= known
        if "M" in entry.sources:
            assert entry.unconfirmed, f"{key} rests on memory without saying which field"
        fields = {u.split(" (")[0] for u in entry.unconfirmed}
        assert fields <= set(entry.__struct_fields__) | {"all"}, key


def test_every_product_has_named_sources():
    known = set(table("gpu_ids").head("sources"))
    for product in gpus.products():
        assert product.source in known
        assert product.nvlinks is None or product.nvlinks.source in known
        if product.nvlinks and product.nvlinks.source == "M":
            assert product.nvlinks.confidence != "high", product.key
        assert product.spec is None or product.spec in gpus.spec_keys()


def test_every_counter_error_and_reason_has_a_source():
    assert all(c.source for c in ib_counters.counters())
    assert aer.sources()
    assert throttle.sources()
    assert all(
        table(n).head("sources") or table(n).head("generation_sources")
        for n in NAMES
        if n not in ("driver_branches", "kunlunxin_more")
    )


def test_all_other_rows_load_typed():
    assert len(nvlink5.rules()) == 94
    assert len(xid.log_forms()) == 9
    assert len(throttle.reasons()) == 11
    assert throttle.readings()
    assert throttle.thresholds()
    assert throttle.policy_names()[0] == "power"
    assert ib_counters.link_rules()
    assert ib_counters.votes()
    assert drivers.branches()
    assert drivers.first_drivers()["H100"].mig_min == "525.85.12"
    assert drivers.kernel_breakages()[0].fails
    assert kunlunxin.devices()[0].name == "P800"
    assert kunlunxin.corrections()
    assert kunlunxin.known_issues()
    assert kunlunxin.vendor_ids() == {0x1D22, 0x2057}
    assert kunlunxin.log_pattern("[XCCL] port 3 xpulink not active").meaning.startswith("XPULINK")
    assert kunlunxin.log_pattern("fine") is None
    assert tables.folded("HW Power-Brake  Slowdown ") == "hw_power_brake_slowdown"
