from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilter.knowledge import gpus
from kilter.knowledge.gpus import expected_nvlinks, for_device


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA H20", "H20-96GB"),
        ("NVIDIA H20-3e", "H20-141GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA B200", "B200-SXM"),
        ("NVIDIA B300 SXM6 AC", "B300-SXM"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA L40S", "L40S"),
        ("P800 OAM", "Kunlun-P800"),
        ("GA100 [A100 SXM4 80GB]", "A100-SXM-80GB"),
        ("NVIDIA Corporation GA100 [A100 PCIe 40GB]", "A100-PCIe-40GB"),
    ],
)
def test_a_gpu_is_known_by_the_name_that_tools_print(name, key):
    assert for_device(name=name).key == key


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-40C",  # a vGPU
        "GRID A100-10C",
        "NVIDIA H100",  # 64, 94 or 96 GB: which, the name does not say
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",  # known, but without figures
        "NVIDIA R200",  # not Baidu's R200
        "Intel Arc A770",
        "",
    ],
)
def test_unsure_names_have_no_figures(name):
    assert for_device(name=name) is None


def test_a_gpu_is_known_by_its_pci_id():
    assert for_device(pci_device_id=0x2330).key == "H100-SXM-80GB"
    assert for_device(pci_device_id=0x2330, name="Device 2330").key == "H100-SXM-80GB"
    assert for_device(pci_device_id=0x2330, name="GH100").key == "H100-SXM-80GB"
    assert for_device(pci_device_id=0x9999) is None
    assert for_device() is None


def test_facts_that_contradict_each_other_have_no_answer():
    assert for_device(pci_device_id=0x2330, name="NVIDIA H200") is None
    assert for_device(pci_device_id=0x20B2, name="NVIDIA A100-40C") is None  # a vGPU on an A100
    assert for_device(name="NVIDIA A100-SXM4-80GB", memory_mib=40_960) is None
    assert for_device(name="NVIDIA A100-SXM4-80GB", memory_mib=81_920).memory_gb == 80


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559),
        ("NVIDIA H200", 143_771),
        ("NVIDIA B200", 183_359),
        ("NVIDIA H20", 97_871),
        ("NVIDIA L40S", 46_068),
        ("NVIDIA A10", 23_028),
        ("NVIDIA GeForce RTX 4090", 24_564),
        ("Tesla V100-SXM2-32GB", 32_768),
        ("P800 OAM", 98_304),
    ],
)
def test_the_memory_that_tools_print_fits_the_product(name, memory_mib):
    assert for_device(name=name, memory_mib=memory_mib) is not None


@pytest.mark.parametrize(
    ("name", "count", "gb_s", "optional"),
    [
        ("Tesla V100-SXM2-32GB", 6, 25.781, False),
        ("NVIDIA A100-SXM4-80GB", 12, 25, False),
        ("NVIDIA A800-SXM4-80GB", 8, 25, False),
        ("NVIDIA H100 80GB HBM3", 18, 26.562, False),
        ("NVIDIA H100 NVL", 12, 26.562, True),
        ("NVIDIA H800", 8, 26.562, False),
        ("NVIDIA H20", 18, 26.562, False),
        ("NVIDIA H200", 18, 26.562, False),
        ("NVIDIA B200", 18, 53.125, False),
        ("NVIDIA GB200", 18, 53.125, False),
        ("NVIDIA L40S", 0, None, False),
    ],
)
def test_nvlinks_of_a_product(name, count, gb_s, optional):
    links = expected_nvlinks(name=name)
    assert (links.count, links.link_gb_s, links.optional) == (count, gb_s, optional)
    assert len(links.source) > 10  # the full text, not the key


def test_links_of_a_bridge_product_may_all_be_down_but_not_some():
    links = expected_nvlinks(name="NVIDIA H100 NVL")
    assert links.allows(12)
    assert links.allows(0)
    assert not links.allows(11)
    assert not links.allows(18)
    assert not expected_nvlinks(name="NVIDIA H100 80GB HBM3").allows(0)


def test_b200_hosts_that_signal_50_are_no_fault():
    links = expected_nvlinks(name="NVIDIA B200")
    assert links.allows_speed(53.125)
    assert links.allows_speed(50.0)
    assert not links.allows_speed(26.562)
    assert expected_nvlinks(name="NVIDIA L40S").allows_speed(1.0)  # no speed known, nothing to say


def test_a_product_without_a_known_count_has_no_expectation():
    assert expected_nvlinks(name="NVIDIA GH200 480GB") is None
    assert expected_nvlinks(name="P800 OAM") is None


def test_counts_agree_with_the_bandwidth_of_the_figures():
    for product in gpus.products():
        figures = gpus.spec(product.spec) if product.spec else None
        if figures is None or product.nvlinks is None or not figures.nvlink_gb_s or figures.confidence_of("nvlink_gb_s") == "low":
            continue
        total = product.nvlinks.count * (product.nvlinks.link_gb_s or 0)
        assert total == pytest.approx(figures.nvlink_gb_s, rel=0.08), product.key  # signalling rate is up to 6 % above


def test_names_and_ids_belong_to_one_product_only():
    names = [n.lower() for p in gpus.products() for n in p.names]
    ids = [i for p in gpus.products() for i in p.pci_ids]
    assert len(names) == len(set(names))
    assert len(ids) == len(set(ids))


def test_unconfirmed_figures_are_marked():
    assert gpus.spec("H100-NVL-94GB").confidence_of("memory_gb_s") == "low"
    assert gpus.spec("H100-NVL-94GB").confidence_of("bf16") == "high"
    assert gpus.spec("B100").confidence_of("bf16") == "low"
    assert gpus.spec("nothing") is None


@given(st.none() | st.text(max_size=50), st.none() | st.integers(-1, 2**33), st.none() | st.integers(-5, 2**40))
def test_any_device_is_answered_without_an_error(name, device_id, memory):
    for_device(pci_device_id=device_id, name=name, memory_mib=memory)
    expected_nvlinks(pci_device_id=device_id, name=name, memory_mib=memory)
