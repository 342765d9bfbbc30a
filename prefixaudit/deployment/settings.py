"""The names of server settings: an engine's options with `_`, and what false means for each.

A setting is what an engine was told (`enable_lora`, `python_hash_seed`, `kv_connector` …). One that
isn't recorded is UNKNOWN; one that is known to be unset is None, written `false` in TOML. For
settings that are true or false themselves, `false` is just that. Names that aren't listed here are
kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from prefixaudit.core.audit import Setting
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.tables import Table

SettingKind: TypeAlias = Literal["flag", "text", "texts", "integer", "number"]

SETTINGS: Final[Mapping[str, tuple[SettingKind, str]]] = {
    # The prefix cache and its keys.
    "enable_prefix_caching": ("flag", "prefix caching is on"),
    "prefix_caching_hash_algo": ("text", "vLLM's --prefix-caching-hash-algo"),
    "python_hash_seed": ("text", "PYTHONHASHSEED; unset where it is `random`"),
    "python_version": ("text", "Python that runs the server"),
    "block_size": ("integer", "tokens of a block or page as the option gives it"),
    "num_gpu_blocks_override": ("integer", "vLLM's --num-gpu-blocks-override"),
    "gpu_memory_utilization": ("number", "share of GPU memory for the server, 0..1"),
    "kv_events": ("flag", "block events are published"),
    "disable_lookahead_block_hashes": ("flag", "vLLM's option of that name"),
    "radix_eviction_policy": ("text", "SGLang's --radix-eviction-policy"),
    "enable_cache_report": ("flag", "SGLang's --enable-cache-report"),
    # The model as served.
    "served_model_name": ("texts", "names that requests use for the base model"),
    "revision": ("text", "--revision"),
    "dtype": ("text", "--dtype"),
    "quantization": ("text", "--quantization"),
    "kv_cache_dtype": ("text", "--kv-cache-dtype"),
    "calculate_kv_scales": ("flag", "KV scales are found in the first forward pass"),
    "hf_overrides": ("text", "--hf-overrides or --json-model-override-args, as JSON"),
    "rope_scaling": ("text", "--rope-scaling, as JSON"),
    "rope_theta": ("number", "--rope-theta"),
    "max_model_len": ("integer", "--max-model-len or --context-length"),
    "trust_remote_code": ("flag", "--trust-remote-code"),
    "chat_template": ("text", "--chat-template"),
    # Adapters.
    "enable_lora": ("flag", "LoRA adapters can be served"),
    "lora_modules": ("texts", "adapters loaded at start, `name=path` each"),
    "allow_runtime_lora_updating": ("flag", "adapters can be loaded and replaced by requests"),
    "enable_tower_connector_lora": ("flag", "adapters on vision towers and connectors"),
    # Inputs beyond tokens.
    "enable_prompt_embeds": ("flag", "prompts can be given as embeddings"),
    "enable_mm_embeds": ("flag", "media can be given as embeddings"),
    "limit_mm_per_prompt": ("text", "--limit-mm-per-prompt, as JSON"),
    "language_model_only": ("flag", "media are refused"),
    # Parallelism and scheduling.
    "tensor_parallel_size": ("integer", "--tensor-parallel-size"),
    "pipeline_parallel_size": ("integer", "--pipeline-parallel-size"),
    "data_parallel_size": ("integer", "--data-parallel-size"),
    "decode_context_parallel_size": ("integer", "--decode-context-parallel-size"),
    "async_scheduling": ("flag", "--async-scheduling"),
    "enable_chunked_prefill": ("flag", "--enable-chunked-prefill"),
    "speculative_method": ("text", "method of speculative decoding"),
    "speculative_model": ("text", "drafting model"),
    # Other places for blocks.
    "kv_connector": ("text", "vLLM's KV connector"),
    "kv_connectors": ("texts", "all connectors, those inside a MultiConnector too"),
    "kv_role": ("text", "kv_producer, kv_consumer or kv_both"),
    "kv_offloading_backend": ("text", "--kv-offloading-backend"),
    "cache_prefix": ("text", "prefix of the keys in a Mooncake store"),
    "enable_hierarchical_cache": ("flag", "SGLang's HiCache"),
    "hicache_storage_backend": ("text", "HiCache's storage (L3)"),
    "enable_lmcache": ("flag", "SGLang with LMCache"),
    "disaggregation_mode": ("text", "prefill, decode or unset"),
    # Who can reach it.
    "api_key_set": ("flag", "requests need an API key (the key itself is not recorded)"),
    "server_dev_mode": ("flag", "development endpoints (reset, sleep …) are open"),
    "enable_weight_updates": ("flag", "weights can be replaced while the server runs"),
    # Where it runs.
    "image": ("text", "container image"),
}


def read_settings(table: Table) -> dict[str, Known[Setting]]:
    """Return a [settings] table: values by name, None for `false` of a setting that is no flag."""
    table.allow_any_keys()
    return {
        name: value
        for name in table
        if (value := _value(table, name, table.any_value(name))) is not UNKNOWN
    }


def _value(table: Table, name: str, value: Any) -> Known[Setting]:
    kind = SETTINGS[name][0] if name in SETTINGS else None
    if isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            table.problem(name, "expected texts in the list")
            return UNKNOWN
        value = tuple(value)
    if not isinstance(value, str | int | float | tuple):
        table.problem(name, "expected text, a number, true, false or a list of texts")
        return UNKNOWN
    if value is False and kind is not None and kind != "flag":
        return None
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is None or _fits(kind, value):
        return value
    expected = {
        "flag": "true or false",
        "text": "text",
        "texts": "a list of texts",
        "integer": "an integer",
        "number": "a number",
    }[kind]
    table.problem(name, f"expected {expected}" + ("" if kind == "flag" else ", or false: unset"))
    return UNKNOWN


def _fits(kind: SettingKind, value: Setting) -> bool:
    match kind:
        case "flag":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "texts":
            return isinstance(value, tuple)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
