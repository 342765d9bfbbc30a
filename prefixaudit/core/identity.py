"""Everything but the tokens that decides whether two prompts may share a block.

Content fields change the numbers in the block: a mismatch gives silently wrong output. Isolation
fields say who may observe the reuse: a mismatch leaks. All of them are constant within a request,
so a chain is hashed once over tokens and media, and a key is (namespace of some of these fields,
token chain). Media enter the chain itself, block by block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from prefixaudit.core.unknown import UNKNOWN, Known


def _content(about: str) -> Any:
    return field(default=UNKNOWN, metadata={"kind": "content", "about": about})


def _isolation(about: str) -> Any:
    return field(default=UNKNOWN, metadata={"kind": "isolation", "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The complete identity of a request, apart from its tokens and media.

    Each field is text, None (known to be absent) or UNKNOWN (not recorded).
    """

    model: Known[str] = _content("name of the base model")
    model_revision: Known[str] = _content("revision or weight digest of the base model")
    dtype: Known[str] = _content("data type of weights and activations")
    quantization: Known[str] = _content("weight quantization method")
    kv_cache_dtype: Known[str] = _content("data type of the KV cache")
    kv_scales: Known[str] = _content("digest of the KV cache's quantization scales")
    lora_name: Known[str] = _content("name of the LoRA adapter")
    lora_revision: Known[str] = _content("revision or weight digest of the LoRA adapter")
    lora_path: Known[str] = _content("path the LoRA adapter was loaded from")
    prompt_embeds: Known[str] = _content(
        "digest of prompt embeddings or of a prompt-tuning adapter"
    )
    position_encoding: Known[str] = _content(
        "digest of the position encoding as the engine applies it"
    )
    attention: Known[str] = _content("attention pattern: full, window or chunk length")
    tenant: Known[str] = _isolation("who the request belongs to")
    trust_domain: Known[str] = _isolation("tenants that may observe each other's reuse")
    user: Known[str] = _isolation("end user within the tenant")
    cache_salt: Known[str] = _isolation("the salt that the request carries")
    extra_key: Known[str] = _isolation("SGLang's free-form cache namespace")

    def filled(self, defaults: Identity) -> Identity:
        """Return this identity with its UNKNOWN fields taken from `defaults`."""
        missing = {
            name: getattr(defaults, name)
            for name in IDENTITY_FIELDS
            if getattr(self, name) is UNKNOWN and getattr(defaults, name) is not UNKNOWN
        }
        return replace(self, **missing) if missing else self

    def values(self, names: tuple[str, ...]) -> tuple[Known[str], ...]:
        """Return the values of the fields `names`, in that order."""
        return tuple(getattr(self, name) for name in names)


# One object for all requests of which nothing is known: stages remember what they made of it.
UNKNOWN_IDENTITY: Final = Identity()

IDENTITY_FIELDS: Final[tuple[str, ...]] = tuple(f.name for f in fields(Identity))
CONTENT_FIELDS: Final = tuple(f.name for f in fields(Identity) if f.metadata["kind"] == "content")
ISOLATION_FIELDS: Final = tuple(
    f.name for f in fields(Identity) if f.metadata["kind"] == "isolation"
)


def field_kind(name: str) -> Literal["content", "isolation"]:
    """Say whether an identity field changes the KV numbers or only who may see the reuse."""
    return "content" if name in CONTENT_FIELDS else "isolation"
