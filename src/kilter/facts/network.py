"""RDMA devices with their ports, and network interfaces."""

from __future__ import annotations

import re

import msgspec

from kilter.facts.base import Entity

#: Interfaces without hardware, by the names that their makers give them; asked only where nothing else tells.
VIRTUAL_INTERFACE = re.compile(
    r"(?:lo|bonding_masters|veth|docker|br-|virbr|vnet|tap|tun|cali|cilium|lxc|flannel|cni|kube|nodelocal|dummy|ifb|vxlan|geneve|ovs|wg|sit|gre|ip6)"
)


class Gid(msgspec.Struct, omit_defaults=True):
    index: int
    gid: str
    type: str = ""  # "IB/RoCE v1", "RoCE v2"
    netdev: str = ""


class RdmaPort(Entity):
    number: int
    link_layer: str | None = None  # InfiniBand, Ethernet
    state: str | None = None  # ACTIVE, INIT, DOWN, ARMED; the word alone
    physical_state: str | None = None  # LinkUp, Polling, Disabled; the word alone
    rate_gbps: float | None = None
    rate_text: str | None = None  # "4X NDR"
    lid: int | None = None
    sm_lid: int | None = None
    active_mtu: int | None = None
    max_mtu: int | None = None
    gids: list[Gid] | None = None
    counters: dict[str, int] = {}  # names of /sys/class/infiniband/*/ports/*/counters
    hw_counters: dict[str, int] = {}
    netdev: str | None = None


class RdmaDevice(Entity):
    name: str
    pci_address: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    hca_type: str | None = None  # MT4129
    node_guid: str | None = None
    node_desc: str | None = None
    numa_node: int | None = None
    ports: list[RdmaPort] = []


class NetInterface(Entity):
    name: str
    pci_address: str | None = None
    driver: str | None = None
    driver_version: str | None = None
    firmware: str | None = None
    link_type: int | None = None  # ARPHRD: 1 Ethernet, 32 InfiniBand
    mac: str | None = None
    mtu: int | None = None
    operstate: str | None = None
    carrier: bool | None = None
    carrier_down_count: int | None = None
    speed_mbps: int | None = None
    numa_node: int | None = None
    addresses: list[str] | None = None
    statistics: dict[str, int] = {}  # ethtool -S
    rx_ring: int | None = None
    tx_ring: int | None = None
    pause_rx: bool | None = None
    pause_tx: bool | None = None
    pfc_priorities: list[int] | None = None
    ecn_priorities: list[int] | None = None
    trust: str | None = None  # pcp, dscp
