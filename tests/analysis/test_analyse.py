"""The pipeline as a function: definitions, conservation, coverage, and the pool modelled."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from pathlib import Path

import pytest

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.report import RenderOptions, Report
from prefixaudit.deployment import Deployment, Overrides, load_deployment
from prefixaudit.errors import UsageError
from prefixaudit.logs import mooncake
from prefixaudit.render import RENDERERS
from prefixaudit.render._rows import per_request_lines

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces" / "mooncake"


def _log(path: Path, prompts: list[list[int]], **fields: object) -> str:
    with path.open("w") as file:
        for number, prompt in enumerate(prompts):
            body = {"model": "m", "prompt": prompt}
            record = {"request_id": f"r{number}", "path": "/v1/completions", "body": body}
            file.write(json.dumps({**record, **fields}) + "\n")
    return str(path)


def _conversations(seed: int, num_requests: int = 60) -> list[list[int]]:
    """Return prompts of a few growing conversations with common starts, in mixed order."""
    random_source = random.Random(seed)
    sessions = [[1] * random_source.randrange(40) for _ in range(5)]
    prompts = []
    for _ in range(num_requests):
        session = random_source.choice(sessions)
        session += [random_source.randrange(50) for _ in range(random_source.randrange(1, 12))]
        prompts.append(list(session))
    return prompts


def _plain_lru(prompts: list[list[int]], block_size: int, capacity: int) -> list[int]:
    """Cached tokens of each prompt in an LRU pool; an unfilled tail takes a block of its own."""
    pool: OrderedDict[object, None] = OrderedDict()
    hits = []
    for number, prompt in enumerate(prompts):
        full = [tuple(prompt[:end]) for end in range(block_size, len(prompt) + 1, block_size)]
        limit = (len(prompt) - 1) // block_size
        num_hits = 0
        while num_hits < limit and full[num_hits] in pool:
            num_hits += 1
        hits.append(num_hits * block_size)
        keys: list[object] = [*full]
        if len(prompt) % block_size:
            keys.append(("tail", number))
        for key in reversed(keys):
            pool[key] = None
            pool.move_to_end(key)
        while len(pool) > capacity:
            pool.popitem(last=False)
    return hits


def _analyse(paths: list[str], overrides: Overrides, **options: object) -> Report:
    return analyse(paths, load_deployment(None, overrides), AnalysisOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_every_point_of_the_curve_is_a_plain_lru_pool(tmp_path: Path, seed: int) -> None:
    prompts = _conversations(seed)
    log = _log(tmp_path / "log.jsonl", prompts)

    report = _analyse([log], Overrides(block_size=4, capacity_blocks=9))

    for point in report.curve:
        expected = sum(_plain_lru(prompts, 4, point.capacity_blocks))
        assert point.num_cached_tokens == expected, point.capacity_blocks
    lookups = report.rows.lookups
    assert lookups.num_cached_tokens.tolist() == _plain_lru(prompts, 4, 9)
    assert report.endless_pool.num_cached_tokens == report.curve[-1].num_cached_tokens


@pytest.mark.parametrize("engine", ["vllm@0.23.0", "vllm@0.33.0", "sglang@0.5.23"])
def test_curve_holds_this_pools_figure(tmp_path: Path, engine: str) -> None:
    log = _log(tmp_path / "log.jsonl", _conversations(3))

    report = _analyse([log], Overrides(block_size=4, capacity_blocks=12, engine=engine))

    [point] = [point for point in report.curve if "this-pool" in point.marks]
    assert point.num_cached_tokens == report.this_pool.num_cached_tokens
    assert 0 < point.num_cached_tokens < report.endless_pool.num_cached_tokens
    assert report.curve[-1].num_cached_tokens == report.endless_pool.num_cached_tokens
    assert engine.replace("@", " ") in report.pool.simulation


def test_salts_keep_prompts_apart_under_every_key(tmp_path: Path) -> None:
    prompt = list(range(64))
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, salts in ((first, ("s", "s")), (second, ("s", "t"))):
        records = [
            {
                "path": "/v1/completions",
                "body": {"model": "m", "prompt": prompt, "cache_salt": salt},
            }
            for salt in salts
        ]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))

    for engine in (None, "vllm@0.33.0"):
        overrides = Overrides(block_size=16, engine=engine)
        assert _analyse([str(first)], overrides).this_pool.num_cached_tokens == 48
        assert _analyse([str(second)], overrides).this_pool.num_cached_tokens == 0


def test_models_do_not_share_although_no_engine_hashes_the_model(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    records = [
        {"path": "/v1/completions", "body": {"model": model, "prompt": list(range(64))}}
        for model in ("a", "b")
    ]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))

    report = _analyse([str(log)], Overrides(engine="vllm@0.33.0"))

    assert report.this_pool.num_cached_tokens == 0


def test_reported_figures_stand_beside_replayed_ones(tmp_path: Path) -> None:
    """Three equal prompts of 40 tokens: 0, 32, 32 cached; the server says null, 32 and 16."""
    log = tmp_path / "log.jsonl"
    usages = [
        {"prompt_tokens": 40, "prompt_tokens_details": None},
        {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}},
        {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 16}},
    ]
    log.write_text(
        "".join(
            json.dumps(
                {
                    "path": "/v1/completions",
                    "body": {"model": "m", "prompt": list(range(40))},
                    "response": {"usage": usage, "choices": []},
                }
            )
            + "\n"
            for usage in usages
        )
    )

    agreement = _analyse([str(log)], Overrides(block_size=16)).cached_agreement

    assert agreement is not None
    assert (agreement.num_compared, agreement.num_equal, agreement.num_more) == (2, 1, 1)
    assert (agreement.reported_tokens, agreement.replayed_tokens) == (48, 64)


def test_every_record_is_one_row_and_one_count(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    _log(log, [[1, 2, 3], [4, 5, 6]])
    with log.open("a") as file:
        file.write('{"path": "/v1/completions", "body": {"model": "m", "prompt": [-1]}}\n{broken\n')

    report = _analyse([str(log)], Overrides())

    assert report.log.num_records == 4
    assert report.log.num_requests + report.log.num_skipped == len(report.rows.position) == 4
    assert report.rows.position.tolist() == [0, 1, -1, -2]
    assert report.rows.line.tolist() == [1, 2, 3, 4]
    assert report.incomplete is None


def test_mixed_block_ids_cost_the_record_only(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n'
        '{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2, 3]}\n'
        '{"timestamp": 2, "input_length": 1030, "output_length": 1, "hash_ids": [1, 2, 4]}\n'
    )

    report = _analyse([str(log)], Overrides(), trace_block_size=512)

    assert report.log.num_requests == 2
    assert report.log.num_skipped == 1
    # 1,030 tokens after the same two blocks: both hit, since six tokens are left to compute.
    assert report.this_pool.num_cached_tokens == 1024


def test_gib_without_a_model_fails_before_reading() -> None:
    with pytest.raises(UsageError, match="no model is given"):
        _analyse(["does-not-exist.jsonl"], Overrides(capacity_gib=1.0))


def test_deployment_can_keep_answers_out_of_the_pool(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    _log(log, [list(range(16)), list(range(65))], output_token_ids=list(range(16, 49)))

    def hits(deployment: Deployment) -> int:
        return analyse([str(log)], deployment).this_pool.num_cached_tokens

    assert hits(Deployment(block_size=16)) == 48
    assert hits(Deployment(block_size=16, cache_generated=False)) == 16


@pytest.mark.parametrize(
    ("name", "of_tokens", "of_ids", "of_requests"),
    [("conversation", 0.3734, 0.3664, 0.9999), ("synthetic", 0.6504, 0.6396, 0.4463)],
)
def test_published_traces(name: str, of_tokens: float, of_ids: float, of_requests: float) -> None:
    """Figures that are stated with the traces, for an endless pool."""
    path = TRACES / f"{name}_trace.jsonl.gz"
    if not path.exists():
        pytest.skip("the public traces lie beside the repository, if anywhere")

    report = _analyse([str(path)], Overrides())

    assert report.trace_ids is not None
    assert report.endless_pool.token_hit_rate == pytest.approx(of_tokens, abs=5e-5)
    assert report.trace_ids.id_hit_rate == pytest.approx(of_ids, abs=5e-5)
    assert report.endless_pool.request_hit_rate == pytest.approx(of_requests, abs=5e-5)


def test_a_trace_read_as_columns_gives_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged lines between them, ids of partial blocks, and a file of another block size."""
    source = random.Random(5)
    lines: list[str] = []
    sound: list[str] = []
    for number, prompt in enumerate(_conversations(5)):
        ids = [sum(prompt[: place + 1]) * 64 + place for place in range(0, len(prompt), 4)]
        length = len(prompt)
        record = {"timestamp": number, "input_length": length, "output_length": 3, "hash_ids": ids}
        sound.append(json.dumps(record))
        lines.append(sound[-1])
        if source.random() < 0.2:
            lines.append(source.choice(["", "{", json.dumps({**record, "input_length": 1000})]))
    damaged, whole, other = (tmp_path / name for name in ("damaged", "whole", "other"))
    damaged.write_text("\n".join(lines) + "\n")
    whole.write_text("\n".join(sound))
    other.write_text('{"timestamp":9,"input_length":8,"output_length":1,"hash_ids":[1]}\n' * 2)
    found = []
    for kernel_after_bytes in (0, 1 << 60):
        monkeypatch.setattr(mooncake, "KERNEL_AFTER_BYTES", kernel_after_bytes)
        reports = [
            _analyse([str(damaged)], Overrides(capacity_blocks=40), trace_block_size=4),
            _analyse([str(whole), str(other)], Overrides(capacity_blocks=40)),
        ]
        rows = [b"".join(per_request_lines(report)) for report in reports]
        texts = [RENDERERS["json"].render(report, RenderOptions()) for report in reports]
        found.append((rows, texts))

    assert found[0] == found[1]
    assert "unfit-blocks" in found[0][1][1]
    assert found[0][0][0].count(b"\n") > 60
