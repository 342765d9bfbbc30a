"""How a server prepares chats, as values, by engine and version; `preparing` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from prefixaudit.prompts.versions import Version, parsed_version

NullContent = Literal["keep", "drop", "empty"]
ToolArguments = Literal["as-sent", "object"]
ContentParts = Literal["auto", "as-sent", "join"]
Server: TypeAlias = Literal["vllm", "sglang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRules:
    """How a server prepares messages.

    null_content    keep: the template sees null (transformers up to 5.23; naive templates print
                    the word None). drop: keys with null are left out of messages (transformers
                    5.24). empty: null content is an empty text (vLLM's and SGLang's servers)
    tool_arguments  as-sent, or object: the text that the model wrote is parsed (vLLM, SGLang)
    content_parts   auto: parts for templates that the server takes for such, else their joined
                    text. as-sent, join: never and always joined, as servers can be told to
    part_separator  what stands between joined parts: a line feed (vLLM), a space (SGLang)
    server          whose rules shape the messages besides; None: nobody's
    version         the server's version; None: the newest known
    """

    null_content: NullContent = "keep"
    tool_arguments: ToolArguments = "as-sent"
    content_parts: ContentParts = "auto"
    part_separator: str = "\n"
    server: Server | None = None
    version: Version | None = None


AS_SENT = ServerRules()
VLLM = ServerRules(null_content="empty", tool_arguments="object", server="vllm")
SGLANG = ServerRules(
    null_content="empty", tool_arguments="object", part_separator=" ", server="sglang"
)


def rules_of(engine: str | None, version: str | None) -> ServerRules:
    """Return the rules of an engine's own server at a version (None: the newest known).

    Engines whose server isn't known here pass chats on as sent.
    """
    known = None if version is None else parsed_version(version)
    if engine == "vllm":
        # 0.6.0 hands the arguments on as text; `_postprocess_messages` came with 0.6.1.
        as_text = known is not None and known < (0, 6, 1)
        return ServerRules(
            null_content="empty",
            tool_arguments="as-sent" if as_text else "object",
            server="vllm",
            version=known,
        )
    if engine == "sglang":
        return ServerRules(
            null_content="empty",
            tool_arguments="object",
            part_separator=" ",
            server="sglang",
            version=known,
        )
    return AS_SENT
