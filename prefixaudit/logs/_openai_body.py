"""Prompts of request bodies, with vLLM's and SGLang's extensions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prefixaudit.core.request import (
    ChatMessages,
    NotReplayable,
    PromptInput,
    RawText,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs import _messages_body, _responses_body
from prefixaudit.logs._fields import token_ids
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._messages_body import MessagesRules, is_messages_body
from prefixaudit.logs._responses_body import StoredResponses, is_responses_body

_OBJECT: Final = frozenset({dict})
CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
MESSAGES: Final = "/v1/messages"
RESPONSES: Final = "/v1/responses"
_OTHER_PATHS: Final = frozenset(
    {"tokenize", "detokenize", "count_tokens", "input_tokens", "embeddings", "rerank", "score",
     "pooling", "classify", "transcriptions", "translations", "speech"}
)  # fmt: skip


def is_body(value: Any) -> bool:
    """Say whether an object can be the body of a request that has a prompt."""
    return isinstance(value, dict) and (
        isinstance(value.get("messages"), list)
        or isinstance(value.get("prompt"), str | list)
        or isinstance(value.get("input_ids"), list)
        or isinstance(value.get("prompt_embeds"), str | list)
        or is_responses_body(value)
    )


def endpoint_of(body: Mapping[str, Any], path: str | None) -> str | None:
    """Return the API a body is for, by the request's path, else by its shape; None is neither.

    Paths that generate nothing (`/tokenize`, `/v1/messages/count_tokens`, embeddings …) are None.
    """
    if path:
        bare = path.split("?", 1)[0].rstrip("/")
        for endpoint in (CHAT, COMPLETIONS, MESSAGES, RESPONSES):
            if bare.endswith(endpoint.removeprefix("/v1")):
                return endpoint
        if bare.rpartition("/")[2] in _OTHER_PATHS:
            return None
    if is_responses_body(body):
        return RESPONSES
    if isinstance(body.get("messages"), list):
        return MESSAGES if is_messages_body(body) else CHAT
    return COMPLETIONS if is_body(body) else None


@dataclass(frozen=True, slots=True)
class BodyReader:
    """What bodies are read with: the server's ways, and the responses it keeps."""

    rules: MessagesRules = field(default_factory=MessagesRules)
    stored: StoredResponses = field(default_factory=StoredResponses)

    def prompts_of(self, body: Mapping[str, Any], endpoint: str) -> tuple[PromptInput, ...]:
        """Return the body's prompts: one, or as many as a list of prompts holds.

        Raises RecordError where the body has no prompt that a server would have taken.
        """
        if isinstance(body.get("input_ids"), list):
            return _id_prompts(body["input_ids"], "input_ids")
        if endpoint not in (RESPONSES, MESSAGES, CHAT):
            return tuple(_truncated(prompt, body) for prompt in _completions(body))
        prompt: PromptInput
        if endpoint == RESPONSES:
            prompt = _responses_body.chat_of(body, self.stored)
        elif endpoint == MESSAGES:
            prompt = _messages_body.chat_of(body, self.rules)
        else:
            prompt = _truncated(_chat(body), body)
        if self.rules.drops_header_line and isinstance(prompt, ChatMessages):
            prompt = _messages_body.without_header_line(prompt)
        return (prompt,)


def identity_fields(body: Mapping[str, Any]) -> dict[str, Known[str]]:
    """Return the identity that the client's body states.

    The body is the client's whole request, so a salt or key that isn't in it wasn't sent (None).
    The adapter stays unknown: vLLM takes its name for the model's.
    """
    found: dict[str, Known[str]] = {
        "model": _text(body, "model", absent=UNKNOWN),
        "cache_salt": _text(body, "cache_salt", absent=None),
        "extra_key": _text(body, "extra_key", absent=None),
        "prompt_embeds": None,
    }
    if "lora_path" in body:
        found["lora_path"] = _text(body, "lora_path", absent=None)
        if found["lora_path"] is None:
            found["lora_name"] = None
            found["lora_revision"] = None
    if body.get("prompt_embeds") is not None:
        digest = hashlib.sha256(repr(body["prompt_embeds"]).encode("utf-8", "surrogatepass"))
        found["prompt_embeds"] = digest.hexdigest()
    metadata = body.get("metadata")
    for user in (
        body.get("safety_identifier"),
        body.get("user"),
        metadata.get("user_id") if isinstance(metadata, dict) else None,
    ):
        if isinstance(user, str):
            found["user"] = user
            break
    return found


def reads_cache(body: Mapping[str, Any], endpoint: str) -> bool:
    """Say whether the prefix cache is read: not when log probabilities of the prompt are asked.

    vLLM, `skip_reading_prefix_cache`: `prompt_logprobs` of any number, 0 too; for completions
    `echo` makes `logprobs` cover the prompt.
    """
    if body.get("prompt_logprobs") is not None:
        return False
    echoes = endpoint == COMPLETIONS and body.get("echo") is True
    return not (echoes and body.get("logprobs") is not None)


def num_samples(body: Mapping[str, Any]) -> int:
    """Return how many answers the engine generates for each prompt (`n`, or `best_of` above it)."""
    counts = [body.get(name) for name in ("n", "best_of")]
    return max([1, *(count for count in counts if type(count) is int)])


def _text(body: Mapping[str, Any], name: str, *, absent: Known[str]) -> Known[str]:
    value = body.get(name, absent)
    if value is None or value is UNKNOWN or isinstance(value, str):
        return value
    raise RecordError("bad-field", f"`{name}` of the body is neither text nor null")


def _chat(body: Mapping[str, Any]) -> PromptInput:
    messages = _objects(body, "messages")
    if not messages:
        raise RecordError("no-prompt", "`messages` of the body is missing or empty")
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise RecordError("bad-field", "`chat_template_kwargs` of the body is not an object")
    kwargs = dict(kwargs or {})
    # vLLM and SGLang hand it to the template; a null there leaves the template's default.
    if body.get("reasoning_effort") is not None:
        kwargs["reasoning_effort"] = body["reasoning_effort"]
    template = body.get("chat_template")
    if template is not None and not isinstance(template, str):
        raise RecordError("bad-field", "`chat_template` of the body is not text")
    return ChatMessages(
        messages=messages,
        tools=_objects(body, "tools"),
        documents=_objects(body, "documents"),
        chat_template=template,
        chat_template_kwargs=kwargs,
        add_generation_prompt=_flag(body, "add_generation_prompt", True),
        continue_final_message=_flag(body, "continue_final_message", False),
        add_special_tokens=_flag(body, "add_special_tokens", False),
        changes_media=bool(body.get("mm_processor_kwargs") or body.get("media_io_kwargs")),
        tool_choice=body.get("tool_choice"),
        reasoning_effort=body.get("reasoning_effort"),
    )


def _completions(body: Mapping[str, Any]) -> tuple[PromptInput, ...]:
    prompt = body.get("prompt")
    if body.get("prompt_embeds") is not None:
        reason = "the prompt is given as embeddings, which have no token ids"
        return (NotReplayable(kind="prompt-embeds", reason=reason),)
    adds = _flag(body, "add_special_tokens", True)
    if isinstance(prompt, str):
        return (RawText(text=prompt, add_special_tokens=adds),)
    if not isinstance(prompt, list) or not prompt:
        raise RecordError("no-prompt", "`prompt` of the body is missing or empty")
    if all(isinstance(item, str) for item in prompt):
        return tuple(RawText(text=item, add_special_tokens=adds) for item in prompt)
    return _id_prompts(prompt, "prompt")


def _id_prompts(prompt: list[Any], name: str) -> tuple[TokenIds, ...]:
    if prompt and all(isinstance(item, list) for item in prompt):
        return tuple(TokenIds(token_ids=token_ids(item, name)) for item in prompt)
    if not prompt:
        raise RecordError("no-prompt", f"`{name}` of the body is empty")
    return (TokenIds(token_ids=token_ids(prompt, name)),)


def _truncated(prompt: PromptInput, body: Mapping[str, Any]) -> PromptInput:
    """Apply vLLM's `truncate_prompt_tokens`: the last ids are kept, or the first of them."""
    limit = body.get("truncate_prompt_tokens")
    if type(limit) is not int or limit < 1:
        return prompt
    if isinstance(prompt, TokenIds):
        ids = prompt.token_ids
        kept = ids[:limit] if body.get("truncation_side") == "right" else ids[-limit:]
        return TokenIds(token_ids=kept)
    reason = "the server cuts the prompt to a number of tokens (`truncate_prompt_tokens`)"
    return NotReplayable(kind="truncated-prompt", reason=reason)


def _objects(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]] | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or set(map(type, value)) - _OBJECT:
        raise RecordError("bad-field", f"`{name}` of the body is not a list of objects")
    return value


def _flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RecordError("bad-field", f"`{name}` of the body is neither true nor false")
    return value
