"""Drift, outliers, rates and rare events over nodes made by hand."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kilter.diagnose.rules.fleet
from kilter.cli.compare_nodes import command
from kilter.diagnose.engine import RULES, Run
from kilter.diagnose.fleet.compare import outliers
from kilter.diagnose.fleet.drift import compare_config
from kilter.diagnose.fleet.profile import profiles
from kilter.diagnose.fleet.rare import attributes, benjamini_hochberg, fisher_greater, poisson_greater, rare_events
from kilter.diagnose.fleet.rates import counter_rates, delta
from kilter.facts.accelerator import Accelerator, EccCounts, Reading
from kilter.facts.base import Reason, Source
from kilter.facts.case import SCHEMA_VERSION, Case, Snapshot
from kilter.facts.event import Event
from kilter.facts.finding import Check, Finding
from kilter.facts.host import Environment, Host, Kernel, Memory, Module, Software
from kilter.facts.network import NetInterface, RdmaDevice, RdmaPort
from kilter.facts.pci import PciDevice
from kilter.intake.read import read_paths


def node(name: str, **changes: object) -> Snapshot:
    """A healthy node of 8 GPUs and 8 rails, with everything that tells nodes apart."""
    gpus = [
        Accelerator(
            index=i,
            name="NVIDIA H100 80GB HBM3",
            uuid=f"GPU-{name}-{i}",
            serial=f"{name}{i}",
            pci_address=f"0000:{i + 16:02x}:00.0",
            firmware="96.00.74.00.01",
            ecc_mode=True,
            memory_total_mib=81559,
            power_limit_w=700.0,
            replays=i,
            ecc_volatile=EccCounts(total_corrected=0),
            readings=[Reading(power_w=650.0, temperature_c=60 + i, utilization_percent=100, sm_clock_mhz=1755, link_width=16)],
        )
        for i in range(8)
    ]
    rdma = [
        RdmaDevice(
            name=f"mlx5_{i}",
            board_id="MT_0000000838",
            hca_type="MT4129",
            firmware="28.39.1002",
            node_guid=f"{name}:{i}",
            ports=[
                RdmaPort(
                    number=1,
                    state="ACTIVE",
                    link_layer="InfiniBand",
                    rate_gbps=400.0,
                    active_mtu=4096,
                    counters={"link_downed": i % 2, "symbol_error": 0},
                )
            ],
        )
        for i in range(8)
    ]
    snapshot = Snapshot(
        node=name,
        time=1_790_000_000.0,
        sources=[Source(name=f"{name}.json", tool="kilter snapshot")],
        host=Host(hostname=name, bios_version="1.6.2", dmi_product="XE9680", boot_id=f"boot-{name}", uptime_s=86400.0),
        kernel=Kernel(
            release="5.15.0-105-generic",
            cmdline=f"BOOT_IMAGE=/vmlinuz root=UUID={name} ro iommu=pt",
            modules={m: Module(name=m) for m in ("nvidia", "nvidia_peermem", "mlx5_core")},
            sysctls={"kernel.numa_balancing": "0", "kernel.random.boot_id": name, "fs.file-nr": str(hash(name))},
        ),
        memory=Memory(total_bytes=2164 * 10**9 + 4096 * hash(name) % 10**6, available_bytes=2 * 10**12),
        software=Software(driver_version="550.54.15", driver_flavour="open"),
        environment=Environment(variables={"NCCL_IB_HCA": "mlx5", "NCCL_HOSTID": name}),
        accelerators=gpus,
        rdma=rdma,
        nics=[NetInterface(name="eth0", driver="mlx5_core", pci_address="0000:01:00.0", mtu=9000, mac=name, addresses=[name])],
        pci={
            "0000:10:00.0": PciDevice(
                address="0000:10:00.0", vendor_id=0x10DE, class_code=0x0302, max_payload_bytes=256, mrrs_bytes=4096
            ),
            "0000:0f:00.0": PciDevice(address="0000:0f:00.0", class_code=0x0604, acs_enabled=[]),
        },
    )
    for path, value in changes.items():
        target: object = snapshot
        *way, last = path.split("__")
        for step in way:
            target = (
                target[int(step)]
                if isinstance(target, list)
                else target[step]
                if isinstance(target, dict)
                else getattr(target, step)
            )
        if isinstance(target, dict):
            target[last] = value
        else:
            setattr(target, last, value)
    return snapshot


def fleet(count: int, *odd: Snapshot) -> list[Snapshot]:
    return [*(node(f"gpu{i:03}") for i in range(count - len(odd))), *odd]


def judged(case: Case, rule: str) -> tuple[list[Finding], Check]:
    assert kilter.diagnose.rules.fleet
    run = Run(case, [RULES[rule]])
    return run.findings, run.checks[0]


def drifted(*snapshots: Snapshot) -> dict[str, list[str]]:
    """finding id -> nodes"""
    found, _ = judged(Case(snapshots=list(snapshots)), "fleet.config_drift")
    ids: dict[str, list[str]] = {}
    for f in found:
        ids.setdefault(f.id, []).append(f.subject.node)
    return ids


# -- drift


def test_equal_nodes_have_no_drift_although_serials_and_addresses_differ() -> None:
    compared = compare_config(profiles(fleet(12)))
    assert compared.drifts == []
    assert compared.gaps == []
    assert compared.facts > 30


@pytest.mark.parametrize(
    ("change", "area"),
    [
        ({"software__driver_version": "535.104.05"}, "driver"),
        ({"software__driver_flavour": "proprietary"}, "driver"),
        ({"kernel__release": "5.15.0-91-generic"}, "kernel"),
        ({"kernel__cmdline": "ro"}, "kernel"),
        ({"kernel__modules": {"nvidia": Module(name="nvidia"), "mlx5_core": Module(name="mlx5_core")}}, "peermem"),
        ({"rdma__3__firmware": "28.36.1010"}, "nic_firmware"),
        ({"pci__0000:0f:00.0__acs_enabled": ["SrcValid", "ReqRedir", "CmpltRedir"]}, "acs"),
        ({"nics__0__mtu": 1500}, "mtu"),
        ({"accelerators__2__ecc_mode": False}, "ecc"),
        ({"accelerators__7__power_limit_w": 500.0}, "power_limit"),
        ({"memory__total_bytes": 2100 * 10**9}, "memory"),
    ],
)
def test_the_odd_node_is_named_with_a_warning(change: dict[str, object], area: str) -> None:
    found, _ = judged(Case(snapshots=fleet(8, node("odd", **change))), "fleet.config_drift")
    loud = [f for f in found if f.severity.value == "warning"]
    assert [(f.id, f.subject.node) for f in loud] == [(f"fleet.config_drift.{area}", "odd")]
    assert "7 of 8 nodes" in loud[0].what


@pytest.mark.parametrize(
    "change",
    [
        {"host__bios_version": "1.5.0"},
        {"kernel__sysctls__kernel.numa_balancing": "1"},
        {"accelerators__0__firmware": "96.00.30.00.01"},
    ],
)
def test_settings_of_unknown_weight_are_information(change: dict[str, object]) -> None:
    found, _ = judged(Case(snapshots=fleet(8, node("odd", **change))), "fleet.config_drift")
    assert {f.severity.value for f in found} == {"info"}


def test_a_lost_gpu_is_one_drift_not_one_in_every_setting() -> None:
    odd = node("odd")
    assert odd.accelerators is not None
    odd.accelerators.pop()
    assert drifted(*fleet(8, odd)) == {"fleet.config_drift.gpu_count": ["odd"]}


def test_a_node_without_any_gpu_is_compared_with_its_like() -> None:
    assert "odd" in drifted(*fleet(8, node("odd", accelerators=[])))["fleet.config_drift.gpu_count"]


def test_two_camps_are_both_told_and_nobody_is_accused() -> None:
    found, _ = judged(Case(snapshots=[node("a"), node("b", software__driver_version="535.1")]), "fleet.config_drift")
    (one,) = found
    assert one.subject.node == ""
    assert one.confidence == "medium"
    assert "550.54.15 on a" in one.what
    assert "535.1 on b" in one.what


def test_nodes_with_other_gpus_are_not_compared() -> None:
    others = [node(f"l40-{i}", software__driver_version="535.1") for i in range(4)]
    for other in others:
        for gpu in other.accelerators or []:
            gpu.name = "NVIDIA L40S"
    assert drifted(*fleet(4), *others) == {}


def test_missing_is_no_value() -> None:
    odd = node("odd", software=Software(), pci=None)
    compared = compare_config(profiles(fleet(6, odd)))
    assert compared.drifts == []
    assert {(g.area, tuple(g.nodes)) for g in compared.gaps} >= {("driver", ("odd",)), ("acs", ("odd",)), ("pcie", ("odd",))}


def test_a_module_list_that_was_not_collected_is_no_missing_module() -> None:
    assert "fleet.config_drift.peermem" not in drifted(*fleet(6, node("odd", kernel__modules=None)))


def listed(folder: Path, *names: str) -> None:
    folder.mkdir()
    rows = [f"{name:<23}{size:>8}  0" for name, size in zip(names, (62_000_000, 20480, 1_900_000), strict=False)]
    (folder / "modules.txt").write_text(
        f"[root@{folder.name} ~]# lsmod\nModule                  Size  Used by\n" + "\n".join(rows) + "\n"
    )


def test_peermem_loaded_on_all_nodes_but_one_is_found_in_lsmod_listings(tmp_path: Path) -> None:
    for name in ("node-a", "node-b", "node-c"):
        listed(tmp_path / name, "nvidia", "nvidia_peermem", "mlx5_core")
    listed(tmp_path / "node-d", "nvidia", "mlx5_core")
    found = drifted(*read_paths([str(tmp_path)]).snapshots)
    assert found == {"fleet.config_drift.peermem": ["node-d"]}


def test_a_filtered_module_list_says_nothing_of_what_it_lacks() -> None:
    odd = node("odd", kernel__modules={"mlx5_core": Module(name="mlx5_core")})
    odd.kernel.lacks("modules", Reason.NOT_COLLECTED, "the list was filtered")
    assert drifted(*fleet(6, odd)) == {}


def test_only_the_last_snapshot_of_a_node_counts() -> None:
    old = node("gpu000", software__driver_version="535.1", time=1.0)
    assert drifted(*fleet(4), old) == {}


def test_many_odd_nodes_become_one_finding() -> None:
    odd = [node(f"odd{i}", software__driver_version="535.1") for i in range(20)]
    found, _ = judged(Case(snapshots=fleet(70, *odd)), "fleet.config_drift")
    assert len(found) == 1
    assert "20 differ" in found[0].what


def test_one_node_is_not_applicable() -> None:
    for rule in ("fleet.config_drift", "fleet.outlier", "fleet.rare_event"):
        found, check = judged(Case(snapshots=[node("a")]), rule)
        assert found == []
        assert check.outcome.value == "not applicable"


# -- outliers


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        ({"accelerators__4__replays": 5000}, "pcie_replays"),
        ({"accelerators__4__readings__0__temperature_c": 84}, "temperature"),
        ({"accelerators__4__readings__0__sm_clock_mhz": 1200}, "sm_clock"),
        ({"accelerators__4__readings__0__link_width": 8}, "pcie_width"),
        ({"accelerators__4__ecc_volatile__total_corrected": 4000}, "ecc_corrected"),
        ({"rdma__2__ports__0__counters__link_downed": 40}, "link_downed"),
        ({"memory__available_bytes": 100 * 10**9}, "memory_available"),
    ],
)
def test_a_number_far_from_its_peers_is_named(change: dict[str, object], metric: str) -> None:
    found, _ = judged(Case(snapshots=fleet(8, node("odd", **change))), "fleet.outlier")
    assert [(f.id, f.subject.node) for f in found] == [(f"fleet.outlier.{metric}", "odd")]


def test_healthy_nodes_have_no_outliers_and_few_peers_give_none() -> None:
    assert outliers(profiles(fleet(12))) == []
    assert outliers(profiles([node("a"), node("b", memory__available_bytes=10**9)])) == []


def test_small_counts_among_zeros_are_no_outliers() -> None:
    assert (
        outliers(profiles(fleet(12, node("odd", accelerators__1__replays=30, rdma__0__ports__0__counters__link_downed=3)))) == []
    )


def test_memory_in_use_is_information_since_jobs_explain_it() -> None:
    (one,), _ = judged(Case(snapshots=fleet(8, node("odd", memory__available_bytes=10**9))), "fleet.outlier")
    assert one.severity.value == "info"


def test_a_boot_line_that_was_not_collected_is_a_gap() -> None:
    compared = compare_config(profiles(fleet(6, node("odd", kernel__cmdline=None))))
    assert compared.drifts == []
    assert [(g.area, g.nodes) for g in compared.gaps] == [("cmdline", ["odd"])]


def test_an_idle_gpu_is_not_compared_with_busy_ones() -> None:
    idle = node("idle")
    for gpu in idle.accelerators or []:
        gpu.readings = [Reading(power_w=70.0, temperature_c=30, utilization_percent=0, sm_clock_mhz=345, link_width=16)]
    assert outliers(profiles(fleet(8, idle))) == []


def test_a_warm_slot_is_compared_with_the_same_slot() -> None:
    nodes = fleet(8)
    for snapshot in nodes:
        (snapshot.accelerators or [])[7].readings[0].temperature_c = 85
    assert outliers(profiles(nodes)) == []


# -- rates


def test_wraps_restarts_and_saturation_are_told_apart() -> None:
    assert delta(2**32 - 10, 5).how == "wrapped32"
    assert delta(2**32 - 10, 5).value == 15
    assert delta(2**64 - 1, 0).value == 1
    assert delta(1000, 3) == delta(7, 3)
    assert delta(1000, 3).how == "restarted"
    assert delta(5, 9, rebooted=True).value == 9
    assert delta(60000, 65535, stops_at=65535).how == "saturated"
    assert delta(2**32 - 10, 5, stops_at=255).how == "restarted"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_delta_is_never_negative(before: int, after: int) -> None:
    assert delta(before, after).value >= 0


def later(snapshot: Snapshot, seconds: float, **changes: object) -> tuple[Snapshot, Snapshot]:
    return snapshot, node(snapshot.node, time=(snapshot.time or 0) + seconds, host__uptime_s=86400.0 + seconds, **changes)


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({"rdma__0__ports__0__counters__symbol_error": 900}, "ib.symbol_error_rate"),
        ({"rdma__0__ports__0__counters__link_downed": 4}, "fleet.counter_rate"),
    ],
)
def test_a_rate_above_its_limit_is_found(change: dict[str, object], id_: str) -> None:
    found, _ = judged(Case(snapshots=list(later(node("a"), 3600.0, **change))), "fleet.counter_rate")
    assert [f.id for f in found] == [id_]


def test_replays_are_judged_by_the_limit_of_the_link() -> None:
    for count, ids in ((31 * 60 + 100, ["pcie.replay_rate"]), (1000, [])):
        before, after = later(node("a"), 3600.0, accelerators__0__replays=count)
        for snapshot in (before, after):
            for gpu in snapshot.accelerators or []:
                gpu.link_generation_max, gpu.link_width_max = 5, 16
        assert [f.id for f in judged(Case(snapshots=[before, after]), "fleet.counter_rate")[0]] == ids


def test_quiet_counters_and_a_reboot_give_no_finding() -> None:
    assert judged(Case(snapshots=list(later(node("a"), 3600.0))), "fleet.counter_rate")[0] == []
    before, after = later(node("a"), 3600.0, host__boot_id="new", rdma__0__ports__0__counters__link_downed=1)
    after.host.uptime_s = 600.0
    assert judged(Case(snapshots=[before, after]), "fleet.counter_rate")[0] == []
    assert {r.interval_s for r in counter_rates(before, after)} == {600.0}


def test_one_snapshot_a_node_is_not_checked() -> None:
    _, check = judged(Case(snapshots=fleet(3)), "fleet.counter_rate")
    assert check.outcome.value == "not checked"


# -- rare events


def test_fisher_agrees_with_the_tea_lady_and_with_itself_for_large_numbers() -> None:
    assert fisher_greater(4, 4, 4, 8) == pytest.approx(1 / 70)
    assert fisher_greater(3, 4, 4, 8) == pytest.approx(17 / 70)
    assert fisher_greater(0, 4, 4, 8) == 1
    exact = fisher_greater(9, 300, 12, 1000)
    assert fisher_greater(9, 301, 12, 1003) == pytest.approx(exact, rel=0.02)


@given(st.integers(1, 60), st.data())
def test_fisher_is_a_chance_that_falls_with_hits(total: int, data: st.DataObject) -> None:
    group, affected = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    chances = [fisher_greater(k, group, affected, total) for k in range(min(group, affected) + 1)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == pytest.approx(1.0)


def test_poisson_tail() -> None:
    assert poisson_greater(0, 3) == 1
    assert poisson_greater(1, 0.5) == pytest.approx(1 - math.exp(-0.5))
    assert poisson_greater(30, 2.0) == pytest.approx(4.5e-24, rel=0.1)
    assert poisson_greater(3, 10.0) == pytest.approx(1 - math.exp(-10) * (1 + 10 + 50))


def test_benjamini_hochberg_of_the_textbook() -> None:
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([]) == []


def versions(count: int, old: int) -> dict[str, dict[str, str]]:
    return {f"n{i}": {"driver": "535.104.05" if i < old else "550.54.15", "rack": f"r{i % 4}"} for i in range(count)}


def test_all_xid_119_on_one_driver_is_told_with_its_chance() -> None:
    (one,) = rare_events([("XID 119", f"n{i}", 1) for i in range(5)], versions(40, 12))
    assert one.text.startswith("all 5 XID 119 are on driver 535.104.05 (12 of 40 nodes")
    assert one.p == pytest.approx(math.comb(12, 5) / math.comb(40, 5))


def test_repeats_on_one_node_say_nothing_of_its_driver() -> None:
    assert rare_events([("XID 119", "n0", 50)], versions(40, 12)) == []


def test_events_spread_at_random_are_rarely_reported() -> None:
    reported = 0
    for seed in range(200):
        rng = random.Random(seed)
        reported += bool(rare_events([("XID 119", f"n{rng.randrange(40)}", 1) for _ in range(8)], versions(40, 12)))
    assert reported <= 10


def test_groups_of_the_same_nodes_are_one_statement() -> None:
    nodes = {n: {**v, "kernel": "5.15" if v["driver"].startswith("535") else "6.8"} for n, v in versions(40, 12).items()}
    (one,) = rare_events([("XID 119", f"n{i}", 1) for i in range(6)], nodes)
    assert one.group == ["driver 535.104.05", "kernel 5.15"]


def test_rack_is_a_group_when_the_caller_knows_it() -> None:
    assert attributes(node("r12-n3"), rack=lambda name: name.split("-")[0])["rack"] == "r12"


def test_the_rule_needs_logs_of_eight_nodes() -> None:
    nodes = fleet(12, *(node(f"old{i}", software__driver_version="535.1") for i in range(4)))
    events = [Event(kind="xid", code=119, text="Xid 119", node=f"old{i}") for i in range(4)]
    found, check = judged(Case(snapshots=nodes, events=events), "fleet.rare_event")
    assert found == []
    assert check.outcome.value == "not checked"
    (one,), _ = judged(Case(snapshots=nodes, events=events, kernel_logs=[n.node for n in nodes]), "fleet.rare_event")
    assert one.severity.value == "info"
    assert "all 4 XID 119 are on driver 535.1 (4 of 12 nodes" in one.what


# -- command line


def files(folder: Path, snapshots: list[Snapshot]) -> str:
    for snapshot in snapshots:
        snapshot.schema, snapshot.kilter = SCHEMA_VERSION, "0"
        (folder / f"{snapshot.node}.json").write_bytes(msgspec.json.encode(snapshot))
    return str(folder)


def test_command_shows_drift_outliers_and_gaps_within_100_columns(tmp_path: Path) -> None:
    odd = node("odd", software__driver_version="535.1", accelerators__4__replays=5000, pci=None)
    path = files(tmp_path, fleet(8, odd))
    result = CliRunner().invoke(command, [path])
    assert result.exit_code == 1, result.output
    assert "550.54.15 (7 of 8)" in result.output
    assert "535.1  on odd" in result.output
    assert "odd GPU4" in result.output
    assert "acs (1 facts): odd" in result.output
    assert all(len(line) <= 100 for line in result.output.splitlines())
    document = json.loads(CliRunner().invoke(command, [path, "--json"]).output)
    assert document["configuration"]["drifts"][0]["odd"][0]["node"] == "odd"


def test_command_ends_with_0_on_equal_nodes_and_2_on_one(tmp_path: Path) -> None:
    path = files(tmp_path, fleet(6))
    result = CliRunner().invoke(command, [path])
    assert result.exit_code == 0, result.output
    assert "No configuration drift." in result.output
    assert CliRunner().invoke(command, [str(tmp_path / "gpu000.json")]).exit_code == 2
    assert CliRunner().invoke(command, []).exit_code == 2
