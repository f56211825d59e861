from hypothesis import given, settings

from kilter.facts.base import Reason
from mangle import check_references, long_lines, mangled, parse_text

TEXT = """\
abi.vsyscall32 = 1
kernel.numa_balancing = 0
net.core.rmem_max = 268435456
net.ipv4.tcp_rmem = 4096\t131072\t6291456
net.ipv4.conf.eth0/100.rp_filter = 2
sysctl: permission denied on key 'fs.protected_hardlinks'
sysctl: cannot stat /proc/sys/net/ipv4/tcp_foo: No such file or directory
vm.swappiness=60
# vm.zone_reclaim_mode = 1
kernel.core_pattern = |/usr/lib/systemd/systemd-coredump %P %u = x
kernel.domainname =
"""


def test_keys_and_values():
    fragment = parse_text("sysctl", TEXT)
    sysctls = fragment.snapshot.kernel.sysctls
    assert fragment.unplaced == []
    assert sysctls["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    assert sysctls["vm.swappiness"] == "60"
    assert sysctls["net.ipv4.conf.eth0/100.rp_filter"] == "2"
    assert sysctls["kernel.core_pattern"].endswith("= x")
    assert sysctls["kernel.domainname"] == ""
    assert "vm.zone_reclaim_mode" not in sysctls
    assert fragment.snapshot.kernel.origin["sysctls.vm.swappiness"] == (0, 8)


def test_unreadable_and_absent_keys_have_a_reason():
    missing = parse_text("sysctl", TEXT).snapshot.kernel.missing
    assert missing["sysctls.fs.protected_hardlinks"].reason is Reason.NOT_READABLE
    assert missing["sysctls.net.ipv4.tcp_foo"].reason is Reason.ABSENT


def test_slashes_become_dots():
    assert parse_text("sysctl", "net/ipv4/ip_forward = 1\n").snapshot.kernel.sysctls == {"net.ipv4.ip_forward": "1"}


def test_foreign_lines_are_kept():
    assert parse_text("sysctl", TEXT + "hello world\n").unplaced == [(12, "hello world")]


@settings(max_examples=80, deadline=None)
@given(mangled(TEXT))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("sysctl", text), text)


STARTS = ["", "a.b = ", "a."]


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("sysctl", text)
