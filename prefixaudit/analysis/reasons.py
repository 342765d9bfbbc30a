"""Why tokens weren't reused, beside the figures: what is noted on the way, and what comes of it.

reasons = Reasons(deployment, …)
reasons.add(prompt)             while the log is read, for every prompt that the trace takes
reasons.report(…)               the waterfall and the causes of unstable prefixes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes
from prefixaudit.core.trace import BlockTrace, Float64Array, Int64Array
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.why import Shared, WhyFacts
from prefixaudit.deployment import Deployment
from prefixaudit.prompts import Replayer, ReplayOptions
from prefixaudit.why.explaining import Explainer
from prefixaudit.why.grouping import group_causes
from prefixaudit.why.pairing import Pairing
from prefixaudit.why.rendering import Texts
from prefixaudit.why.waterfall import WaterfallInput, build_waterfall

if TYPE_CHECKING:
    from prefixaudit.core.model import ModelSpec

_UNKNOWN: Final = -1


class Reasons:
    """The reasons of one run."""

    def __init__(
        self, deployment: Deployment, *, cache_generated: bool, replay_options: ReplayOptions
    ) -> None:
        self._deployment = deployment
        self.replayer = Replayer(deployment.model_dir, replace(replay_options, check_share=0.0))
        self.cache_generated = cache_generated
        self.explainer = Explainer(Texts(self.replayer))
        self.pairing = Pairing(self.explainer, cache_generated=cache_generated)

    def add(self, prompt: Prompt) -> None:
        """Note a prompt that the trace has taken."""
        self.pairing.add(prompt)
        if not isinstance(prompt.tokens, BlockHashes):
            self.explainer.inspect(prompt, self.pairing.num_added - 1)

    def add_batch(self, batch: TraceBatch) -> None:
        """Note requests that the trace has taken as columns: they hold block ids."""
        self.pairing.add_uncompared(len(batch))

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
        if self.pairing.num_added == trace.num_requests:
            names, codes = self.pairing.endpoints
            endpoint = names, np.array(codes, dtype=np.int32)
            if self.pairing.num_compared:
                shared = self.pairing.shared()
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
            relations=dict(self.pairing.relations.most_common()),
            notes=tuple(self._notes(shared, trace)),
        )

    def _notes(self, shared: Shared | None, trace: BlockTrace) -> list[str]:
        notes = []
        if shared is None:
            notes.append(
                "the log holds block ids: text that was seen behind another beginning counts as "
                "new, since its ids differ"
            )
        if self.pairing.num_forgotten_tokens:
            notes.append(
                f"{self.pairing.num_forgotten_tokens:,} tokens of older prompts were forgotten for "
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
