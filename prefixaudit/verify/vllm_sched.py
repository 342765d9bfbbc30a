"""Reruns recorded arrivals under vLLM's scheduler: cached tokens, steps, preemptions, work done.

`settings`: `num_blocks` (with the null block), `max_num_batched_tokens`, `max_num_seqs`,
`max_model_len`, `groups` and `retention_interval` as in `vllm_replay.py`. Chunked prefill, first
come first served, synchronous. `arrivals[]`: `step` (queued before that step), `prompt`,
`max_tokens` (always reached), `outseg` (the segment of its answer, from 0), `salt`, `lora`.
`expect[]`, one an arrival: `cached` tokens when it is first scheduled, `first_step`, `finish_step`,
`preemptions`, `scheduled_tokens` (also those computed again).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.pool.vllm.scheduler import Scheduler, SchedulerRules, ServedRequest
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier
from prefixaudit.verify._vllm_vectors import KeyChain, rules_of, tokens_of


def _requests(
    arrivals: list[Mapping[str, Any]], block_size: int, engine_version: str
) -> list[ServedRequest]:
    requests = []
    for number, arrival in enumerate(arrivals):
        prompt = tokens_of(arrival["prompt"])
        answer = tokens_of([[arrival["outseg"], 0, arrival["max_tokens"]]])
        chain = KeyChain(
            block_size, engine_version, lora=arrival.get("lora"), salt=arrival.get("salt")
        )
        chain.grow(prompt + answer)
        requests.append(
            ServedRequest(
                number=number,
                keys=chain.keys,
                num_prompt_tokens=len(prompt),
                num_tokens=len(prompt),
                num_answer_tokens=len(answer),
            )
        )
    return requests


def _serve(
    scheduler: Scheduler, requests: list[ServedRequest], arrivals: list[Mapping[str, Any]]
) -> bool:
    """Run until all are served; False if a request can never be."""
    num_queued = 0
    while num_queued < len(requests) or scheduler.running or scheduler.waiting:
        while num_queued < len(requests) and arrivals[num_queued]["step"] <= scheduler.num_steps:
            scheduler.add(requests[num_queued])
            num_queued += 1
        if scheduler.step().stuck is not None:
            return False
    return True


def _verify(file: GoldenFile, tally: Tally) -> None:
    settings, arrivals, expected = (file.data[key] for key in ("settings", "arrivals", "expect"))
    tally.case(file.data["id"])
    rules = rules_of(settings, file.engine_version)
    scheduler = Scheduler(
        rules,
        settings["num_blocks"],
        SchedulerRules(
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            max_num_seqs=settings["max_num_seqs"],
            max_model_tokens=settings["max_model_len"],
        ),
    )
    requests = _requests(arrivals, rules.hash_block_size, file.engine_version)
    tally.equal("all requests served", True, _serve(scheduler, requests, arrivals))
    results = [
        {
            "rid": arrival["rid"],
            "cached": request.num_cached_tokens,
            "first_step": request.first_step,
            "finish_step": request.finish_step,
            "preemptions": request.num_preemptions,
            "scheduled_tokens": request.num_scheduled_tokens,
        }
        for arrival, request in zip(arrivals, requests, strict=True)
    ]
    tally.compare("request", expected, results)


VERIFIER = Verifier(
    title="vLLM scheduler, step by step",
    engine="vllm",
    recognises=lambda data: "arrivals" in data and "expect" in data,
    verify=_verify,
)
