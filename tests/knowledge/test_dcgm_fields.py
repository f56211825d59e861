"""DCGM field names, old and new, and the values that are none."""

from __future__ import annotations

import pytest

from kilter.knowledge import dcgm_fields
from kilter.knowledge.table import table, typed


def test_old_and_new_names_are_one_field():
    assert dcgm_fields.canonical("DCGM_FI_DEV_POWER_USAGE") == "DCGM_FI_DEV_BOARD_POWER_WATTS"
    assert dcgm_fields.canonical("DCGM_FI_DEV_BOARD_POWER_WATTS") == "DCGM_FI_DEV_BOARD_POWER_WATTS"
    assert dcgm_fields.canonical("node_cpu_seconds_total") is None
    field = dcgm_fields.lookup("DCGM_FI_DEV_XID_ERRORS")
    assert field is not None
    assert field.id == 230
    assert field.curated
    assert not field.is_counter


def test_every_slice_is_what_the_whole_file_says():
    whole = typed(table("dcgm_fields").head("fields"), list[dcgm_fields.DcgmField])
    assert [field.metric for field in whole] == dcgm_fields.all_names()
    assert len({field.metric for field in whole}) == len(whole) > 600
    for field in whole:
        assert dcgm_fields.lookup(field.metric) == field
        assert all(dcgm_fields.canonical(old) == field.metric for old in field.legacy_names)


def test_exporters_own_metrics_are_no_fields():
    assert {m.metric for m in dcgm_fields.exporter_only()} >= {"DCGM_EXP_XID_ERRORS_COUNT"}
    assert all(dcgm_fields.canonical(m.metric) is None for m in dcgm_fields.exporter_only())
    assert dcgm_fields.pitfalls()
    assert dcgm_fields.sources()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("9223372036854775792", "blank"),
        ("9223372036854775793", "not found"),
        ("9223372036854775794", "not supported"),
        ("9223372036854775795", "not permissioned"),
        ("9.223372036854776e+18", "blank"),
        ("2147483634", "not supported"),
        ("140737488355328.000000", "blank"),
        ("140737488355330", "not supported"),
        ("NaN", "blank"),
        ("0", None),
        ("2147483600", None),
        ("81559", None),
        ("1.5e9", None),
        ("abc", None),
        ("-1", None),
    ],
)
def test_sentinels_are_no_numbers(text, kind):
    assert dcgm_fields.blank(text) == kind


def test_units_that_names_suggest_wrongly_are_right():
    assert dcgm_fields.lookup("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS").unit == "bitmask"
    assert dcgm_fields.lookup("DCGM_FI_DEV_GPU_UTIL").unit == "percent"
    assert dcgm_fields.lookup("DCGM_FI_DEV_PCIE_LINK_GEN").unit == "none"
