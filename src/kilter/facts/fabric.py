"""The InfiniBand fabric as its tools see it: nodes, ports, cables and counters beyond this host."""

from __future__ import annotations

from kilter.facts.base import Entity


class FabricPort(Entity):
    number: int
    guid: str | None = None  # of the port, where it is not that of the node
    lid: int | None = None
    state: str | None = None  # ACTIVE, INIT, DOWN; the word alone
    physical_state: str | None = None
    width: str | None = None  # "4x"
    speed: str | None = None  # "NDR", "HDR", "25.78125 Gbps", as printed
    width_possible: str | None = None  # "4x": what both ends support, where the tool says that it is more
    speed_possible: str | None = None  # "NDR", likewise
    remote_guid: str | None = None  # of the node or of its port; "lid 12" where nothing else is known
    remote_port: int | None = None
    remote_name: str | None = None
    counters: dict[str, int] = {}  # names of /sys/class/infiniband counters where there is one, else the tool's in lower case
    growth: dict[str, int] = {}  # the same names -> by how much they rose while the tool ran
    ber: dict[str, float] = {}  # raw, effective (after FEC), symbol -> bit error rate


class FabricNode(Entity):
    """A switch, channel adapter or router, by its node GUID."""

    guid: str
    kind: str | None = None  # switch, ca, router
    name: str | None = None  # node description
    device_id: str | None = None
    ports: list[FabricPort] = []
    firmware: str | None = None
    psid: str | None = None
    temperature_c: int | None = None
    fans: dict[str, str] = {}  # fan -> "ERROR", or its speed as printed
    power_supplies: dict[str, str] = {}  # unit -> status as printed
