"""Lays a command's options over a deployment: they win over what its file says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefixaudit.deployment.hardware import NEEDS_GPU, HardwareFacts
from prefixaudit.deployment.value import Capacity, Deployment, Overrides
from prefixaudit.errors import UsageError

if TYPE_CHECKING:
    from prefixaudit.cost.hardware import Gpu


def overridden(deployment: Deployment, overrides: Overrides) -> Deployment:
    """Return the deployment with the options over it. Raises UsageError for wrong ones."""
    changes: dict[str, Any] = {}
    if overrides.model_dir is not None:
        from prefixaudit.deployment.model_folder import model_folder_problem

        problem = model_folder_problem(overrides.model_dir)
        if problem:
            raise UsageError(problem)
        changes["model_dir"] = overrides.model_dir
    if overrides.chat_template is not None:
        if not overrides.chat_template.is_file():
            raise UsageError(f"{overrides.chat_template}: no such chat template file")
        changes["chat_template"] = overrides.chat_template
    if overrides.engine is not None:
        from prefixaudit.engines import load_profile

        changes["engine"] = load_profile(overrides.engine)
    if overrides.block_size is not None:
        changes["block_size"] = overrides.block_size
    if overrides.capacity_blocks is not None and overrides.capacity_gib is not None:
        raise UsageError("--capacity-blocks and --capacity-gib were both given; give one")
    if overrides.capacity_blocks is not None:
        changes["capacity"] = Capacity(amount=overrides.capacity_blocks, unit="blocks")
    if overrides.capacity_gib is not None:
        changes["capacity"] = Capacity(amount=overrides.capacity_gib, unit="gib")
    changes |= _hardware(deployment, overrides)
    if len(deployment.servers) > 1:
        changes |= _of_all_servers(deployment, overrides)
    return replace(deployment, **changes) if changes else deployment


def _hardware(deployment: Deployment, overrides: Overrides) -> dict[str, Any]:
    """Return the hardware with options over it; what an engine's log says is no option's equal."""
    before = deployment.hardware or HardwareFacts()
    log = before.engine_log if overrides.engine_log is None else overrides.engine_log
    hardware = before.overridden(
        gpu=_gpu(overrides),
        tensor_parallel=overrides.tensor_parallel,
        memory_share=overrides.memory_share,
        usd_per_gpu_hour=overrides.usd_per_gpu_hour,
        measured=overrides.measured,
        efficiency=overrides.efficiency,
        engine_log=log,
    )
    if hardware.gpu is None:
        for name in NEEDS_GPU:
            if getattr(overrides, name) is not None:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} needs a GPU; give --gpu NAME")
    changes: dict[str, Any] = {}
    if log is not None:
        if overrides.block_size is not None:
            hardware = replace(hardware, engine_log=replace(log, block_size=None))
        has_option = overrides.capacity_blocks is not None or overrides.capacity_gib is not None
        if overrides.engine_log is not None and log.has_size and not has_option:
            changes["capacity"] = None
    if hardware != HardwareFacts():
        changes["hardware"] = hardware
    return changes


def _gpu(overrides: Overrides) -> Gpu | None:
    if overrides.gpu is None:
        return None
    from prefixaudit.cost.hardware import find_gpu

    return find_gpu(overrides.gpu)


def _of_all_servers(deployment: Deployment, overrides: Overrides) -> dict[str, Any]:
    """Return the tiers of several servers with the options' size in place of each pool's own."""
    if overrides.engine is not None:
        raise UsageError("--engine was given, but the deployment lists several servers")
    if overrides.capacity_gib is not None:
        raise UsageError(
            "--capacity-gib was given, but the deployment lists several servers",
            hint="give --capacity-blocks, or capacity_gib for each [[server]]",
        )
    changes: dict[str, Any] = {}
    if overrides.block_size is not None:
        changes["block_size"] = overrides.block_size
    if overrides.capacity_blocks is not None:
        changes["capacity_blocks"] = overrides.capacity_blocks
    tiers = tuple(
        replace(tier, **changes) if tier.tier.kind == "local-pool" else tier
        for tier in deployment.tiers
    )
    return {"tiers": tiers}
