"""The conversations that every template is rendered with. All text here is invented.

Each text of a message is a sentence of its own (`marker`), so that a rendering can be searched for
it: what isn't found was dropped, what stands elsewhere was moved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Message: TypeAlias = Mapping[str, Any]
Chat: TypeAlias = Sequence[Message]

SYSTEM: Final = "You are the assistant of the harbour office and always name the quay."
DEVELOPER: Final = "Answer dockers and pilots in one short sentence."
QUESTIONS: Final = (
    "Which berth does the Marit get tonight?",
    "And when does she sail again?",
    "Who is the pilot on duty then?",
)
ANSWERS: Final = (
    "The Marit gets berth seven at the north quay.",
    "She sails from there at half past five with the tide.",
    "Pilot Jansen is on duty until noon.",
)
THOUGHTS: Final = (
    "The berth plan of tonight decides, so the plan has to be read.",
    "The plan shows berth seven as free, which fits her draught.",
)
TOOL_RESULT_WORD: Final = "northern"
TOOL_RESULT: Final = f'{{"berth": 7, "quay": "{TOOL_RESULT_WORD}"}}'

_ARGUMENTS: Final = {"vessel": "Marit", "draught": 9.5, "night": True}
# The same arguments as a model may write them: no spaces, another way to write a number.
COMPACT_ARGUMENTS: Final = '{"vessel":"Marit","draught":9.50,"night":true}'
# Nine letters and digits: Mistral's templates refuse ids of another form.
_CALL_IDS: Final = ("berth0001", "berth0002")


def _tool(name: str, about: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {
                "type": "object",
                "properties": dict(properties),
                "required": list(properties),
            },
        },
    }


FIND_BERTH: Final = _tool(
    "find_berth",
    "Finds a free berth for a vessel.",
    {
        "vessel": {"type": "string", "description": "The vessel's name."},
        "draught": {"type": "number", "description": "Draught in metres."},
        "night": {"type": "boolean", "description": "Whether she stays for the night."},
    },
)
TIDE_TABLE: Final = _tool(
    "tide_table",
    "Gives the tides of a day.",
    {"day": {"type": "string", "description": "The day, as year-month-day."}},
)
TOOLS: Final = (FIND_BERTH, TIDE_TABLE)
TOOL_MARKERS: Final = ("Finds a free berth for a vessel.", "Gives the tides of a day.")


def reordered_keys(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool whose schema says the same with its keys in another order."""
    function = tool["function"]
    parameters = function["parameters"]
    return {
        "type": tool["type"],
        "function": {
            "description": function["description"],
            "parameters": dict(reversed(parameters.items())),
            "name": function["name"],
        },
    }


def system(text: str = SYSTEM) -> Message:
    return {"role": "system", "content": text}


def user(number: int) -> Message:
    return {"role": "user", "content": QUESTIONS[number]}


def assistant(number: int, *, thought: str | None = None) -> Message:
    message = {"role": "assistant", "content": ANSWERS[number]}
    return message if thought is None else {**message, **_reasoning(thought)}


def tool_call(
    *,
    arguments_as_text: bool,
    content: str | None = "",
    thought: str | None = None,
    number: int = 0,
) -> Message:
    """Return an assistant's call of the first tool; `content` is what it says beside the call."""
    arguments: Any = json.dumps(_ARGUMENTS) if arguments_as_text else dict(_ARGUMENTS)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": _CALL_IDS[number],
                "type": "function",
                "function": {"name": "find_berth", "arguments": arguments},
            }
        ],
    }
    return message if thought is None else {**message, **_reasoning(thought)}


def _reasoning(thought: str) -> Message:
    """Return a thought under all names that templates read; vLLM passes on the first two."""
    return {"reasoning_content": thought, "reasoning": thought}


def tool_result(number: int = 0) -> Message:
    return {
        "role": "tool",
        "tool_call_id": _CALL_IDS[number],
        "name": "find_berth",
        "content": TOOL_RESULT,
    }


def long_history(num_turns: int) -> list[Message]:
    """Return `num_turns` answered questions and one more, each with its number."""
    chat: list[Message] = []
    for turn in range(num_turns):
        chat.append({"role": "user", "content": f"Question {turn}: which berth is free now?"})
        chat.append({"role": "assistant", "content": f"Answer {turn}: berth {turn} is free."})
    chat.append({"role": "user", "content": f"Question {num_turns}: which berth is free now?"})
    return chat


def as_parts(message: Message) -> Message:
    """Return a message whose text stands in two text parts."""
    text = str(message["content"])
    middle = text.index(" ") + 1
    parts = [{"type": "text", "text": part} for part in (text[:middle], text[middle:])]
    return {**message, "content": parts}


def with_image(message: Message) -> Message:
    """Return a message with an image before its text."""
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "text", "text": message["content"]},
    ]
    return {**message, "content": parts}


def catalogue(*, arguments_as_text: bool) -> dict[str, tuple[Chat, bool, Mapping[str, Any]]]:
    """Return single prompts by name: the chat, whether tools are given, template variables."""
    none: Mapping[str, Any] = {}
    plain = [system(), user(0)]
    turn = [*plain, assistant(0), user(1)]
    thoughtful = [*plain, assistant(0, thought=THOUGHTS[0]), user(1)]
    loops = {
        "": [
            *plain,
            tool_call(arguments_as_text=arguments_as_text),
            tool_result(),
        ],
        " with reasoning": [
            *plain,
            tool_call(arguments_as_text=arguments_as_text, thought=THOUGHTS[0]),
            tool_result(),
        ],
    }
    chats: dict[str, tuple[Chat, bool, Mapping[str, Any]]] = {
        "first turn": (plain, False, none),
        "first turn without system": ([user(0)], False, none),
        "second turn": (turn, False, none),
        "first turn with tools": (plain, True, none),
        "second turn with tools": (turn, True, none),
        "second turn with reasoning": (thoughtful, False, none),
        "second turn, thinking off": (turn, False, {"enable_thinking": False}),
        "developer message": (
            [{"role": "developer", "content": DEVELOPER}, user(0)],
            False,
            none,
        ),
        "content in parts": ([system(), as_parts(user(0))], False, none),
        "image": ([system(), with_image(user(0))], False, none),
        "long history": ([system(), *long_history(12)], False, none),
    }
    for name, loop in loops.items():
        chats[f"tool loop{name}"] = (loop, True, none)
        chats[f"turn after tool loop{name}"] = ([*loop, assistant(0), user(1)], True, none)
    return chats
