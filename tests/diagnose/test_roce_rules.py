"""Rules on RDMA over Ethernet, each with a fault and its healthy twin."""

import pytest

import kilter.diagnose.rules.roce  # noqa: F401  # registers its rules
from kilter.diagnose.engine import diagnose
from kilter.diagnose.rules.roce import chosen, roce_mtu
from kilter.facts.case import Case, Snapshot
from kilter.facts.event import Event
from kilter.facts.host import Environment
from kilter.facts.measure import Sample
from kilter.facts.nccl import NcclJob
from kilter.facts.network import Gid, NetInterface, RdmaDevice, RdmaPort

V4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
LOCAL = "fe80:0000:0000:0000:0ac0:ebff:fe00:0001"
TABLE = [Gid(0, LOCAL, "IB/RoCE v1"), Gid(1, LOCAL, "RoCE v2"), Gid(2, V4, "IB/RoCE v1"), Gid(3, V4, "RoCE v2")]


class Verdict:
    def __init__(self, case):
        self.diagnosis = diagnose(case)
        self.ids = {f.id: f.severity.value for f in self.diagnosis.findings}

    def one(self, finding_id):
        (finding,) = [f for f in self.diagnosis.findings if f.id == finding_id]
        return finding

    def outcome(self, rule):
        (check,) = [c for c in self.diagnosis.checks if c.rule == rule]
        return check.outcome.value


def device(number, gids=None, **more):
    port = RdmaPort(number=1, link_layer="Ethernet", state="ACTIVE", rate_gbps=400.0, netdev=f"rdma{number}", gids=gids, **more)
    return RdmaDevice(name=f"mlx5_{number}", hca_type="MT4129", ports=[port])


def node(devices, variables=None, nics=None, samples=None):
    return Snapshot(
        node="n1", rdma=devices, nics=nics, environment=Environment(variables=variables), samples=samples or []
    )  # fmt: skip


def judge(*snapshots, jobs=(), events=()):
    return Verdict(Case(snapshots=list(snapshots), jobs=list(jobs), events=list(events)))


def with_index(index, tables=(TABLE, TABLE), **more):
    return judge(node([device(n, t) for n, t in enumerate(tables)], {"NCCL_IB_GID_INDEX": index, **more}))


@pytest.mark.parametrize(("index", "severity"), [("0", "error"), ("2", "error"), ("7", "error"), ("1", "warning")])
def test_an_index_that_cannot_be_routed(index, severity):
    verdict = with_index(index)
    assert verdict.ids == {"net.roce.gid_index_wrong": severity}
    assert "index 3" in verdict.one("net.roce.gid_index_wrong").what


@pytest.mark.parametrize("index", ["3", "-1"])
def test_the_right_index_is_silent(index):
    assert with_index(index).ids == {}


def test_indices_that_differ_between_ports():
    finding = with_index("3", (TABLE, [*TABLE[:2], Gid(4, V4, "RoCE v2")])).one("net.roce.gid_index_wrong")
    assert "1 of 2 RoCE ports" in finding.what
    assert "unset" in finding.what


def test_ports_that_nccl_does_not_use_are_not_judged():
    assert with_index("3", (TABLE, TABLE[:2]), NCCL_IB_HCA="mlx5_0").ids == {}
    assert with_index("3", (TABLE, TABLE[:2]), NCCL_IB_HCA="^mlx5_1").ids == {}


def test_index_without_a_table_is_not_checked():
    assert with_index("3", (None, None)).outcome("net.roce.gid_index_wrong") == "not checked"


def test_index_of_an_nccl_log():
    job = NcclJob(source="job.log", environment={"NCCL_IB_GID_INDEX": "0"}, origin={"environment/NCCL_IB_GID_INDEX": (0, 5)})
    finding = judge(node([device(0, TABLE)]), jobs=[job]).one("net.roce.gid_index_wrong")
    assert any(e.where == "job.log:5" for e in finding.evidence)


def completion(code=12):
    return Event(kind="nccl.ib.completion", code=code, source="job.log", line=9, text="Got completion with status=12")


@pytest.mark.parametrize("version", [None, "2.18.3", "2.23.4"])
def test_status_12_over_ethernet_is_a_hypothesis_only(version):
    job = NcclJob(source="job.log", version=version, ib_devices=["mlx5_0:1/RoCE"])
    finding = judge(jobs=[job], events=[completion()]).one("net.roce.gid_index_wrong")
    assert (finding.severity.value, finding.confidence) == ("info", "low")
    assert any(e.role == "contradicts" for e in finding.evidence) is (version == "2.23.4")


def test_status_12_over_infiniband_is_no_matter_of_gids():
    job = NcclJob(source="job.log", ib_devices=["mlx5_0:1/IB"])
    assert "net.roce.gid_index_wrong" not in judge(jobs=[job], events=[completion()]).ids


@pytest.mark.parametrize(
    ("hca", "used"),
    [("", True), ("mlx5", True), ("mlx5_1", True), ("=mlx5_1", True), ("=mlx5", False), ("^mlx5_1", False), ("mlx5_1:2", False), ("mlx5_0,mlx5_1:1", True), ("^=mlx5", True)],
)  # fmt: skip
def test_which_port_nccl_uses(hca, used):
    one = device(1)
    assert chosen((one, one.ports[0]), hca) is used


def test_a_table_of_v1_only_is_information():
    assert judge(node([device(0, TABLE[::2])])).ids == {"net.roce.v1_in_use": "info"}
    assert judge(node([device(0, TABLE)])).ids == {}
    infiniband = RdmaDevice(name="mlx5_0", ports=[RdmaPort(number=1, link_layer="InfiniBand", gids=TABLE[:1])])
    assert judge(node([infiniband])).outcome("net.roce.v1_in_use") == "not applicable"


def nics(*mtus, **more):
    return [NetInterface(name=f"rdma{n}", mtu=mtu, **more) for n, mtu in enumerate(mtus)]


def test_mtu_of_one_port_differs():
    devices = [device(n) for n in range(4)]
    verdict = judge(node(devices, nics=nics(9000, 9000, 1500, 9000)))
    assert verdict.ids == {"net.mtu_mismatch": "warning"}
    assert "rdma2" in verdict.one("net.mtu_mismatch").what
    assert judge(node(devices, nics=nics(9000, 9000, 9000, 9000))).ids == {}


def test_another_network_may_have_another_mtu():
    storage = device(4)
    storage.hca_type = "MT4125"
    assert judge(node([device(0), device(1), device(2), storage], nics=nics(9000, 9000, 9000, 0, 1500))).ids == {}


def test_rdma_mtu_below_its_interface():
    assert judge(node([device(0, active_mtu=1024)], nics=nics(9000))).ids == {"net.mtu_mismatch": "warning"}
    assert judge(node([device(0, active_mtu=1024)], nics=nics(1500))).ids == {}
    assert judge(node([device(0, active_mtu=4096)], nics=nics(9000))).ids == {}


@pytest.mark.parametrize(("mtu", "size"), [(1500, 1024), (9000, 4096), (4200, 4096), (4191, 2048), (100, 0)])
def test_room_for_rdma(mtu, size):
    assert roce_mtu(mtu) == size


def qos(number, pfc, trust="dscp", ecn=None, **statistics):
    return NetInterface(
        name=f"rdma{number}", mtu=9000, pfc_priorities=pfc, trust=trust, ecn_priorities=ecn, statistics=statistics
    )  # fmt: skip


def test_a_port_without_the_lossless_priority_of_its_siblings():
    devices = [device(n) for n in range(3)]
    verdict = judge(node(devices, nics=[qos(0, [3]), qos(1, []), qos(2, [3], trust="pcp")]))
    assert verdict.ids == {"net.pfc_mismatch": "warning"}
    what = verdict.one("net.pfc_mismatch").what
    assert "rdma1: PFC priorities none (siblings 3)" in what
    assert "rdma2: trust pcp (siblings dscp)" in what
    assert judge(node(devices, nics=[qos(n, [3]) for n in range(3)])).ids == {}


def test_settings_alone_are_compared_where_no_port_is_known():
    assert judge(node(None, nics=[qos(0, [3]), qos(1, [])])).ids == {"net.pfc_mismatch": "warning"}
    assert judge(node(None, nics=[qos(0, [3]), qos(1, [3])])).ids == {}


def test_drops_without_any_flow_control():
    drops = {"rx_discards_phy": 5000, "rx_packets_phy": 1_000_000}
    assert judge(node([device(0)], nics=[qos(0, [], ecn=[], **drops)])).ids["net.roce.lossy"] == "warning"
    assert judge(node([device(0)], nics=[qos(0, [], **drops)])).ids["net.roce.lossy"] == "info"
    assert "net.roce.lossy" not in judge(node([device(0)], nics=[qos(0, [3], ecn=[3], **drops)])).ids
    assert judge(node([device(0)], nics=[qos(0, [], ecn=[])])).ids == {}


def test_settings_that_nobody_looked_at_are_not_checked():
    assert judge(node([device(0)])).outcome("net.pfc_mismatch") == "not checked"


def alarm(name):
    return Sample(metric="module_alarm", value=1.0, unit="flag", tool="ethtool -m", conditions={"device": "rdma0", "name": name})


def test_an_alarm_of_a_module():
    reading = Sample(metric="module_temperature", value=40.0, unit="C", tool="ethtool -m", conditions={"device": "rdma0"})
    assert judge(node([], samples=[reading, alarm("Rx power low alarm (Channel 1)")])).ids == {"net.module_alarm": "warning"}
    assert judge(node([], samples=[reading, alarm("Rx power low warning")])).ids == {"net.module_alarm": "info"}
    dark = [NetInterface(name="rdma0", carrier=False)]
    assert judge(node([], nics=dark, samples=[alarm("Rx power low alarm")])).ids == {"net.module_alarm": "info"}
    assert judge(node([], samples=[reading])).ids == {}
