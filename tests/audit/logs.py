"""Small random logs for laws: prompts that share beginnings, identities that differ at places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.audit import AuditLog, ServerFacts, TierFacts
from prefixaudit.core.engine import EngineProfile, KeyPart, Placement, Tier
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import MediaSpan, Request, Source, TokenIds
from prefixaudit.core.unknown import UNKNOWN

BLOCK_SIZE = 4
KEYED = ("lora_name", "lora_revision", "tenant", "cache_salt", "kv_cache_dtype")
SERVERS = (ServerFacts(name="server", engine=None, identity=Identity()),)
_ABSENT = dict.fromkeys(IDENTITY_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRequest:
    """One request: its tokens, its known identity, the media in it, its public tokens."""

    tokens: tuple[int, ...]
    identity: Identity
    media: tuple[MediaSpan, ...] = ()
    public_tokens: int = 0


@st.composite
def identities(draw: st.DrawFn) -> Identity:
    """An identity in which every field is known; revisions only where there is an adapter."""
    adapter = draw(st.sampled_from([None, "sql", "legal"]))
    values = {
        "lora_name": adapter,
        "lora_revision": None if adapter is None else draw(st.sampled_from(["1", "2"])),
        "tenant": draw(st.sampled_from(["acme", "bob"])),
        "cache_salt": draw(st.sampled_from([None, "x", "legal"])),
        "kv_cache_dtype": draw(st.sampled_from(["bfloat16", "fp8"])),
    }
    return Identity(**{**_ABSENT, **values})


@st.composite
def small_logs(draw: st.DrawFn, *, with_media: bool = False) -> list[SmallRequest]:
    """Up to 14 requests whose prompts branch off a few others."""
    requests: list[SmallRequest] = []
    for number in range(draw(st.integers(2, 14))):
        start: tuple[int, ...] = ()
        if requests:
            other = draw(st.sampled_from(requests)).tokens
            start = other[: draw(st.integers(0, len(other)))]
        fresh = draw(st.integers(0, 9))
        tokens = (*start, *(1000 * (number + 1) + place for place in range(fresh))) or (7,)
        media: tuple[MediaSpan, ...] = ()
        if with_media and len(tokens) >= 4 and draw(st.booleans()):
            name = draw(st.sampled_from(["cat", "dog"]))
            media = (MediaSpan(identifier=name, offset=1, num_tokens=2),)
        requests.append(SmallRequest(tokens=tokens, identity=draw(identities()), media=media))
    length = draw(st.integers(0, 12))
    public = draw(st.sampled_from(requests)).tokens[:length]
    return [
        SmallRequest(
            tokens=request.tokens,
            identity=request.identity,
            media=request.media,
            public_tokens=_common(request.tokens, public),
        )
        for request in requests
    ]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def audit_log(requests: Sequence[SmallRequest]) -> AuditLog:
    """Return the log as the audit takes it, with and without media in the chain."""
    with_media = TraceBuilder(block_size=BLOCK_SIZE, cache_generated=False)
    without = TraceBuilder(block_size=BLOCK_SIZE, cache_generated=False)
    for index, request in enumerate(requests):
        ids = np.array(request.tokens, dtype=np.uint32)
        for builder, media in ((with_media, request.media), (without, ())):
            builder.add(
                Prompt(
                    request=Request(
                        request_id=f"r{index}",
                        source=Source("log", index + 1),
                        prompt=TokenIds(token_ids=ids),
                        arrival_s=float(index),
                        identity=request.identity,
                    ),
                    tokens=ids,
                    num_prompt_tokens=len(ids),
                    generated_token_ids=UNKNOWN,
                    media=media,
                ),
                index,
            )
    count = len(requests)
    has_media = any(request.media for request in requests)
    return AuditLog(
        traces=(with_media.finish(),),
        media_traces={"none": (without.finish(),)} if has_media else {},
        server=np.zeros(count, dtype=np.int32),
        epoch=np.zeros(count, dtype=np.int32),
        store_epoch=np.zeros(count, dtype=np.int32),
        public_tokens=np.array([request.public_tokens for request in requests], dtype=np.int64),
        changed_fields=frozenset(),
        paths=(),
        path=np.empty(0, dtype=np.int32),
        line=np.empty(0, dtype=np.int64),
    )


def store(
    fields: Sequence[str], *, first_block: Sequence[str] = (), capacity_blocks: int | None = None
) -> TierFacts:
    """Return a store whose key holds the fields with every block, and some with the first only."""
    placed: list[tuple[str, Placement]] = [(name, "all-blocks") for name in fields]
    placed += [(name, "first-block") for name in first_block if name not in fields]
    tier = Tier(
        name="store",
        title="Store",
        kind="external-store",
        key=tuple(KeyPart(field=name, placement=place, form="value") for name, place in placed),
        hash=None,
        process_fields=(),
        ambiguities=(),
        not_in_key=(),
    )
    profile = EngineProfile(
        name="store",
        version=None,
        default_block_size=BLOCK_SIZE,
        min_recomputed_tokens=1,
        key_fields=tier.key_fields,
        tiers=(tier,),
    )
    return TierFacts(
        name="store",
        profile=profile,
        tier=tier,
        block_size=BLOCK_SIZE,
        servers=("server",),
        capacity_blocks=capacity_blocks,
    )
