"""What a new deployment does to keys, hits and findings."""

from __future__ import annotations

from pathlib import Path

from prefixaudit.core.gate import Change
from prefixaudit.deployment import load_deployment
from prefixaudit.gate import run_gate


def changes(tmp_path: Path, old: str, new: str) -> list[Change]:
    paths = [tmp_path / "old.toml", tmp_path / "new.toml"]
    for path, text in zip(paths, (old, new), strict=True):
        path.write_text(text)
    before, after = (load_deployment(path) for path in paths)
    report = run_gate(after, deployment_paths=["new.toml"], old=before)
    assert report.changes is not None
    return list(report.changes)


VLLM = '[[server]]\nname = "a"\nengine = "vllm"\nversion = "{}"\n'


def test_equal_deployments_change_nothing(tmp_path: Path) -> None:
    assert changes(tmp_path, VLLM.format("0.33.0"), VLLM.format("0.33.0")) == []


def test_only_server_under_another_name_is_the_same(tmp_path: Path) -> None:
    text = VLLM.format("0.20.0")

    assert changes(tmp_path, text, text.replace('"a"', '"b"')) == []


def test_update_puts_the_adapters_path_into_the_key_and_ends_a_finding(tmp_path: Path) -> None:
    """From vLLM 0.31 the key holds ("lora", name, path)."""
    settings = "settings = { enable_lora = true, allow_runtime_lora_updating = true }\n"
    found = changes(tmp_path, VLLM.format("0.30.0") + settings, VLLM.format("0.33.0") + settings)

    keys = {(change.what, change.effect) for change in found if change.kind == "key"}
    assert ("lora_path in the key", "better") in keys
    assert any(change.kind == "finding" and change.effect == "better" for change in found)
    [engine] = [change for change in found if change.what == "engine"]
    assert (engine.before, engine.after) == ("vllm 0.30.0", "vllm 0.33.0")


def test_new_store_is_a_new_tier_with_its_findings(tmp_path: Path) -> None:
    settings = "settings = { enable_lora = true }\n"
    found = changes(
        tmp_path,
        VLLM.format("0.10.2") + settings,
        VLLM.format("0.10.2") + settings + '[[tier]]\nkind = "lmcache"\nversion = "0.3.15"\n',
    )

    [tier] = [change for change in found if change.kind == "key" and change.what == "tier"]
    assert (tier.subject, tier.before) == ("lmcache", "not there")
    assert any(change.kind == "finding" and change.effect == "worse" for change in found)


def test_settings_and_block_size_are_told(tmp_path: Path) -> None:
    found = changes(
        tmp_path,
        VLLM.format("0.33.0") + "settings = { enable_prompt_embeds = true }\n",
        VLLM.format("0.33.0") + "block_size = 32\nsettings = { enable_prompt_embeds = false }\n",
    )

    rows = {(change.what, change.before, change.after) for change in found}
    assert ("enable_prompt_embeds", "yes", "no") in rows
    assert ("block size", "16 tokens", "32 tokens") in rows


def test_hits_of_a_log_are_compared(tmp_path: Path) -> None:
    """Two requests with 40 equal tokens: two blocks of 16 are hit, or one of 32."""
    log = tmp_path / "log.jsonl"
    ids = list(range(100, 140))
    log.write_text(f'{{"prompt_token_ids": {[*ids, 1]}}}\n{{"prompt_token_ids": {[*ids, 2]}}}\n')
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text('[engine]\nname = "vllm"\nblock_size = 8\n')
    new.write_text('[engine]\nname = "vllm"\nblock_size = 32\n')

    report = run_gate(
        load_deployment(new),
        deployment_paths=["new.toml"],
        log_paths=[str(log)],
        old=load_deployment(old),
    )

    [hits] = [c for c in report.changes or () if c.what == "token_hit_rate"]
    # 40 and 32 of 82 tokens.
    assert (hits.before, hits.after, hits.effect) == ("48.78 %", "39.02 %", "worse")
