"""`vllm serve` and what it is told: options, variables and a configuration file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from prefixaudit.deployment.sources._options import (
    Options,
    OptionTable,
    converted,
    module_text,
    parse_options,
)
from prefixaudit.deployment.sources._process import Process, program
from prefixaudit.deployment.sources._server import ServerDraft, template_setting
from prefixaudit.deployment.sources._sketch import Attachments, Piece
from prefixaudit.deployment.sources._stores import vllm_stores
from prefixaudit.deployment.sources._yaml import yaml_or_none

TABLE: Final = OptionTable(
    kept={
        "model": "text",
        "config": "text",
        "served-model-name": "texts",
        "revision": "text",
        "dtype": "text",
        "quantization": "text",
        "kv-cache-dtype": "text",
        "calculate-kv-scales": "flag",
        "hf-overrides": "json",
        "rope-scaling": "json",
        "rope-theta": "number",
        "max-model-len": "integer",
        "block-size": "integer",
        "gpu-memory-utilization": "number",
        "num-gpu-blocks-override": "integer",
        "enable-prefix-caching": "flag",
        "prefix-caching-hash-algo": "text",
        "disable-lookahead-block-hashes": "flag",
        "enable-lora": "flag",
        "lora-modules": "texts",
        "enable-tower-connector-lora": "flag",
        "enable-prompt-embeds": "flag",
        "enable-mm-embeds": "flag",
        "language-model-only": "flag",
        "limit-mm-per-prompt": "json",
        "tensor-parallel-size": "integer",
        "pipeline-parallel-size": "integer",
        "data-parallel-size": "integer",
        "decode-context-parallel-size": "integer",
        "async-scheduling": "flag",
        "enable-chunked-prefill": "flag",
        "speculative-config": "json",
        "kv-transfer-config": "json",
        "kv-offloading-backend": "text",
        "kv-events-config": "json",
        "weight-transfer-config": "presence",
        "trust-remote-code": "flag",
        "chat-template": "text",
        "api-key": "presence",
    },
    short={
        "-tp": "tensor-parallel-size",
        "-pp": "pipeline-parallel-size",
        "-dp": "data-parallel-size",
        "-dcp": "decode-context-parallel-size",
        "-q": "quantization",
        "--model-name": "model",
    },
    flags=frozenset(
        (
            "enforce-eager",
            "enable-expert-parallel",
            "enable-eplb",
            "enable-auto-tool-choice",
            "enable-reasoning",
            "enable-sleep-mode",
            "enable-log-requests",
            "enable-prompt-tokens-details",
            "enable-request-id-headers",
            "enable-server-load-tracking",
            "enable-force-include-usage",
            "enable-dbo",
            "disable-log-requests",
            "disable-log-stats",
            "disable-uvicorn-access-log",
            "disable-custom-all-reduce",
            "disable-sliding-window",
            "disable-cascade-attn",
            "disable-hybrid-kv-cache-manager",
            "disable-frontend-multiprocessing",
            "disable-fastapi-docs",
            "disable-mm-preprocessor-cache",
            "skip-tokenizer-init",
            "use-v2-block-manager",
            "return-tokens-as-token-ids",
            "multi-step-stream-outputs",
            "headless",
        )
    ),
)

_SETTINGS: Final[Mapping[str, str]] = {
    "served-model-name": "served_model_name",
    "revision": "revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv-cache-dtype": "kv_cache_dtype",
    "rope-theta": "rope_theta",
    "max-model-len": "max_model_len",
    "block-size": "block_size",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "num-gpu-blocks-override": "num_gpu_blocks_override",
    "prefix-caching-hash-algo": "prefix_caching_hash_algo",
    "lora-modules": "lora_modules",
    "tensor-parallel-size": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "decode-context-parallel-size": "decode_context_parallel_size",
    "kv-offloading-backend": "kv_offloading_backend",
}
_JSON_SETTINGS: Final[Mapping[str, str]] = {
    "hf-overrides": "hf_overrides",
    "rope-scaling": "rope_scaling",
    "limit-mm-per-prompt": "limit_mm_per_prompt",
}
_FLAGS: Final[Mapping[str, str]] = {
    "calculate-kv-scales": "calculate_kv_scales",
    "disable-lookahead-block-hashes": "disable_lookahead_block_hashes",
    "enable-lora": "enable_lora",
    "enable-tower-connector-lora": "enable_tower_connector_lora",
    "enable-prompt-embeds": "enable_prompt_embeds",
    "enable-mm-embeds": "enable_mm_embeds",
    "language-model-only": "language_model_only",
    "trust-remote-code": "trust_remote_code",
}
# What an absent option means for these depends on the release.
_FLAGS_BY_RELEASE: Final[Mapping[str, str]] = {
    "enable-prefix-caching": "enable_prefix_caching",
    "async-scheduling": "async_scheduling",
    "enable-chunked-prefill": "enable_chunked_prefill",
}
_VARIABLES: Final[Mapping[str, tuple[str, bool]]] = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": ("allow_runtime_lora_updating", True),
    "VLLM_SERVER_DEV_MODE": ("server_dev_mode", True),
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": ("kv_events_use_int_block_hashes", False),
}


def vllm_server(process: Process, attachments: Attachments) -> tuple[Piece, list[Piece]]:
    """Return the [[server]] of a vLLM process and the [[tier]]s that it uses."""
    found = program(process.words)
    words = found[1] if found is not None else ()
    options = parse_options(words, TABLE)
    if options.positional and "model" not in options.values:
        model = options.positional[0]
        options.values["model"] = model.text
        if model.text is None:
            options.unknown.append(f"model: {model.raw} isn't known")
    draft = ServerDraft(process, "vllm")
    draft.unknown += options.unknown
    _take_config_file(options, attachments, draft)
    _take(options, draft)
    connector = options.values.get("kv-transfer-config")
    stores = vllm_stores(draft, connector, complete=options.is_complete, attachments=attachments)
    return draft.piece(), stores


def config_server(
    process: Process, config: Mapping[str, Any], attachments: Attachments
) -> tuple[Piece, list[Piece]]:
    """Return the [[server]] of a vLLM configuration that no command line names, and its tiers."""
    draft = ServerDraft(process, "vllm")
    options = Options(values=config_values(config), is_complete=False)
    draft.unknown.append("options of the command line")
    _take(options, draft)
    connector = options.values.get("kv-transfer-config")
    stores = vllm_stores(draft, connector, complete=False, attachments=attachments)
    return draft.piece(), stores


def config_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a vLLM configuration file by long name."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        name = key.replace("_", "-")
        kind = TABLE.kept.get(name)
        if kind is None or value is None:
            continue
        match kind:
            case "flag":
                values[name] = value if isinstance(value, bool) else None
            case "presence":
                values[name] = True
            case "json":
                values[name] = (
                    dict(value)
                    if isinstance(value, Mapping)
                    else (converted("json", [value]) if isinstance(value, str) else None)
                )
            case "texts":
                items = value if isinstance(value, list) else [value]
                values[name] = [text for item in items if (text := module_text(item)) is not None]
            case _:
                is_scalar = isinstance(value, str | int | float)
                values[name] = converted(kind, [str(value)]) if is_scalar else None
    return values


def _take_config_file(options: Options, attachments: Attachments, draft: ServerDraft) -> None:
    """Lay the options of the command line over those of its --config file."""
    path = options.values.pop("config", None)
    if path is None:
        return
    file = attachments.find(path)
    documents = None if file is None else yaml_or_none(file)
    if not documents or not isinstance(documents[0], Mapping):
        options.is_complete = False
        draft.unknown.append(f"--config {path}: give that file too")
        return
    options.values = {**config_values(documents[0]), **options.values}


def _take(options: Options, draft: ServerDraft) -> None:
    values, complete = options.values, options.is_complete
    draft.set_model("name", values.get("model"))
    draft.set_model("revision", values.get("revision"))
    if "quantization" in values:
        draft.set_model("quantization", values["quantization"])
    for key in ("dtype", "kv-cache-dtype"):
        if values.get(key) not in (None, "auto"):
            draft.set_model(key.replace("-", "_"), values[key])
    draft.take(values, _SETTINGS, complete=complete)
    for option, setting in _JSON_SETTINGS.items():
        if isinstance(values.get(option), dict):
            text = json.dumps(values[option], sort_keys=True, separators=(",", ":"))
            draft.settings[setting] = text
        elif option not in values and complete:
            draft.settings[setting] = None
    draft.take_flags(values, _FLAGS, complete=complete)
    draft.take_flags(values, _FLAGS_BY_RELEASE, complete=False)
    if complete and "enable-prefix-caching" not in values and _is_on_by_default(values, draft):
        draft.settings["enable_prefix_caching"] = True
    if "api-key" in values or draft.process.environment.get("VLLM_API_KEY"):
        draft.settings["api_key_set"] = True
    elif complete and draft.process.is_environment_complete:
        draft.settings["api_key_set"] = "VLLM_API_KEY" in draft.process.environment
    template = template_setting(values.get("chat-template"))
    if template is not None:
        draft.settings["chat_template"] = template
    _take_speculation(values, draft, complete=complete)
    events = values.get("kv-events-config")
    if isinstance(events, dict):
        draft.settings["kv_events"] = bool(events.get("enable_kv_cache_events", False))
    elif complete and "kv-events-config" not in values:
        draft.settings["kv_events"] = False
    draft.block_size = values.get("block-size")
    draft.take_seed()
    for variable, (setting, is_flag) in _VARIABLES.items():
        draft.take_variable(variable, setting, is_flag=is_flag)
    # Weights are replaced through development endpoints, or a transfer that is configured.
    if complete and draft.settings.get("server_dev_mode") is False:
        draft.settings["enable_weight_updates"] = "weight-transfer-config" in values


def _take_speculation(values: Mapping[str, Any], draft: ServerDraft, *, complete: bool) -> None:
    speculation = values.get("speculative-config")
    if isinstance(speculation, dict):
        for key, setting in (("method", "speculative_method"), ("model", "speculative_model")):
            value = speculation.get(key)
            draft.settings[setting] = value if isinstance(value, str) else None
        if draft.settings["speculative_method"] is None:
            del draft.settings["speculative_method"]  # vLLM finds it from the drafting model
    elif complete and "speculative-config" not in values:
        draft.settings["speculative_method"] = draft.settings["speculative_model"] = None


def _is_on_by_default(values: Mapping[str, Any], draft: ServerDraft) -> bool:
    """Say whether prefix caching is on by default: in V1, the only engine from 0.11 on.

    Connectors named V1 exist there only.
    """
    transfer = values.get("kv-transfer-config")
    connector = transfer.get("kv_connector") if isinstance(transfer, dict) else None
    if connector == "LMCacheConnectorV1" or draft.process.environment.get("VLLM_USE_V1") == "1":
        return True
    version = draft.process.versions.get("vllm")
    try:
        return version is not None and Version(version) >= Version("0.11.0")
    except InvalidVersion:
        return False
