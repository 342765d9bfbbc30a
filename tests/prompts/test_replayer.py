"""From requests to prompts: what becomes tokens, what is skipped and why, what is configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import (
    BlockHashes,
    ChatMessages,
    Generated,
    LengthOnly,
    NotReplayable,
    PromptInput,
    RawText,
    Request,
    Skipped,
    Source,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts import (
    VLLM,
    Refusal,
    Replayer,
    ReplayOptions,
    ServerRules,
    replay_many,
    rules_of,
)
from tests.prompts.cases import case_folder

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder of one token a byte, with nothing but the tokenizer."""
    shutil.copy(case_folder("B001") / "tokenizer.json", tmp_path)
    return tmp_path


def write_config(folder: Path, **fields: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))


def request(
    prompt: PromptInput,
    generated: Generated | None | Unknown = UNKNOWN,
    arrival_s: float | Unknown = UNKNOWN,
    session_id: str | Unknown = UNKNOWN,
) -> Request:
    return Request(
        request_id="r",
        source=Source("log", 1),
        prompt=prompt,
        generated=generated,
        arrival_s=arrival_s,
        session_id=session_id,
    )


def chat(content: Any = "hello", **fields: Any) -> ChatMessages:
    return ChatMessages(messages=[{"role": "user", "content": content}], **fields)


def text_of(replayer: Replayer, prompt: PromptInput) -> str:
    return replayer.render(request(prompt)).text


def skip_kind(replayer: Replayer, prompt: PromptInput) -> str:
    skipped = replayer.replay(request(prompt))
    assert isinstance(skipped, Skipped)
    return skipped.kind


def test_ids_and_block_ids_need_no_model() -> None:
    replayer = Replayer(None)
    ids = np.array([1, 2, 3], dtype=np.uint32)
    blocks = BlockHashes(
        hash_ids=np.array([7, 8], dtype=np.uint64), block_size=512, num_prompt_tokens=600
    )

    from_ids = replayer.replay(request(TokenIds(token_ids=ids), TokenIds(token_ids=ids[:1])))
    from_blocks = replayer.replay(request(blocks))

    assert isinstance(from_ids, Prompt)
    assert from_ids.num_prompt_tokens == 3
    assert isinstance(from_ids.generated_token_ids, np.ndarray)
    assert isinstance(from_blocks, Prompt)
    assert from_blocks.tokens is blocks
    assert from_blocks.num_prompt_tokens == 600
    assert from_blocks.generated_token_ids is UNKNOWN


def test_what_cannot_be_replayed_is_skipped_with_its_kind() -> None:
    replayer = Replayer(None)

    assert skip_kind(replayer, LengthOnly(num_prompt_tokens=5)) == "length-only"
    assert skip_kind(replayer, NotReplayable(kind="redacted", reason="x")) == "redacted"
    assert skip_kind(replayer, chat()) == "no-tokenizer"
    assert skip_kind(replayer, RawText(text="x")) == "no-tokenizer"
    assert replayer.statistics.num_skipped == 4


def test_template_file_wins_over_the_config_and_the_option_over_both(folder: Path) -> None:
    write_config(folder, chat_template="config")
    assert text_of(Replayer(folder), chat()) == "config"

    (folder / "chat_template.jinja").write_text("file")
    assert text_of(Replayer(folder), chat()) == "file"
    assert text_of(Replayer(folder, ReplayOptions(chat_template="option")), chat()) == "option"
    assert text_of(Replayer(folder), chat(chat_template="request")) == "request"


def test_named_templates_are_picked_as_transformers_does(folder: Path) -> None:
    named = [{"name": name, "template": name} for name in ("default", "tool_use", "rag")]
    write_config(folder, chat_template=named)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("rag file")
    replayer = Replayer(folder)

    assert text_of(replayer, chat()) == "default"
    assert text_of(replayer, chat(tools=[{"type": "function"}])) == "tool_use"
    assert text_of(replayer, chat(chat_template="rag")) == "rag file"


def test_missing_template_says_where_it_was_looked_for(folder: Path) -> None:
    write_config(folder)
    skipped = Replayer(folder).replay(request(chat()))

    assert isinstance(skipped, Skipped)
    assert skipped.kind == "no-chat-template"
    assert skipped.reason == (
        f"{folder}: no chat template found in tokenizer_config.json, chat_template.jinja or "
        "additional_chat_templates/; give one with --chat-template FILE"
    )


def test_special_tokens_are_texts_or_objects(folder: Path) -> None:
    write_config(folder, chat_template=TEMPLATE, bos_token={"content": "<|bos|>", "lstrip": False})
    replayer = Replayer(folder)

    assert text_of(replayer, chat()) == "<|bos|><|user|>hello<|end|><|assistant|>"
    # Byte by byte: begin, user, five letters, end, assistant.
    prompt = replayer.replay(request(chat()))
    assert isinstance(prompt, Prompt)
    assert prompt.num_prompt_tokens == 9


def test_all_problems_of_a_model_folder_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")

    with pytest.raises(ConfigurationError) as caught:
        Replayer(tmp_path).replay(request(chat()))
    assert len(caught.value.problems) == 3


def test_invalid_template_of_the_folder_is_configuration(folder: Path) -> None:
    write_config(folder)
    (folder / "chat_template.jinja").write_text("one\n{% for %}")

    with pytest.raises(ConfigurationError, match=r"chat_template\.jinja: .*line 2.*valid Jinja"):
        Replayer(folder).replay(request(chat()))
    assert skip_kind(
        Replayer(folder, ReplayOptions(chat_template=TEMPLATE)), chat(chat_template="{% x %}")
    ) == ("template-error")


def test_template_kwargs_reach_the_template_and_win(folder: Path) -> None:
    write_config(folder, chat_template="{{ thinking }}{{ add_generation_prompt }}{{ bos_token }}")
    replayer = Replayer(folder)
    kwargs = {"thinking": False, "add_generation_prompt": False, "bos_token": "B"}

    assert text_of(replayer, chat(chat_template_kwargs=kwargs)) == "FalseFalseB"
    assert text_of(replayer, chat(chat_template_kwargs={"tokenize": True})) == "True"
    assert (
        skip_kind(replayer, chat(chat_template_kwargs={"messages": []}))
        == "invalid-template-kwargs"
    )
    assert skip_kind(replayer, chat(continue_final_message=True)) == "invalid-request"


def test_null_content_follows_the_rule(folder: Path) -> None:
    write_config(folder, chat_template="{% for m in messages %}[{{ m.content }}]{% endfor %}")

    texts = [
        text_of(Replayer(folder, ReplayOptions(rules=ServerRules(null_content=rule))), chat(None))
        for rule in ("keep", "drop", "empty")
    ]
    assert texts == ["[None]", "[]", "[]"]


def test_tool_arguments_are_text_or_object_by_rule(folder: Path) -> None:
    write_config(
        folder,
        chat_template="{% for c in messages[0].tool_calls %}"
        "{{ c.function.arguments is string }} {{ c.function.arguments | tojson }}{% endfor %}",
    )

    def calls(arguments: str) -> ChatMessages:
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        return ChatMessages(messages=[{"role": "assistant", "content": "", "tool_calls": [call]}])

    as_sent, parsed = Replayer(folder), Replayer(folder, ReplayOptions(rules=VLLM))
    sent = calls('{"b": 9.50, "a": 123456789012345678901}')
    assert text_of(as_sent, sent).startswith("True")
    assert text_of(parsed, sent) == 'False {"b": 9.5, "a": 123456789012345678901}'
    assert text_of(parsed, calls("")) == "False {}"
    assert text_of(parsed, calls('{"cut')) == "False {}"  # vLLM from 0.29
    strict = Replayer(folder, ReplayOptions(rules=rules_of("vllm", "0.28.0")))
    assert skip_kind(strict, calls('{"cut')) == "invalid-tool-arguments"


def test_content_parts_are_joined_for_templates_that_do_not_walk_through_them(
    folder: Path,
) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    walking = (
        "{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}"
    )
    printing = "{{ messages[0].content }}"
    replayer = Replayer(folder)
    write_config(folder)

    assert text_of(replayer, chat(parts, chat_template=walking)) == "(one)(two)"
    assert text_of(replayer, chat(parts, chat_template=printing)) == "one\ntwo"


def test_media_make_a_prompt_approximate(folder: Path) -> None:
    write_config(folder, chat_template=TEMPLATE)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

    prompt = Replayer(folder).replay(request(chat([{"type": "text", "text": "what?"}, image])))

    assert isinstance(prompt, Prompt)
    assert prompt.is_approximate


def test_answer_is_tokenized_without_special_tokens(folder: Path) -> None:
    shutil.copy(case_folder("B011") / "tokenizer.json", folder)  # adds a begin token
    prompt = Replayer(folder).replay(request(RawText(text="ab"), RawText(text="cd")))
    unwanted = Replayer(folder, ReplayOptions(encode_generated=False)).replay(
        request(RawText(text="ab"), RawText(text="cd"))
    )

    assert isinstance(prompt, Prompt)
    assert isinstance(prompt.generated_token_ids, np.ndarray)
    assert (prompt.num_prompt_tokens, len(prompt.generated_token_ids)) == (3, 2)
    assert isinstance(unwanted, Prompt)
    assert unwanted.generated_token_ids is UNKNOWN


def test_half_a_surrogate_pair_is_skipped(folder: Path) -> None:
    assert skip_kind(Replayer(folder), RawText(text="a\ud83d")) == "invalid-text"


def test_unknown_arrival_is_skipped_unless_a_time_is_assumed(folder: Path) -> None:
    write_config(folder, chat_template="{{ strftime_now('%d.%m.%Y') }}")

    assert skip_kind(Replayer(folder), chat()) == "unknown-clock"
    assumed = Replayer(folder, ReplayOptions(assumed_arrival_s=0.0))
    assert text_of(assumed, chat()) == "01.01.1970"
    assumed.replay(request(chat()))
    assert assumed.statistics.num_clock_prompts == 2


def test_unknown_time_zone_is_configuration() -> None:
    with pytest.raises(ConfigurationError, match="unknown time zone 'Mars/Base'"):
        Replayer(None, ReplayOptions(time_zone="Mars/Base"))


def test_refusals_can_be_sent_between_processes() -> None:
    import pickle

    refusal = pickle.loads(pickle.dumps(Refusal("kind", "reason")))

    assert (refusal.kind, refusal.reason) == ("kind", "reason")


def _mixed_log() -> Iterator[Request | Skipped]:
    for number in range(40):
        yield request(
            chat(f"conversation {number % 5} " * (number % 7)),
            RawText(text=f"answer {number}"),
            session_id=f"s{number % 5}" if number % 3 else UNKNOWN,
        )
        yield request(RawText(text="step " * number))
        yield request(LengthOnly(num_prompt_tokens=number))
        yield Skipped(source=Source("log", number), kind="cut-line", reason="cut")


def test_results_do_not_depend_on_the_number_of_processes(folder: Path) -> None:
    write_config(folder, chat_template=TEMPLATE)
    one = replay_many(_mixed_log(), folder, jobs=1)
    two = replay_many(_mixed_log(), folder, jobs=2)

    for alone, together in zip(one, two, strict=True):
        assert type(alone) is type(together)
        if isinstance(alone, Prompt) and isinstance(together, Prompt):
            assert np.asarray(alone.tokens).tolist() == np.asarray(together.tokens).tolist()
            assert str(alone.generated_token_ids) == str(together.generated_token_ids)
            assert alone.request.request_id == together.request.request_id
        else:
            assert alone == together
    assert one.statistics.num_prompts == two.statistics.num_prompts == 80
    assert one.statistics.num_skipped == two.statistics.num_skipped == 40


def test_configuration_error_in_another_process_arrives_as_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"tokenizer\.json"):
        list(replay_many([request(RawText(text="x"))], tmp_path, jobs=2))


def test_sglang_tokenizes_a_continued_answer_by_itself_without_its_begin_token(
    folder: Path,
) -> None:
    shutil.copy(case_folder("B011") / "tokenizer.json", folder)  # adds a begin token
    write_config(folder, bos_token="<|bos|>")
    asked = {"role": "user", "content": "ab"}
    begun = {"role": "assistant", "content": "cd"}
    template = "{% for m in messages %}{{ m.content }}{% endfor %}!"
    sent = ChatMessages(
        messages=[asked, begun],
        chat_template=template,
        add_generation_prompt=True,
        continue_final_message=True,
    )
    replayer = Replayer(folder, ReplayOptions(rules=rules_of("sglang", "0.5.23")))

    prompt = replayer.replay(request(sent))

    # One byte is one token, "a" is 64: "ab!" by the template, and "cd" behind it without a begin.
    assert isinstance(prompt, Prompt)
    assert isinstance(prompt.tokens, np.ndarray)
    assert prompt.tokens.tolist() == [64, 65, 0, 66, 67]
    assert replayer.character_of(request(sent), 4) == 3
