"""`python -m sglang.launch_server` and what it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.deployment.sources._options import OptionTable, parse_options
from prefixaudit.deployment.sources._process import Process, program
from prefixaudit.deployment.sources._server import ServerDraft, template_setting
from prefixaudit.deployment.sources._sketch import Attachments, Piece
from prefixaudit.deployment.sources._stores import sglang_stores

TABLE: Final = OptionTable(
    kept={
        "model-path": "text",
        "config": "text",
        "served-model-name": "text",
        "revision": "text",
        "dtype": "text",
        "quantization": "text",
        "kv-cache-dtype": "text",
        "json-model-override-args": "json",
        "context-length": "integer",
        "page-size": "integer",
        "mem-fraction-static": "number",
        "max-total-tokens": "integer",
        "disable-radix-cache": "flag",
        "radix-eviction-policy": "text",
        "enable-cache-report": "flag",
        "enable-lora": "flag",
        "lora-paths": "texts",
        "tp-size": "integer",
        "pp-size": "integer",
        "dp-size": "integer",
        "speculative-algorithm": "text",
        "speculative-draft-model-path": "text",
        "enable-hierarchical-cache": "flag",
        "hicache-storage-backend": "text",
        "hicache-storage-backend-extra-config": "json",
        "hicache-write-policy": "text",
        "enable-lmcache": "flag",
        "lmcache-config-file": "text",
        "disaggregation-mode": "text",
        "kv-events-config": "json",
        "trust-remote-code": "flag",
        "chat-template": "text",
        "enable-multimodal": "flag",
        "api-key": "presence",
        "admin-api-key": "presence",
    },
    short={
        "--model": "model-path",
        "--tp": "tp-size",
        "--tensor-parallel-size": "tp-size",
        "--pp": "pp-size",
        "--pipeline-parallel-size": "pp-size",
        "--dp": "dp-size",
        "--data-parallel-size": "dp-size",
    },
    flags=frozenset(
        (
            "enable-metrics",
            "enable-dp-attention",
            "enable-ep-moe",
            "enable-torch-compile",
            "enable-mixed-chunk",
            "enable-p2p-check",
            "enable-custom-logit-processor",
            "enable-memory-saver",
            "enable-deterministic-inference",
            "disable-cuda-graph",
            "disable-overlap-schedule",
            "disable-custom-all-reduce",
            "disable-chunked-prefix-cache",
            "log-requests",
            "skip-tokenizer-init",
            "skip-server-warmup",
            "show-time-cost",
            "allow-auto-truncate",
            "is-embedding",
        )
    ),
)
_SETTINGS: Final[Mapping[str, str]] = {
    "revision": "revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv-cache-dtype": "kv_cache_dtype",
    "context-length": "max_model_len",
    "page-size": "block_size",
    "mem-fraction-static": "gpu_memory_utilization",
    "max-total-tokens": "max_total_tokens",
    "radix-eviction-policy": "radix_eviction_policy",
    "lora-paths": "lora_modules",
    "tp-size": "tensor_parallel_size",
    "pp-size": "pipeline_parallel_size",
    "dp-size": "data_parallel_size",
    "speculative-algorithm": "speculative_method",
    "speculative-draft-model-path": "speculative_model",
    "hicache-storage-backend": "hicache_storage_backend",
    "hicache-write-policy": "hicache_write_policy",
    "disaggregation-mode": "disaggregation_mode",
}
_FLAGS: Final[Mapping[str, str]] = {
    "enable-lora": "enable_lora",
    "enable-cache-report": "enable_cache_report",
    "enable-hierarchical-cache": "enable_hierarchical_cache",
    "enable-lmcache": "enable_lmcache",
    "trust-remote-code": "trust_remote_code",
}


def sglang_server(process: Process, attachments: Attachments) -> tuple[Piece, list[Piece]]:
    """Return the [[server]] of an SGLang process and the [[tier]]s that it uses."""
    found = program(process.words)
    options = parse_options(found[1] if found is not None else (), TABLE)
    if "config" in options.values:
        options.is_complete = False
        options.unknown.append("the options in SGLang's --config file")
    values, complete = options.values, options.is_complete
    if options.positional and "model-path" not in values:
        values["model-path"] = options.positional[0].text
    draft = ServerDraft(process, "sglang")
    draft.unknown += options.unknown
    draft.set_model("name", values.get("model-path"))
    draft.set_model("revision", values.get("revision"))
    draft.set_model("quantization", values.get("quantization"))
    for key in ("dtype", "kv-cache-dtype"):
        if values.get(key) not in (None, "auto"):
            draft.set_model(key.replace("-", "_"), values[key])
    if values.get("lora-paths"):
        values.setdefault("enable-lora", True)  # adapters at start switch it on
    draft.take(values, _SETTINGS, complete=complete)
    draft.take_flags(values, _FLAGS, complete=complete)
    if "served-model-name" in values:
        if values["served-model-name"] is not None:
            draft.settings["served_model_name"] = [values["served-model-name"]]
    elif complete:
        draft.settings["served_model_name"] = None
    overrides = values.get("json-model-override-args")
    if isinstance(overrides, dict):
        text = json.dumps(overrides, sort_keys=True, separators=(",", ":"))
        draft.settings["hf_overrides"] = text if overrides else None
    elif complete and "json-model-override-args" not in values:
        draft.settings["hf_overrides"] = None
    # SGLang has no option of its own for it: all of it is in the overrides.
    if "hf_overrides" in draft.settings:
        draft.settings |= {"rope_scaling": None, "rope_theta": None}
    if "disable-radix-cache" in values or complete:
        off: Any = values.get("disable-radix-cache", False)
        if off is not None:
            draft.settings["enable_prefix_caching"] = not off
    if "api-key" in values:
        draft.settings["api_key_set"] = True
    elif complete:
        draft.settings["api_key_set"] = False
    template = template_setting(values.get("chat-template"))
    if template is not None:
        draft.settings["chat_template"] = template
    events = values.get("kv-events-config")
    if isinstance(events, dict) or (complete and "kv-events-config" not in values):
        draft.settings["kv_events"] = isinstance(events, dict)
    draft.block_size = values.get("page-size")
    draft.take_seed()
    stores = sglang_stores(draft, values, attachments)
    return draft.piece(), stores
