from hypothesis import given, settings

from mangle import check_references, long_lines, mangled, parse_text

TEXT = (
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    "mlx5_0\t1\t0\tfe80:0000:0000:0000:0ac0:ebff:fe00:0001\t\t\tv1\trdma0\n"
    "mlx5_0\t1\t1\tfe80:0000:0000:0000:0ac0:ebff:fe00:0001\t\t\tv2\trdma0\n"
    "mlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv1\trdma0\n"
    "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv2\trdma0\n"
    "mlx5_2\t1\t0\tfe80:0000:0000:0000:ec0d:9a03:0000:0002\t\t\tv1\n"
    "n_gids_found=5\n"
)


def read(text):
    fragment = parse_text("show_gids", text)
    check_references(fragment, text)
    return fragment


def test_index_version_and_interface():
    fragment = read(TEXT)
    assert (fragment.unplaced, fragment.notes) == ([], [])
    first, second = fragment.snapshot.rdma
    (port,) = first.ports
    assert [(gid.index, gid.type, gid.netdev) for gid in port.gids] == [
        (0, "IB/RoCE v1", "rdma0"),
        (1, "RoCE v2", "rdma0"),
        (2, "IB/RoCE v1", "rdma0"),
        (3, "RoCE v2", "rdma0"),
    ]
    assert port.gids[3].gid == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert port.netdev == "rdma0"
    assert second.ports[0].netdev is None


def test_columns_of_spaces():
    assert read(TEXT.expandtabs()).snapshot.rdma[0].ports[0].gids[3].type == "RoCE v2"


def test_a_table_without_its_end_is_told():
    assert any("cut short" in note for note in read("\n".join(TEXT.splitlines()[:-1])).notes)
    assert any("4 of 5" in note for note in read(TEXT.replace("mlx5_2", "")).notes)


@given(mangled(TEXT))
@settings(max_examples=100, deadline=None)
def test_damaged_texts_raise_nothing(text):
    check_references(parse_text("show_gids", text), text)


@given(long_lines("", "mlx5_0 1 3 ", "mlx5_0 1 3 fe80:", "--- --- ", "n_gids_found="))
@settings(max_examples=40, deadline=2000)
def test_long_lines_take_no_time(text):
    parse_text("show_gids", text)
