"""The Deployment of a command: what a file says, options over it, and what the model folder says.

Without a file, and without a model, the modules that read one are not imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from prefixaudit.deployment.overriding import overridden
from prefixaudit.deployment.value import Deployment, Overrides
from prefixaudit.errors import ConfigurationError

DEPLOYMENT_FILE: Final = "prefixaudit.toml"


def find_deployment(log_paths: Sequence[str]) -> Path | None:
    """Return the prefixaudit.toml beside the first log (in a folder's case: inside), if any."""
    for name in log_paths[:1]:
        if name == "-":
            return None
        path = Path(name)
        folder = path if path.is_dir() else path.parent
        candidate = folder / DEPLOYMENT_FILE
        if candidate.is_file():
            return candidate
    return None


def load_deployment(path: Path | None, overrides: Overrides | None = None) -> Deployment:
    """Return the deployment of a file (None: nothing but the overrides).

    Raises ConfigurationError with all problems of the file, UsageError for wrong options.
    """
    if path is None:
        return completed(Deployment(), overrides)
    from prefixaudit.deployment.file import read_file

    return completed(read_file(path), overrides)


def completed(deployment: Deployment, overrides: Overrides | None = None) -> Deployment:
    """Return a deployment as it was read with options over it, and what its model folder says.

    Raises UsageError for wrong options.
    """
    if overrides is not None:
        deployment = overridden(deployment, overrides)
    return deployment if deployment.model_dir is None else _with_model(deployment)


def _with_model(deployment: Deployment) -> Deployment:
    """Add what the model folder says. A model that can't be described costs the FLOPs only.

    Raises UsageError for a number of GPUs that can't share the model.
    """
    from prefixaudit.deployment.model_folder import model_identity, read_model_config
    from prefixaudit.deployment.server_identity import laid_over
    from prefixaudit.families import describe, describe_cache

    assert deployment.model_dir is not None
    config = read_model_config(deployment.model_dir)
    if config is not None:
        config = laid_over(config, deployment.config)
    if config is None:
        return replace(deployment, model_problem=f"{deployment.model_dir} has no config.json")
    try:
        model = describe(config)
    except ConfigurationError as error:
        problem = f"{deployment.model_dir}: {error}"
        try:
            cache = describe_cache(config)
        except ConfigurationError:
            return replace(deployment, model_problem=problem)
        return replace(deployment, model_problem=problem, explicit_cache=cache)
    if deployment.hardware is not None and deployment.hardware.tensor_parallel is not None:
        from prefixaudit.cost.estimate import check_ranks

        check_ranks(model.cache, deployment.hardware.tensor_parallel)
    return replace(
        deployment, model=model, identity=deployment.identity.filled(model_identity(model))
    )
