"""The kinds of differences that break a prefix: what each is, who makes it, and what to change.

`advice` is one sentence; {place}, {tokens} and {requests} are filled in, and the figure of a replay
is put behind it where one was made. "cost" is what a model or engine is meant to do: it has a
price, and isn't called a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prefixaudit.core.why import Blame, Intent


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: `title` completes "requests part at …: "."""

    title: str
    intent: Intent
    source: Blame
    advice: str


def _client(title: str, advice: str, intent: Intent = "fault") -> Kind:
    return Kind(title, intent, "client", advice)


def _template(title: str, advice: str, intent: Intent = "fault") -> Kind:
    return Kind(title, intent, "chat template", advice)


KINDS: Final[Mapping[str, Kind]] = {
    "clock": _client("a clock", "Print the time in the newest user message, not in {place}"),
    "template-clock": _template(
        "the chat template prints the date",
        "Pin the date that the template prints (vLLM: VLLM_SYSTEM_START_DATE), or move it to the "
        "newest message",
        "cost",
    ),
    "random-id": _client(
        "an id that is new each time",
        "Leave the id out of {place}, or move it to the newest message",
    ),
    "counter": _client(
        "a number that changes each time", "Move the number from {place} to the newest message"
    ),
    "path": _client(
        "a path or working directory", "Name the directory behind the shared text, not in {place}"
    ),
    "git-status": _client(
        "the state of a git repository",
        "Move the repository's state from {place} to the newest message",
    ),
    "billing-header": _client(
        "a billing header with a checksum for each request",
        "Switch the header off in the client, or use a server version that strips it",
    ),
    "tool-order": _client(
        "the same tools in another order", "Sort the tools by name before sending them"
    ),
    "schema-key-order": _client(
        "the same tool schemas with their keys in another order",
        "Send each tool's schema with its keys in one order",
    ),
    "tools-changed": _client(
        "tools were added, removed or reworded",
        "Keep one set of tools for a conversation, or put those that change last",
    ),
    "tools-moved": _template(
        "the template prints the tools at the newest user turn, so they wander",
        "Use a template that prints the tools in front of the messages, if the model allows it",
        "cost",
    ),
    "text-moved": _template(
        "the template moves text towards the newest turn",
        "Use a template that keeps text where it first stood, if the model allows it",
        "cost",
    ),
    "reasoning-dropped": _template(
        "reasoning of earlier turns is left out of the history",
        "Keep the reasoning in the history if the model is meant to see it; else this is its price",
        "cost",
    ),
    "generation-prompt": _template(
        "what the generation prompt ends in isn't kept once the turn is history",
        "Use a template that prints the same text in the history, if the model allows it",
        "cost",
    ),
    "history-rewritten": _template(
        "the template prints earlier turns differently once newer ones follow",
        "Use a template whose earlier turns don't depend on later ones",
    ),
    "arguments-reserialised": _client(
        "arguments of a tool call were parsed and dumped again",
        "Send tool arguments back as the very text that the model wrote",
    ),
    "arguments-reprinted": _template(
        "arguments of a tool call are printed otherwise than the model wrote them",
        "Use a template that prints arguments as the model writes them, if there is one",
        "cost",
    ),
    "null-content": _client(
        "the same turn with null content before, and an empty text now",
        "Send null or the empty text for a turn without content, always the same",
    ),
    "null-printed": _template(
        "null content is printed as a word",
        "Let the template test for null, or let the server send an empty text to it",
        "fault",
    ),
    "image-changed": _client(
        "an image (or other media) was changed, moved or removed",
        "Keep earlier images in the history, byte for byte",
    ),
    "window-slides": _client(
        "the oldest messages are dropped on every turn",
        "Drop old messages in steps, several at once",
    ),
    "history-compacted": _client(
        "earlier messages were replaced by a shorter text",
        "Compact rarely, and by much: each time all that follows is computed anew",
        "cost",
    ),
    "message-edited": _client(
        "a message of the history was changed",
        "Send earlier messages back unchanged; add what is new at the end",
    ),
    "messages-inserted": _client(
        "messages were put between earlier ones",
        "Add new messages at the end",
    ),
    "passing-instruction": _client(
        "the last message was sent once and isn't part of the history",
        "Keep such instructions in the history, or make them as short as they can be",
        "cost",
    ),
    "answer-rerendered": _client(
        "the answer stands in the history behind text that it wasn't generated after",
        "End the prompt with the header that the answer gets in the history",
    ),
    "text-dropped": _client(
        "text was taken out before text that stayed",
        "Drop old text in steps, or behind what stays",
    ),
    "text-inserted": _client(
        "text was put in before text that stayed", "Put what is new behind what stays"
    ),
    "text-replaced": _client(
        "text was replaced before text that stayed", "Put what changes behind what stays"
    ),
    "passages-reordered": _client(
        "the same passages in another order", "Send passages in one fixed order"
    ),
    "same-text-elsewhere": _client(
        "the same passages behind another beginning",
        "Put what many requests share first, and what tells them apart behind it",
    ),
    "whitespace": _client("white space", "Send the text with the same white space each time"),
    "double-bos": Kind(
        "the prompt's text starts with the begin token, and another is added",
        "fault",
        "server",
        "Send rendered text with add_special_tokens=false",
    ),
    "bos-differs": Kind(
        "one path adds the begin token, the other doesn't",
        "fault",
        "server",
        "Let both paths begin alike: one begin token, from the template or from the tokenizer",
    ),
    "template-choice": _client(
        "template, its arguments or documents differ",
        "Use one template and the same arguments within a conversation",
    ),
    "tokenizer-round-trip": Kind(
        "the same text in other tokens than were generated",
        "cost",
        "server",
        "Send the answer back as token ids where the client can",
    ),
    "tokens-differ": _client(
        "token ids differ (the log has no text to say how)",
        "Give a model folder with --model to see the text's place",
    ),
    "other": _client(
        "something else", "Look at the pair with `prefixaudit why LOG A B --show-text`"
    ),
}
