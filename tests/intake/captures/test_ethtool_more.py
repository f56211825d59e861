from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

MODULE = """\tIdentifier                                : 0x11 (QSFP28)
\tExtended identifier                       : 0xcc
\tConnector                                 : 0x0c (MPO Parallel Optic)
\tVendor name                               : EXAMPLE
\tLaser bias current                        : 7.500 mA
\tTransmit avg optical power (Channel 1)    : 0.9127 mW / -0.40 dBm
\tTransmit avg optical power (Channel 2)    : 0.8000 mW / -0.97 dBm
\tRcvr signal avg optical power(Channel 1)  : 0.0001 mW / -40.00 dBm
\tModule temperature                        : 48.31 degrees C / 118.96 degrees F
\tModule voltage                            : 3.2850 V
\tAlarm/warning flags implemented           : Yes
\tRx power low alarm (Channel 1)            : On
\tModule temperature high alarm             : Off
\tModule temperature high alarm threshold   : 75.00 degrees C / 167.00 degrees F
\tRcvr signal avg optical power low alarm threshold : 0.0500 mW / -13.01 dBm
"""
FEATURES = "Features for ens1f0:\nrx-checksumming: on\ntx-scatter-gather: on [fixed]\n"


def read(text, command="ethtool -m ens1f0"):
    fragment = parse_text("ethtool_more", text, command=command)
    check_references(fragment, text)
    return fragment


def samples(fragment, metric):
    return [(s.value, s.unit, s.conditions) for s in fragment.snapshot.samples if s.metric == metric]


def test_readings_of_a_module():
    fragment = read(MODULE)
    assert fragment.unplaced == []
    assert samples(fragment, "module_temperature") == [(48.31, "C", {"device": "ens1f0"})]
    assert samples(fragment, "tx_power") == [
        (-0.40, "dBm", {"device": "ens1f0", "lane": "1"}),
        (-0.97, "dBm", {"device": "ens1f0", "lane": "2"}),
    ]
    assert [value for value, _, _ in samples(fragment, "rx_power")] == [-40.0]
    assert [unit for _, unit, _ in samples(fragment, "laser_bias")] == ["mA"]


def test_only_flags_that_are_on_are_alarms():
    ((value, _, conditions),) = samples(read(MODULE), "module_alarm")
    assert (value, conditions["name"]) == (1.0, "Rx power low alarm (Channel 1)")


def test_features_are_read_over():
    fragment = read(FEATURES)
    assert (fragment.unplaced, fragment.snapshot.samples) == ([], [])


def test_an_error_is_told():
    assert read("netlink error: Invalid argument\n").notes


@given(mangled(MODULE + FEATURES))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    check_references(parse_text("ethtool_more", text), text)


@given(long_lines("", "Identifier : 0x11\n", "Identifier : 0x11\nModule temperature : ", "Features for "))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("ethtool_more", text)
