"""A log that was not given is not checked, whatever other logs of the node were."""

from __future__ import annotations

from asked import verdict
from kilter.facts.finding import Diagnosis
from outputs import FM, at, sel


def outcome(diagnosis: Diagnosis, rule: str) -> str:
    (check,) = [c for c in diagnosis.checks if c.rule == rule]
    return check.outcome.value


def test_a_bmc_log_alone_says_nothing_of_xids() -> None:
    diagnosis = verdict({"n1/sel.txt": sel("Fan Fan 3 | Lower Critical going low")})
    assert outcome(diagnosis, "gpu.xid.*") == "not checked"
    assert outcome(diagnosis, "nvswitch.sxid.*") == "not checked"
    assert outcome(diagnosis, "host.fan_failed") == "finding"
    assert outcome(diagnosis, "power.psu_failed") == "ok"


def test_fabric_managers_log_tells_of_switches_and_not_of_gpus() -> None:
    diagnosis = verdict({"n1/fm.log": FM.format(n=1, level="INFO", text="multicast group 0 is freed.")})
    assert outcome(diagnosis, "gpu.xid.*") == "not checked"
    assert outcome(diagnosis, "fabric.manager_log") == "not checked" or outcome(diagnosis, "fabric.manager_log") == "ok"


def test_a_kernel_log_tells_of_xids_and_nothing_of_the_bmc() -> None:
    diagnosis = verdict({"n1/kern.log": at("09:00:00", "Linux version 6.8.0")})
    assert outcome(diagnosis, "gpu.xid.*") == "ok"
    assert outcome(diagnosis, "power.psu_failed") == "not checked"
