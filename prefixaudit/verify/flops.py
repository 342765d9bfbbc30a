"""FLOPs and KV sizes that a counter measured on the model code, against the closed forms.

A file has records under `small` (with a `config`) and `real` (with the `config_name` of a folder of
model configs beside or above the file, or a `config` too). Each record's parameters, KV fields and
cases are compared as integers: both closed forms, what the counter measured where the record says
that it equals the square form, and the attention measured token by token. Differences that the
file documents (`meta.known_differences`, a case's `square_differences`) are left out component by
component; where the reference runs every local expert, that multiple is compared instead.
`rope_length_dependence` says by measurement which rotary types tie keys to the prompt's length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefixaudit.core.model import Attention, Mixer, ModelSpec
from prefixaudit.cost.flops import Form, prefill_flops, saved_flops, total_flops
from prefixaudit.cost.memory import kv_bytes_per_token, kv_elements_per_token, state_elements
from prefixaudit.cost.position import length_dependence
from prefixaudit.cost.weights import num_parameters
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_CONFIG_FOLDERS = ("model-configs", "model_configs")


def _recognises(data: Mapping[str, Any]) -> bool:
    meta = data.get("meta")
    return (
        isinstance(meta, Mapping)
        and "flops_per_multiply_add" in meta
        and ("small" in data or "real" in data)
    )


def _verify(file: GoldenFile, tally: Tally) -> None:
    known = file.data["meta"].get("known_differences", {})
    for part in ("small", "real"):
        for name, record in file.data.get(part, {}).items():
            _verify_record(file, tally, f"{part} {name}", record, known)
    for name, record in file.data.get("rope_length_dependence", {}).items():
        _verify_rotary(tally, name, record)


def _verify_record(
    file: GoldenFile,
    tally: Tally,
    name: str,
    record: Mapping[str, Any],
    known: Mapping[str, Any],
) -> None:
    tally.config(name)
    config = record.get("config")
    if config is None:
        config = _published(file.path, str(record["config_name"]))
        if config is None:
            tally.leave_out(
                f"no {_CONFIG_FOLDERS[0]}/{record['config_name']}/config.json beside or above "
                "the file"
            )
            return
    try:
        spec = describe(config)
    except ConfigurationError as error:
        tally.leave_out(str(error))
        return
    if "parameters_total" in record:
        tally.equal("parameters_total", record["parameters_total"], num_parameters(spec))
    _verify_kv(tally, spec, record.get("kv", {}))
    has_token_by_token = not _differs_token_by_token(record, spec, known)
    for case in record["cases"]:
        tally.case(f"{name} n={case['n']} c={case['c']}")
        _verify_case(tally, spec, case, config, has_token_by_token=has_token_by_token)


def _verify_rotary(tally: Tally, name: str, record: Mapping[str, Any]) -> None:
    """Compare whether a rotary type's keys changed with length with what it is marked as."""
    tally.case(f"rotary {name}")
    scaling: dict[str, Any] = {"rope_type": name, "factor": 4.0}
    if record["original"] is not None:
        scaling["original_max_position_embeddings"] = record["original"]
    config = {
        "model_type": "llama",
        "max_position_embeddings": record["max_position_embeddings"],
        "rope_parameters": scaling,
    }
    found = length_dependence(describe(config), engine="transformers")
    changes = record["max_abs_diff_of_first_16_keys_vs_length_32"]
    depends = any(change != 0 for change in changes.values())
    tally.equal("prefix depends on length", depends, found.rule != "config-only")
    tally.equal("two chunks equal one pass", record["chunked_vs_single_pass"] == 0, found.is_safe)
    if depends:
        longest = max(int(length) for length, change in changes.items() if change == 0)
        tally.equal("longest length without a change", longest, found.threshold_tokens)


def _published(path: Path, name: str) -> dict[str, Any] | None:
    if Path(name).name != name:
        raise ValueError("config_name is a folder's name")
    for folder in path.resolve().parents:
        for configs in _CONFIG_FOLDERS:
            found = folder / configs / name / "config.json"
            if found.is_file():
                config: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
                return config
    return None


def _differs_token_by_token(
    record: Mapping[str, Any], spec: ModelSpec, known: Mapping[str, Any]
) -> bool:
    names = {str(record.get("model_type")), spec.model_type}
    return any(name in known for name in names)


def _verify_kv(tally: Tally, spec: ModelSpec, kv: Mapping[str, Any]) -> None:
    mixers = spec.cache.mixers
    by_window: dict[str, int] = {}
    full = 0
    for mixer in mixers:
        elements = kv_elements_per_token(mixer)
        span = _span(mixer)
        if span is None:
            full += elements
        elif elements:
            by_window[str(span)] = by_window.get(str(span), 0) + elements
    found: dict[str, object] = {
        "elements_per_token_full_context": full,
        "elements_per_token_windowed": sum(by_window.values()),
        "windowed_elements_by_window": by_window,
        "recurrent_state_elements_per_sequence": sum(state_elements(mixer)[0] for mixer in mixers),
        "conv_state_elements_per_sequence": sum(state_elements(mixer)[1] for mixer in mixers),
        "bytes_per_token_bf16": kv_bytes_per_token(spec, kv_cache_dtype="bfloat16"),
        "bytes_per_token_fp8": kv_bytes_per_token(spec, kv_cache_dtype="fp8"),
        "bytes_per_token_per_rank_bf16": {
            ranks: kv_bytes_per_token(spec, kv_cache_dtype="bfloat16", tensor_parallel=int(ranks))
            for ranks in kv.get("bytes_per_token_per_rank_bf16", {})
        },
    }
    for name, value in kv.items():
        if name not in found:
            raise ValueError(f"kv field {name} is not known")
        tally.equal(f"kv {name}", value, found[name])


def _span(mixer: Mixer) -> int | None:
    if isinstance(mixer, Attention):
        return mixer.chunk if mixer.chunk is not None else mixer.window
    return None


def _verify_case(
    tally: Tally,
    spec: ModelSpec,
    case: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    has_token_by_token: bool,
) -> None:
    n, c = int(case["n"]), int(case["c"])
    causal, square = _components(spec, n, c, "causal"), _components(spec, n, c, "square")
    _compare(tally, "closed_causal", case["closed_causal"], causal)
    _compare(tally, "closed_square", case["closed_square"], square)
    tally.equal("closed_causal_total", case["closed_causal_total"], total_flops(causal))
    tally.equal("closed_square_total", case["closed_square_total"], total_flops(square))
    without_cache = total_flops(_components(spec, n + c, 0, "causal"))
    tally.equal("closed_causal_no_cache_total", case["closed_causal_no_cache_total"], without_cache)
    tally.equal("saved_by_cache_causal", case["saved_by_cache_causal"], saved_flops(spec, c))
    differences = case.get("square_differences") or {}
    for name, number in case["measured"].items():
        if name not in differences:
            tally.equal(f"measured {name}", number, square.get(name, 0))
        elif name == "experts" and "num_local_experts" in _text_part(config):
            text = _text_part(config)
            times = text["num_local_experts"] / text["num_experts_per_tok"]
            tally.equal(f"measured {name}", number, square[name] * times)
    if not differences:
        tally.equal("measured_total", case["measured_total"], total_flops(square))
    if has_token_by_token:
        for name, number in case.get("measured_token_by_token_attention", {}).items():
            tally.equal(f"token by token {name}", number, causal.get(name, 0))


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def _components(spec: ModelSpec, n: int, c: int, form: Form) -> dict[str, int]:
    return {name: number for name, number in prefill_flops(spec, n, c, form=form).items() if number}


def _compare(
    tally: Tally, what: str, expected: Mapping[str, int], found: Mapping[str, int]
) -> None:
    for name in sorted({*expected, *found}):
        tally.equal(f"{what} {name}", expected.get(name, 0), found.get(name, 0))


VERIFIER = Verifier(
    title="prefill FLOPs by component, parameters and KV sizes of model configs",
    engine="transformers",
    recognises=_recognises,
    verify=_verify,
    file_names=("flops.json",),
)
