"""Why tokens weren't reused, beside the figures: what is noted on the way, and what comes of it.

reasons = Reasons(deployment, …)
reasons.add(prompt)             while the log is read, for every prompt that the trace takes
reasons.report(…)               the waterfall and the causes of unstable prefixes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes
from prefixaudit.core.trace import BlockTrace, Float64Array, Int64Array
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.why import Shared, UnstableCause, WhyFacts
from prefixaudit.deployment import Deployment
from prefixaudit.why.waterfall import WaterfallInput, build_waterfall

if TYPE_CHECKING:  # a log of block ids has no prompts to compare
    from prefixaudit.core.model import ModelSpec
    from prefixaudit.prompts import Replayer, ReplayOptions
    from prefixaudit.why.explaining import Explainer
    from prefixaudit.why.pairing import Pairing

_UNKNOWN: Final = -1


class Reasons:
    """The reasons of one run."""

    def __init__(
        self, deployment: Deployment, *, cache_generated: bool, replay_options: ReplayOptions
    ) -> None:
        self._deployment = deployment
        self._replay_options = replace(replay_options, check_share=0.0)
        self.cache_generated = cache_generated
        self._pairing: Pairing | None = None
        self._num_first_ids = 0

    @cached_property
    def replayer(self) -> Replayer:
        """Return what renders prompts again, to look at their text."""
        from prefixaudit.prompts import Replayer

        return Replayer(self._deployment.model_dir, self._replay_options)

    @cached_property
    def explainer(self) -> Explainer:
        """Return what is told of the pairs that could be unstable."""
        from prefixaudit.why.explaining import Explainer
        from prefixaudit.why.rendering import Texts

        return Explainer(Texts(self.replayer))

    @property
    def pairing(self) -> Pairing:
        """Return the pairs of prompts. None is made before a prompt that isn't block ids alone."""
        if self._pairing is None:
            from prefixaudit.why.pairing import Pairing

            self._pairing = Pairing(self.explainer, cache_generated=self.cache_generated)
            if self._num_first_ids:
                self._pairing.add_uncompared(self._num_first_ids)
        return self._pairing

    def add(self, prompt: Prompt) -> None:
        """Note a prompt that the trace has taken."""
        holds_ids = isinstance(prompt.tokens, BlockHashes)
        if holds_ids and not isinstance(prompt.request.endpoint, str):
            self._add_ids(1)
            return
        self.pairing.add(prompt)
        if not holds_ids:
            self.explainer.inspect(prompt, self.pairing.num_added - 1)

    def add_batch(self, batch: TraceBatch) -> None:
        """Note requests that the trace has taken as columns: they hold block ids."""
        self._add_ids(len(batch))

    def _add_ids(self, num_prompts: int) -> None:
        if self._pairing is None:
            self._num_first_ids += num_prompts
        else:
            self._pairing.add_uncompared(num_prompts)

    def report(
        self,
        trace: BlockTrace,
        *,
        hits: Int64Array,
        endless_hits: Int64Array,
        key_fields: tuple[str, ...],
        min_recomputed_tokens: int,
        saved_flops: Callable[[Int64Array], Float64Array] | None,
        prefill_flops: Float64Array | None,
        has_pools_of_servers: bool,
    ) -> WhyFacts:
        """Return the waterfall and the causes; hits are int64 [requests], in tokens."""
        shared: Shared | None = None
        endpoint = None
        pairing = self._pairing
        if pairing is not None and pairing.num_added == trace.num_requests:
            names, codes = pairing.endpoints
            endpoint = names, np.array(codes, dtype=np.int32)
            if pairing.num_compared:
                shared = pairing.shared()
        waterfall = build_waterfall(
            WaterfallInput(
                trace=trace,
                hits=hits,
                endless_hits=endless_hits,
                key_fields=key_fields,
                min_recomputed_tokens=min_recomputed_tokens,
                shared=shared,
                fine_block_size=self._fine_block_size(trace.block_size),
                has_pools_of_servers=has_pools_of_servers,
                endpoint=endpoint,
                saved_flops=saved_flops,
                prefill_flops=prefill_flops,
            )
        )
        causes: tuple[UnstableCause, ...] = ()
        if pairing is not None:
            from prefixaudit.why.grouping import group_causes

            causes = group_causes(
                self.explainer.explained,
                trace.request_ids,
                lost_tokens=waterfall.unstable_tokens,
                lost_flops=waterfall.unstable_flops,
                num_prompt_tokens=waterfall.num_prompt_tokens,
            )
        return WhyFacts(
            waterfall=waterfall,
            causes=causes,
            relations={} if pairing is None else dict(pairing.relations.most_common()),
            notes=tuple(self._notes(shared, trace)),
        )

    def _notes(self, shared: Shared | None, trace: BlockTrace) -> list[str]:
        notes = []
        if shared is None:
            notes.append(
                "the log holds block ids: text that was seen behind another beginning counts as "
                "new, since its ids differ"
            )
        num_forgotten = 0 if self._pairing is None else self._pairing.num_forgotten_tokens
        if num_forgotten:
            notes.append(
                f"{num_forgotten:,} tokens of older prompts were forgotten for "
                "room: what repeats them counts as new text"
            )
        return notes

    def _fine_block_size(self, block_size: int) -> int | None:
        """Return the engine's own block size where a hybrid model's states made it larger."""
        model, engine = self._deployment.model, self._deployment.engine
        if model is None or engine is None or not _has_states(model):
            return None
        return engine.default_block_size if engine.default_block_size < block_size else None


def _has_states(model: ModelSpec) -> bool:
    from prefixaudit.core.model import Attention, LatentAttention

    return any(
        not isinstance(mixer, Attention | LatentAttention)
        for layer, _ in model.distinct_layers
        for mixer in layer.mixers
    )
