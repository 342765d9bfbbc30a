"""[hardware], and what options and server settings say beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.cost.engine_log import EngineLog
from prefixaudit.cost.time import MeasuredPrefill
from prefixaudit.deployment import Overrides, load_deployment
from prefixaudit.deployment.hardware import efficiency_range, measured_prefill
from prefixaudit.errors import ConfigurationError, UsageError

TABLE = """
[hardware]
gpu = "h100-sxm"
tensor_parallel = 4
gpu_memory_utilization = 0.85
measured = "9800@8192"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "prefixaudit.toml"
    path.write_text(text)
    return path


def test_table_is_read(tmp_path: Path) -> None:
    deployment = load_deployment(written(tmp_path, TABLE))

    hardware = deployment.hardware
    assert hardware is not None
    assert hardware.gpu is not None
    assert hardware.gpu.title == "H100 SXM"
    assert hardware.measured == MeasuredPrefill(tokens_per_s=9800, num_tokens=8192)
    assert (deployment.tensor_parallel, deployment.memory_share) == (4, 0.85)


def test_options_win_and_an_assumed_efficiency_replaces_a_measured_one(tmp_path: Path) -> None:
    options = Overrides(gpu="h200", tensor_parallel=2, efficiency=(0.4, 0.6))

    hardware = load_deployment(written(tmp_path, TABLE), options).hardware

    assert hardware is not None
    assert hardware.gpu is not None
    assert hardware.gpu.title.startswith("H200")
    assert (hardware.tensor_parallel, hardware.efficiency) == (2, (0.4, 0.6))
    assert hardware.measured is None
    assert hardware.memory_share == 0.85


def test_nothing_said_is_no_hardware(tmp_path: Path) -> None:
    deployment = load_deployment(written(tmp_path, "[engine]\nname = 'vllm'\n"), Overrides())

    assert deployment.hardware is None
    assert (deployment.tensor_parallel, deployment.memory_share) == (1, None)


def test_settings_of_the_engine_count_where_the_table_is_silent(tmp_path: Path) -> None:
    text = """
    [engine]
    name = "vllm"
    [engine.settings]
    tensor_parallel_size = 8
    gpu_memory_utilization = 0.8
    """

    deployment = load_deployment(written(tmp_path, text))

    assert (deployment.tensor_parallel, deployment.memory_share) == (8, 0.8)


def test_log_given_as_an_option_replaces_the_files_capacity_but_not_an_option(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, "[pool]\ncapacity_blocks = 7\n")
    log = EngineLog(num_tokens=1600, block_size=32)

    by_log = load_deployment(path, Overrides(engine_log=log))
    by_option = load_deployment(path, Overrides(engine_log=log, capacity_blocks=9, block_size=16))

    assert by_log.capacity is None
    assert by_option.capacity is not None
    assert by_option.capacity.amount == 9
    assert by_option.hardware is not None
    assert by_option.hardware.engine_log == EngineLog(num_tokens=1600)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("usd_per_gpu_hour = 3", ":2: "),
        ('gpu = "h100-sxm"\nefficiency = "0.4-0.6"\nmeasured = "1@1"', "is given beside measured"),
        ('gpu = "h100-sxm"\ntensor_parallel = 0', "tensor_parallel"),
        ('gpu = "h100-sxm"\ncolour = "red"', "colour"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_deployment(written(tmp_path, f"[hardware]\n{table}\n"))

    assert problem in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "9800", "@8192", "0@8192", "9800@0", "9" * 5000 + "@1", "1e9@1"]
)
def test_what_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        measured_prefill(text)


@pytest.mark.parametrize("text", ["", "0.4", "0.6-0.4", "0-0.4", "0.4-1.1", "-0.4-0.5", "a-b"])
def test_what_is_no_efficiency_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        efficiency_range(text)
