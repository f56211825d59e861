"""What joins RDMA devices with ports, network interfaces and PCI: ``rdma link``, ``rdma statistic``, ``ibdev2netdev [-v]``, ``mst status -v``.

Sources of the formats: iproute2, rdma/link.c and rdma/stat.c; Mellanox OFED, ibdev2netdev; mstflint/mft, mst status.
"""

from __future__ import annotations

import re

from kilter.facts.network import RdmaPort
from kilter.facts.pci import pci_address
from kilter.intake.captures.bounded import lines
from kilter.intake.captures.ibstat import rdma_device, rdma_port
from kilter.intake.fragment import Block, Fragment

_LINK = re.compile(r"(?:\d+: )?link (?P<device>[\w.-]{1,64})/(?P<port>\d{1,5}) (?P<rest>.*)$")
_NETDEV = re.compile(r"(?P<device>[\w.-]{1,64}) port (?P<port>\d{1,5}) ==> (?P<netdev>[\w.@:-]{1,32}) \((?P<state>Up|Down)\)$")
_VERBOSE = re.compile(
    r"(?P<pci>[0-9a-f:.]{7,16}) (?P<device>[\w.-]{1,64}) \((?P<type>MT\d{3,6})[^()]{0,80}\).{0,300} fw (?P<fw>[\d.]{3,20}) "
    r"port (?P<port>\d{1,5}) \((?P<state>[A-Z_]{2,16}) *\) ==> (?P<netdev>[\w.@:-]{1,32}) \((?P<up>Up|Down)\)$"
)
_MST = re.compile(
    r"\w[\w-]*\(rev:\w+\) +\S+ +(?P<pci>[0-9a-f:]{2,12}\.[0-7]) +(?P<device>[a-z]\w{1,30}) +(?:net-)?\S+ +(?P<numa>-?\d{1,4})$"
)
_MST_REST = re.compile(
    r"MST modules:|-+$|MST PCI |PCI devices:|DEVICE_TYPE|\S+\(rev:|Cable devices|In-Band|Linkx|I2C|MST devices|No MST devices|NA$"
)
_RES = re.compile(r"\d+: [\w.-]{1,64}: (?:qp|cq|pd|mr|ctx|cm_id|srq) \d")
_PHYSICAL = {
    "LINK_UP": "LinkUp",
    "POLLING": "Polling",
    "DISABLED": "Disabled",
    "SLEEP": "Sleep",
    "PORT_CONFIGURATION_TRAINING": "PortConfigurationTraining",
    "LINK_ERROR_RECOVER": "LinkErrorRecovery",
    "PHY_TEST": "Phy Test",
}
#: no LID was given out yet
_NO_LID = 0xFFFF


def _port(fragment: Fragment, device: str, number: str, line: int) -> RdmaPort:
    return rdma_port(fragment, rdma_device(fragment, device, line), int(number), line)


def _netdev(fragment: Fragment, port: RdmaPort, name: str, state: str, line: int) -> None:
    port.put("netdev", name, fragment.ref(line))
    fragment.interface(name, line).put("operstate", state.lower(), fragment.ref(line))


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _link(fragment: Fragment, match: re.Match[str], line: int) -> bool:
    """A line of ``rdma link``: state and lids; of ``rdma statistic``: counters."""
    pairs = _pairs(match["rest"])
    ref = fragment.ref(line)
    if "state" in pairs:
        port = _port(fragment, match["device"], match["port"], line)
        port.put("state", pairs["state"], ref)
        word = pairs.get("physical_state", "")
        port.put("physical_state", _PHYSICAL.get(word, word) or None, ref)
        port.put("netdev", pairs.get("netdev"), ref)
        port.put("link_layer", "InfiniBand" if "subnet_prefix" in pairs else "Ethernet" if "netdev" in pairs else None, ref)
        for key, field in (("lid", "lid"), ("sm_lid", "sm_lid")):
            if re.fullmatch(r"\d{1,6}", pairs.get(key, "")) and int(pairs[key]) != _NO_LID:
                port.put(field, int(pairs[key]), ref)
        return True
    counters = {name: int(value) for name, value in pairs.items() if re.fullmatch(r"\d{1,20}", value)}
    if not counters or "lqpn" in pairs or "cntn" in pairs:  # of a queue pair
        return "lqpn" in pairs or "cntn" in pairs
    port = _port(fragment, match["device"], match["port"], line)
    port.hw_counters.update(counters)
    port.origin.setdefault("hw_counters", ref)
    return True


def parse(block: Block, fragment: Fragment) -> None:
    """RDMA devices with PCI address, firmware and NUMA node; ports with states, lids, netdev and hardware counters."""
    for line, raw in lines(block, fragment, limit=16384):
        text = raw.strip()
        ref = fragment.ref(line)
        if not text:
            continue
        if match := _LINK.match(text):
            if not _link(fragment, match, line):
                fragment.unparsed(line, raw)
        elif match := _NETDEV.match(text):
            _netdev(fragment, _port(fragment, match["device"], match["port"], line), match["netdev"], match["state"], line)
        elif match := _VERBOSE.match(text):
            device = rdma_device(fragment, match["device"], line)
            device.put("pci_address", pci_address(match["pci"]), ref)
            device.put("hca_type", match["type"], ref)
            device.put("firmware", match["fw"], ref)
            port = rdma_port(fragment, device, int(match["port"]), line)
            port.put("state", match["state"], ref)
            _netdev(fragment, port, match["netdev"], match["up"], line)
        elif match := _MST.match(text):
            device = rdma_device(fragment, match["device"], line)
            device.put("pci_address", pci_address(match["pci"]), ref)
            device.put("numa_node", int(match["numa"]), ref)
        elif not (_RES.match(text) or _MST_REST.match(text)):
            fragment.unparsed(line, raw)
