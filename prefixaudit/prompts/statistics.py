"""What a replay did: tokens encoded and reused, seconds by stage, proofs, and notes."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStatistics:
    """Sums over a replay; several processes' statistics add up.

    num_encoded_tokens are of new parts of texts (in which words may have been seen before),
    num_reused_tokens came from the cache of parts; proofs and their num_proved_tokens are on top.
    The seconds are wall time inside each stage.
    """

    num_prompts: int = 0
    num_skipped: int = 0
    num_rendered: int = 0
    num_clock_prompts: int = 0
    num_null_content_prompts: int = 0
    num_media: int = 0
    num_media_bytes: int = 0
    num_encoded_tokens: int = 0
    num_reused_tokens: int = 0
    num_proofs: int = 0
    num_proved_tokens: int = 0
    num_failed_proofs: int = 0
    render_s: float = 0.0
    encode_s: float = 0.0
    proof_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __add__(self, other: ReplayStatistics) -> ReplayStatistics:
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "notes"
        }
        return ReplayStatistics(**sums, notes=tuple(dict.fromkeys(self.notes + other.notes)))
