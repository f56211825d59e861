"""A missing fact ends a check for its subject and is told; nothing unknown passes for healthy."""

import pytest

from kilter.diagnose.engine import RULES, Context, Rule, Run, diagnose, load_rules, rule
from kilter.diagnose.explain import explain, rule_of
from kilter.facts.accelerator import Accelerator
from kilter.facts.base import Reason
from kilter.facts.case import Case, Snapshot
from kilter.facts.finding import Outcome
from kilter.knowledge import sops
from kilter.report.text import diagnosis_text


def test_empty_case_has_no_finding_and_nothing_counts_as_fine() -> None:
    diagnosis = diagnose(Case())
    assert diagnosis.findings == []
    assert all(check.outcome is Outcome.NOT_CHECKED for check in diagnosis.checks)
    assert all(check.hints for check in diagnosis.checks)


def test_node_known_to_have_no_gpu_makes_gpu_checks_not_applicable() -> None:
    checks = {c.rule: c for c in diagnose(Case(snapshots=[Snapshot(accelerators=[])])).checks}
    assert checks["gpu.row_remap.failure"].outcome is Outcome.NOT_APPLICABLE


def test_missing_fact_is_told_with_its_reason_and_hint() -> None:
    gpu = Accelerator(index=3)
    gpu.lacks("remap_failure", Reason.NOT_READABLE, "NVML hung", "reset the GPU")
    (check,) = [c for c in diagnose(Case(snapshots=[Snapshot(accelerators=[gpu])])).checks if c.rule == "gpu.row_remap.failure"]
    assert check.outcome is Outcome.NOT_CHECKED
    assert check.reasons == ["GPU3: remap_failure not readable (NVML hung)"]
    assert check.hints == ["reset the GPU"]


def test_facts_that_were_asked_for_are_evidence() -> None:
    gpu = Accelerator(index=0, remap_failure=True, remapped_uncorrectable=12)
    (finding,) = [f for f in diagnose(Case(snapshots=[Snapshot(accelerators=[gpu])])).findings if f.id == "gpu.row_remap.failure"]
    assert [e.text for e in finding.evidence] == ["remap_failure = yes", "remapped_uncorrectable = 12"]


def test_a_finding_on_one_gpu_does_not_hide_that_another_was_not_checked() -> None:
    gpus = [Accelerator(index=0, remap_failure=True), Accelerator(index=1)]
    (check,) = [c for c in diagnose(Case(snapshots=[Snapshot(accelerators=gpus)])).checks if c.rule == "gpu.row_remap.failure"]
    assert (check.findings, check.not_checked) == (1, 1)


def test_two_snapshots_of_a_node_give_one_finding() -> None:
    snapshots = [Snapshot(node="n", accelerators=[Accelerator(index=0, remap_pending=True)]) for _ in range(2)]
    assert [f.id for f in diagnose(Case(snapshots=snapshots)).findings] == ["gpu.row_remap.pending"]


def test_two_rules_cannot_have_one_name() -> None:
    load_rules()
    with pytest.raises(ValueError, match="two rules"):
        rule("gpu.lost", "again", scope="gpu", family="gpu")(lambda gpu, ctx: None)


@pytest.mark.parametrize("one", load_rules().values(), ids=lambda r: r.id)
def test_every_rule_explains_itself_and_names_its_sources(one: Rule) -> None:
    assert len(one.doc) > 40
    assert one.title
    assert one.sources or one.id == "gpu.xid.*"
    assert one.sop in ("", *sops.all_ids())


@pytest.mark.parametrize("one", load_rules().values(), ids=lambda r: r.id)
def test_every_finding_id_can_be_explained(one: Rule) -> None:
    for finding_id in {one.id.replace(".*", ".79") if one.id == "gpu.xid.*" else one.id, *one.also}:
        if finding_id.endswith("*"):
            continue
        found = explain(finding_id)
        assert found is not None, finding_id
        assert found.paragraphs


def test_ids_that_a_rule_adds_lead_back_to_it() -> None:
    for finding_id, rule_id in (
        ("gpu.siblings_differ.power_limit_w", "gpu.siblings_differ"),
        ("container.shm_too_small", "nccl.warnings"),
        ("fabric.state_in_progress", "fabric.state"),
        ("nic.mlx5.health", "nic.mlx5.*"),
        ("ib.counter_saturated.link_downed", "ib.counter_saturated"),
        ("net.aws.bw_in_allowance_exceeded", "net.aws.allowance_exceeded"),
    ):
        found = rule_of(finding_id)
        assert found is not None, finding_id
        assert found.id == rule_id


def test_unknown_topic_is_not_explained() -> None:
    assert explain("no.such.thing") is None


def test_need_names_the_field_of_the_class() -> None:
    gpu = Accelerator(index=0, power_limit_w=300.0)
    one = RULES["gpu.power_limit_below_default"]
    from kilter.facts.finding import Subject

    context = Context(one, Run(Case(), []), Snapshot(), Subject("gpu", "GPU0"))
    assert context.need(gpu, Accelerator.power_limit_w) == 300.0
    assert context.known(gpu, Accelerator.power_limit_default_w) is None


def test_a_check_that_fails_costs_itself_alone_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(gpu: Accelerator, ctx: Context) -> None:
        raise KeyError(gpu.index)

    monkeypatch.undo()  # tests see what rules raise; users do not
    one = load_rules()["gpu.row_remap.failure"]
    monkeypatch.setitem(RULES, one.id, one._replace(check=broken))
    case = Case(snapshots=[Snapshot(accelerators=[Accelerator(index=3, remap_pending=True)])])
    diagnosis = diagnose(case)
    assert [f.id for f in diagnosis.findings] == ["gpu.row_remap.pending"]
    (check,) = [c for c in diagnosis.checks if c.rule == one.id]
    assert (check.outcome, check.failures) == (Outcome.NOT_CHECKED, ["GPU3: KeyError: 3"])
    assert "The check gpu.row_remap.failure failed itself, please report this: GPU3: KeyError: 3" in diagnosis_text(
        case, diagnosis
    )
