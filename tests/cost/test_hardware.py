"""The hardware table against the traps of public ones: sparse peaks, wrong bandwidths."""

from __future__ import annotations

import pytest

from prefixaudit.cost.hardware import find_gpu, find_tier, load_hardware
from prefixaudit.errors import UsageError

GPUS = load_hardware().gpus

# Dense bf16 TFLOPS, fp8 TFLOPS (None: no fp8 units) and GB/s, as vendors' sheets give them.
PINNED = {
    "a100-40": (312, None, 1555),
    "a100-80-sxm": (312, None, 2039),
    "a100-80-pcie": (312, None, 1935),
    "h100-sxm": (989, 1979, 3350),  # a public table has 1,978 bf16: with sparsity
    "h100-pcie": (756.5, 1513, 2000),
    "h100-nvl": (835, 1671, 3900),  # a public table has 1,978.8: a pair
    "h200": (989, 1979, 4800),  # a public table has 2,000 bf16: with sparsity
    "b200": (2250, 4500, 7700),
    "b300": (2250, 4500, 7750),
    "gb200": (2500, 5000, 8000),
    "gb300": (2500, 5000, 8000),
    "l4": (121, 242, 300),  # a public table has 3,350 GB/s
    "l40s": (362, 733, 864),  # a public table has 1,466 fp8: with sparsity
    "a10g": (70, None, 600),  # a public table has A10's 125
    "rtx-4090": (165.2, 330.3, 1008),  # a public table has 82.6: the shader rate
    "rtx-5090": (209.5, 419, 1792),
    "rtx-pro-6000": (468, 936, 1792),
    "mi300x": (1307, 2615, 5300),
    "mi325x": (1307, 2615, 6000),
    "mi350x": (2310, 4614, 8000),
    "mi355x": (2517, 5033, 8000),
}


def test_peaks_and_bandwidths_are_pinned() -> None:
    assert set(GPUS) == set(PINNED)
    for name, (bf16, fp8, bandwidth) in PINNED.items():
        gpu = GPUS[name]
        assert gpu.bf16_flops_per_s == pytest.approx(bf16 * 1e12), name
        assert gpu.fp8_flops_per_s == (None if fp8 is None else pytest.approx(fp8 * 1e12)), name
        assert gpu.bandwidth_bytes_per_s == pytest.approx(bandwidth * 1e9), name


@pytest.mark.parametrize("name", GPUS)
def test_fp8_is_twice_bf16_or_none(name: str) -> None:
    gpu = GPUS[name]

    if gpu.fp8_flops_per_s is not None:
        assert gpu.fp8_flops_per_s / gpu.bf16_flops_per_s == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize("name", GPUS)
def test_ridge_lies_between_100_and_500_tokens(name: str) -> None:
    """A sparse peak or a bandwidth of another card puts it outside, or near."""
    assert 100 < GPUS[name].ridge_tokens < 500


def test_ridges_are_those_published() -> None:
    published = {
        "a100-80-sxm": 153, "h200": 206, "mi300x": 247, "b200": 292, "h100-sxm": 295, "l4": 403,
        "l40s": 419,
    }  # fmt: skip

    assert {name: round(GPUS[name].ridge_tokens) for name in published} == published


def test_memory_is_what_the_driver_reports() -> None:
    """80 GB cards report 79.3 GiB, 24 GB cards 23.6; others a little below what is sold."""
    assert find_gpu("h100-sxm").memory_bytes[0] / 2**30 == pytest.approx(79.3)
    assert find_gpu("rtx-4090").memory_bytes[1] / 2**30 == pytest.approx(23.6)
    lo, hi = find_gpu("h200").memory_bytes
    assert lo < hi <= 141 * 2**30


def test_figures_that_were_not_read_again_are_flagged() -> None:
    assert {name for name, gpu in GPUS.items() if not gpu.is_checked} == {
        "a100-40", "h100-nvl", "a10g", "rtx-5090", "mi325x", "mi355x",
    }  # fmt: skip


def test_every_row_names_its_source() -> None:
    assert all(gpu.source and gpu.title for gpu in GPUS.values())
    assert all(tier.source and tier.title for tier in load_hardware().tiers.values())


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'h100-sxm'"):
        find_gpu("h100-sxn")
    with pytest.raises(UsageError, match="cpu, nvme"):
        find_tier("disk")


def test_host_tier_follows_the_link_of_the_gpu() -> None:
    """PCIe 5 carries 64 GB/s a direction: 25 to 54 arrive."""
    lo, hi = find_tier("cpu").bandwidth(find_gpu("h100-sxm"))

    assert (lo / 1e9, hi / 1e9) == pytest.approx((25.6, 54.4))
