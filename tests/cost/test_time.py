"""Seconds as ranges: floors, bands, collectives, measured throughput."""

from __future__ import annotations

import numpy as np
import pytest

from prefixaudit.cost.flops import prefill_flops, total_flops
from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.time import MeasuredPrefill, TimeModel, default_compute_type
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe

from .golden import published_config


def model(name: str = "llama-3.1-8b", gpu: str = "h100-sxm", ranks: int = 1) -> TimeModel:
    return TimeModel(
        spec=describe(published_config(name)), gpu=find_gpu(gpu), tensor_parallel=ranks
    )


@pytest.mark.parametrize(
    ("name", "milliseconds"), [("llama-3.1-8b", 4.8), ("qwen3-30b-a3b", 18), ("llama-3.1-70b", 42)]
)
def test_weight_floors_are_those_published(name: str, milliseconds: float) -> None:
    assert model(name).weight_floor_s * 1e3 == pytest.approx(milliseconds, rel=0.02)


def test_floor_is_shared_by_ranks() -> None:
    assert model("llama-3.1-70b", ranks=8).weight_floor_s * 1e3 == pytest.approx(42 / 8, rel=0.02)


@pytest.mark.parametrize(
    ("tokens", "band"),
    [
        (64, (0.05, 0.175)),
        (128, (0.10, 0.35)),
        (256, (0.03**0.5, 0.245**0.5)),  # half way from 128 to 512: the geometric means
        (512, (0.30, 0.70)),
        (2048, (0.40, 0.75)),
        (100_000, (0.40, 0.75)),
    ],
)
def test_bands_go_by_new_tokens(tokens: int, band: tuple[float, float]) -> None:
    lo, hi = model().efficiency_band(tokens)

    assert (float(lo), float(hi)) == pytest.approx(band)


def test_more_new_tokens_never_take_less_time() -> None:
    new = np.arange(16, 4097)

    seconds = model("qwen3-32b", ranks=2).prefill_s(new, np.zeros_like(new))

    assert (np.diff(seconds.lo) >= 0).all()
    assert (np.diff(seconds.hi) >= 0).all()


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "deepseek-v3", "deepseek-v3.2", "kimi-k2-instruct"]
)
def test_hit_never_takes_longer_than_the_whole_prompt(name: str) -> None:
    """Latents of a long prefix are expanded as fast after a long hit as without one."""
    cached = np.array([0, 1, 4096, 8064, 8176, 8190, 8191])

    seconds = model(name, ranks=8).prefill_s(8192 - cached, cached)

    assert (seconds.lo <= seconds.lo[0]).all()
    assert (seconds.hi <= seconds.hi[0]).all()


def test_expanding_latents_counts_at_the_efficiency_of_the_whole_length() -> None:
    """One new token after 8,191: 16.8 TFLOP of expansion, at 0.20 to 0.375 of 8 x 989 TFLOPS."""
    one = model("deepseek-v3", ranks=8)
    expanded = prefill_flops(one.spec, 1, 8191)["mla_kv_up"]

    seconds = one.prefill_s(np.array([1]), np.array([8191]))

    assert float(seconds.hi[0]) == pytest.approx(expanded / (8 * 989e12 * 0.20), abs=0.1)


def test_experts_reach_half_and_fp8_seven_tenths() -> None:
    experts = model("qwen3-30b-a3b")
    fp8 = TimeModel(
        spec=describe(published_config("deepseek-v3")),
        gpu=find_gpu("h100-sxm"),
        compute_type="fp8",
    )

    assert float(experts.efficiency_band(4096)[1]) == pytest.approx(0.375)
    assert float(fp8.efficiency_band(4096)[1]) == pytest.approx(0.75 * 0.5 * 0.7)
    assert fp8.peak_flops_per_s == 1979e12


def test_long_prefill_is_flops_by_peak_and_band() -> None:
    """8B at 8k on an H100: 131.9 TFLOP by 989 TFLOPS by 0.75 and 0.40, and overhead of a step."""
    seconds = model().prefill_s(np.array([8192]), np.array([0]))

    flops = total_flops(prefill_flops(describe(published_config("llama-3.1-8b")), 8192, 0))
    assert seconds.lo[0] == pytest.approx(flops / (989e12 * 0.75))
    assert seconds.hi[0] == pytest.approx(flops / (989e12 * 0.40) + 126e-6 + 32 * 32e-6)


def test_short_prefill_is_not_below_the_weight_read() -> None:
    times = model().prefill_s(np.array([1, 16, 64]), np.array([0, 0, 0]))

    # Without the embedding (a lookup), at 0.8 of the bandwidth.
    floor = (8_030_261_248 - 128_256 * 4096) * 2 / (3350e9 * 0.8)
    assert (times.lo >= floor).all()
    assert times.lo[0] == pytest.approx(floor, rel=1e-3)


def test_few_tokens_touch_few_experts() -> None:
    """Qwen3-30B-A3B: 8 of 128 experts for one token, nearly all of them from 64 tokens on."""
    moe = model("qwen3-30b-a3b")

    one, many = (moe._touched_share(np.array([tokens]))[0] for tokens in (1, 64))

    assert one == pytest.approx(8 / 128)
    assert many == pytest.approx(1 - (1 - 8 / 128) ** 64)
    assert many > 0.98


def test_all_reduces_of_70b_on_eight_gpus() -> None:
    """Measured: 128 MB take 1.09 ms on 8 H100; 160 of them take 175 ms beside the compute."""
    lo, hi = model("llama-3.1-70b", ranks=8)._collective_s(np.array([8192]))

    assert lo[0] < 0.175 < hi[0]


def test_one_gpu_has_no_collectives() -> None:
    lo, hi = model()._collective_s(np.array([8192]))

    assert (lo[0], hi[0]) == (0, 0)


def test_published_prefill_of_an_8b_model_lies_in_the_range() -> None:
    """0.18 to 0.33 s for 8k tokens of Llama-3.1-8B on an H100; "3.2 s" fits no 8B model."""
    seconds = model().prefill_s(np.array([8192]), np.array([0]))

    assert seconds.lo[0] == pytest.approx(0.18, abs=0.01)
    assert seconds.hi[0] == pytest.approx(0.33, abs=0.01)


def test_measured_throughput_replaces_the_band() -> None:
    """A share of 0.5 of the peak was measured at 8k: one number comes back for 8k itself."""
    spec = describe(published_config("llama-3.1-8b"))
    flops = total_flops(prefill_flops(spec, 8192, 0))
    tokens_per_s = 8192 / (flops / (989e12 * 0.5))

    measured = TimeModel(
        spec=spec,
        gpu=find_gpu("h100-sxm"),
        measured=MeasuredPrefill(tokens_per_s=tokens_per_s, num_tokens=8192),
    )
    seconds = measured.prefill_s(np.array([8192]), np.array([0]))

    assert seconds.lo[0] == seconds.hi[0] == pytest.approx(8192 / tokens_per_s)
    assert "0.50 of the peak" in " ".join(measured.assumptions)
    assert "assumed, not measured" not in " ".join(measured.assumptions)


def test_measurement_bends_with_the_band_at_other_lengths() -> None:
    """0.5 at 8k, where the band is 0.40 to 0.75; at 512 tokens it is 0.30 to 0.70."""
    spec = describe(published_config("llama-3.1-8b"))
    flops = total_flops(prefill_flops(spec, 8192, 0))
    measured = TimeModel(
        spec=spec,
        gpu=find_gpu("h100-sxm"),
        measured=MeasuredPrefill(tokens_per_s=8192 / (flops / (989e12 * 0.5)), num_tokens=8192),
    )

    lo, hi = measured.efficiency_band(512)

    assert float(lo) == pytest.approx(0.5 * 0.30 / 0.40)
    assert float(hi) == pytest.approx(0.5 * 0.70 / 0.75)


def test_throughput_above_the_peak_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="were cached tokens counted"):
        TimeModel(
            spec=describe(published_config("llama-3.1-8b")),
            gpu=find_gpu("l4"),
            measured=MeasuredPrefill(tokens_per_s=100_000, num_tokens=8192),
        )


def test_public_measurement_of_a_miss_gives_its_published_efficiency() -> None:
    """gahow/agentic-kvc 837df6b: Qwen3-30B-A3B on a card of 148 TFLOPS, 15.2 s at 64k is 0.91."""
    flops = total_flops(prefill_flops(describe(published_config("qwen3-30b-a3b")), 65_536, 0))

    assert flops / 15.2 / 148e12 == pytest.approx(0.91, abs=0.01)


def test_saturation_takes_the_large_batch_band() -> None:
    lo, hi = model(ranks=2).gpu_s_at_saturation(1e18)

    assert (lo, hi) == pytest.approx((1e18 / (989e12 * 0.75), 1e18 / (989e12 * 0.40)))


def test_assumptions_name_peak_band_and_unchecked_figures() -> None:
    text = " ".join(model(gpu="h100-nvl").assumptions)

    assert "835 TFLOPS" in text
    assert "0.40-0.75 at 2,048" in text
    assert "not read again" in text


def test_fp8_weights_compute_in_fp8_where_there_are_units() -> None:
    fp8 = describe(published_config("qwen3-235b-a22b-fp8"))
    mxfp4 = describe(published_config("gpt-oss-120b"))

    assert default_compute_type(fp8, find_gpu("h100-sxm")) == "fp8"
    assert default_compute_type(fp8, find_gpu("a100-80-sxm")) == "bf16"
    assert default_compute_type(mxfp4, find_gpu("h100-sxm")) == "bf16"
    with pytest.raises(ConfigurationError, match="no fp8 units"):
        TimeModel(spec=fp8, gpu=find_gpu("a100-80-sxm"), compute_type="fp8")


def test_state_layers_take_longer_at_worst_than_their_flops() -> None:
    """Published: 30 layers of 0.51 ms for 8,192 tokens are 15 ms of about 93 ms at 0.5 (H100)."""
    hybrid = model("qwen3.5-35b-a3b")
    tokens, none = np.array([8192]), np.array([0])

    seconds = hybrid.prefill_s(tokens, none)

    flops = float(hybrid.flops(tokens, none)[0])
    overhead = 126e-6 + 40 * 32e-6
    assert seconds.hi[0] == pytest.approx(flops / (989e12 * 0.20) + 30 * 0.51e-3 + overhead)
    assert flops / (989e12 * 0.5) == pytest.approx(0.093, abs=0.001)
    assert "62 ns" in " ".join(hybrid.assumptions)
