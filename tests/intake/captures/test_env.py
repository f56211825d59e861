from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

ENV = """\
SHELL=/bin/bash
NCCL_IB_HCA=^mlx5_bond_0
NCCL_SOCKET_IFNAME="eth0"
CUDA_VISIBLE_DEVICES=0,1,2,3
HOSTNAME=gpu-07
NGC_API_KEY=abc
HF_TOKEN=hf_secretvalue
CUDA_SECRET_THING=hidden
MASTER_ADDR=10.0.0.1
LD_LIBRARY_PATH=/usr/local/cuda/lib64:/opt/nccl=x
UCX_TLS=
"""
DECLARE = r"""declare -x NCCL_DEBUG="INFO"
declare -x NCCL_DEBUG_FILE="/tmp/a \"b\" \$c"
declare -x OMP_NUM_THREADS="8"
declare -x OLDPWD
export NCCL_P2P_LEVEL=NVL
export NCCL_ALGO='Ring'
"""


def variables(text):
    return parse_text("env", text).snapshot.environment.variables


def test_env_keeps_what_matters_to_gpu_work_as_printed():
    assert variables(ENV) == {
        "NCCL_IB_HCA": "^mlx5_bond_0",
        "NCCL_SOCKET_IFNAME": '"eth0"',  # env prints no quotes: these are part of the value, and a mistake
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "MASTER_ADDR": "10.0.0.1",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/opt/nccl=x",
        "UCX_TLS": "",
    }


def test_export_and_declare_are_unquoted():
    assert variables(DECLARE) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": '/tmp/a "b" $c',
        "OMP_NUM_THREADS": "8",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_ALGO": "Ring",
    }


def test_no_secret_is_stored_anywhere():
    fragment = parse_text(
        "env", ENV + "SSH_STUFF=-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    everything = repr((fragment.snapshot, fragment.unplaced, fragment.notes))
    for secret in ("hf_secretvalue", "hidden", "b3BlbnNzaC1rZXk", "abc"):
        assert secret not in everything
    assert "variables.CUDA_SECRET_THING" in fragment.snapshot.environment.missing


def test_the_host_name_of_a_container_names_no_node():
    fragment = parse_text("env", ENV)
    assert fragment.snapshot.node == ""
    assert fragment.snapshot.host.hostname is None


def test_no_gpu_variable_at_all_is_an_answer():
    assert variables("HOME=/root\nLANG=C\n") == {}


def test_what_is_no_variable_is_kept():
    assert parse_text("env", "NCCL_DEBUG=INFO\n hello there\n").unplaced == [(2, " hello there")]


@settings(max_examples=80, deadline=None)
@given(mangled(ENV) | mangled(DECLARE))
def test_no_damage_makes_the_parser_fail(text):
    check_references(parse_text("env", text), text)


STARTS = ["NCCL_A=", "export A", 'declare -x NCCL_A="']


@settings(max_examples=60, deadline=None)
@given(long_lines(*STARTS))
def test_lines_of_any_length_are_survived(text):
    parse_text("env", text)
