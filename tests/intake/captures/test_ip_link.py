import json

from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

LINK = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00 promiscuity 0 minmtu 0 maxmtu 0
2: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 9978 numtxqueues 512 parentbus pci parentdev 0000:1a:00.0
    altname enp26s0f0np0
3: ens1f1np1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff
4: ibp24s0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4092 qdisc mq state UP mode DEFAULT group default qlen 256
    link/infiniband 00:00:10:29:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:04 brd 00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff
5: veth12ab@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UP mode DEFAULT group default
    link/ether 02:00:00:00:00:05 brd ff:ff:ff:ff:ff:ff link-netnsid 0
"""
ADDR = """2: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens1f0np0
       valid_lft forever preferred_lft forever
    inet6 fe80::1/64 scope link
       valid_lft forever preferred_lft forever
"""
JSON = json.dumps(
    [
        {
            "ifindex": 1,
            "ifname": "lo",
            "flags": ["LOOPBACK", "UP"],
            "mtu": 65536,
            "operstate": "UNKNOWN",
            "link_type": "loopback",
        },
        {
            "ifindex": 2,
            "ifname": "ens1f0np0",
            "flags": ["BROADCAST", "UP", "LOWER_UP"],
            "mtu": 9000,
            "operstate": "UP",
            "link_type": "ether",
            "address": "02:00:00:00:00:01",
            "parentbus": "pci",
            "parentdev": "0000:1a:00.0",
            "addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}],
        },
    ]
)


def read(text):
    fragment = parse_text("ip_link", text)
    check_references(fragment, text)
    return fragment


def names(fragment):
    return [nic.name for nic in fragment.snapshot.nics]


def test_interfaces_with_hardware_and_their_state():
    fragment = read(LINK)
    assert fragment.unplaced == []
    assert names(fragment) == ["ens1f0np0", "ens1f1np1", "ibp24s0"]
    first, second, third = fragment.snapshot.nics
    assert (first.mtu, first.operstate, first.carrier, first.mac) == (9000, "up", True, "02:00:00:00:00:01")
    assert (first.link_type, first.pci_address, first.addresses) == (1, "0000:1a:00.0", None)
    assert (second.operstate, second.carrier) == ("down", False)
    assert (third.link_type, third.mtu) == (32, 4092)


def test_addresses():
    (nic,) = read(ADDR).snapshot.nics
    assert nic.addresses == ["10.0.0.1/24", "fe80::1/64"]


def test_one_line_a_fact():
    text = (
        "2: ens1f0np0: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP qlen 1000\\    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
        "2: ens1f0np0    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens1f0np0\\       valid_lft forever preferred_lft forever\n"
    )
    (nic,) = read(text).snapshot.nics
    assert (nic.mtu, nic.mac, nic.addresses) == (9000, "02:00:00:00:00:01", ["10.0.0.1/24"])


def test_brief_form():
    fragment = read(
        "lo               UNKNOWN        127.0.0.1/8 ::1/128\n"
        "ens1f0np0        UP             10.0.0.1/24 fe80::1/64\n"
        "ens1f1np1        DOWN           02:00:00:00:00:02 <NO-CARRIER,BROADCAST,MULTICAST,UP>\n"
    )
    assert names(fragment) == ["ens1f0np0", "ens1f1np1"]
    assert fragment.snapshot.nics[0].addresses == ["10.0.0.1/24", "fe80::1/64"]
    assert fragment.snapshot.nics[1].carrier is False


def test_json_on_one_line_and_pretty():
    for text in (JSON, json.dumps(json.loads(JSON), indent=4), JSON + "\nsomething else\n"):
        fragment = read(text)
        (nic,) = fragment.snapshot.nics
        assert (nic.name, nic.mtu, nic.carrier, nic.pci_address) == ("ens1f0np0", 9000, True, "0000:1a:00.0")
        assert nic.addresses == ["10.0.0.1/24"]


def test_json_that_is_cut_is_told():
    fragment = read(JSON[:200])
    assert fragment.notes
    assert fragment.unplaced


def test_json_of_other_shapes_is_survived():
    for text in (
        "[1, 2]",
        '[{"ifname": 3}]',
        '[{"ifname": "a", "mtu": "x", "addr_info": 5, "flags": 1, "address": 2}]',
        "[" * 100_000,
    ):
        read(text)


@given(mangled(LINK + ADDR))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    check_references(parse_text("ip_link", text), text)


@given(mangled(JSON))
@settings(max_examples=60, deadline=None)
def test_damaged_json_raises_nothing(text):
    parse_text("ip_link", text)


@given(long_lines("", "1: a: <", "1: a: <UP> mtu ", "1: a    inet ", "a  UP  ", "[{"))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ip_link", text)
