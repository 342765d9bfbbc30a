"""Makes the three sample scenarios (logs, models, tokenizers), always the same bytes.

    python samples/make_samples.py

Each scenario is a folder with a request log, `prefixaudit.toml` and `model/`: a `config.json` of a
published shape, a byte-level BPE tokenizer trained on the scenario's own text, and a chat template.
All names and texts are invented. `usage.prompt_tokens` of the logged answers is what transformers'
own template renderer and the plain tokenizer give, so the samples also check the replay.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).parent
ENGLISH = HERE.parent / "LICENSE"  # more words for the tokenizers, always the same
START = datetime(2026, 3, 2, 9, 0, 0, tzinfo=UTC)
SPECIAL_TOKENS = (
    "<|begin|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|tools|>",
)
Record = dict[str, Any]

CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
{{- '<|tools|>' }}
{%- for tool in tools %}
{{- tool | tojson }}{{ '\\n' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
{{- '<|' ~ message.role ~ '|>' }}
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n' ~ call.function.name ~ ' ' ~ (call.function.arguments | tojson) }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer whose special tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_model(folder: Path, config: Record, tokenizer: Tokenizer) -> None:
    """Write a model folder as a hub would have it, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_log(path: Path, records: list[Record]) -> None:
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def render(body: Record) -> str:
    """Return the prompt of a body as a server renders it."""
    if "prompt" in body:
        return str(body["prompt"])
    messages = json.loads(json.dumps(body["messages"]))
    for message in messages:
        for call in message.get("tool_calls") or ():
            # vLLM's server decodes the arguments before it renders them.
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    rendered, _ = render_jinja_template(
        [messages],
        tools=body.get("tools"),
        chat_template=CHAT_TEMPLATE,
        add_generation_prompt=True,
        bos_token="<|begin|>",
    )
    return str(rendered[0])


def add_usage(records: list[Record], tokenizer: Tokenizer) -> None:
    """Fill in what the server counted."""
    for record in records:
        answer = record["response"]["choices"][0]
        text = answer["text"] if "text" in answer else answer["message"]["content"] or ""
        num_prompt = len(tokenizer.encode(render(record["body"])).ids)
        num_answer = len(tokenizer.encode(text, add_special_tokens=False).ids) + 1
        record["response"]["usage"] = {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_answer,
            "total_tokens": num_prompt + num_answer,
        }


def envelope(
    number: int,
    arrival: datetime,
    path: str,
    tenant: str,
    session: str,
    body: Record,
    answer: Record,
) -> Record:
    """Return one line of a gateway's log."""
    return {
        "timestamp": arrival.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "request_id": f"req-{number:04d}",
        "path": path,
        "status": 200,
        "headers": {"x-tenant-id": tenant},
        "session_id": session,
        "body": body,
        "response": {"object": "response", "choices": [answer]},
    }


# --- support chat -----------------------------------------------------------------------------

PLATFORM_PROMPT = """\
You are a support assistant on the Harbor service desk. Answer in the language of the question.
Be brief: three sentences at the most, then one next step. Never promise a refund, a date or a
discount that the policy below does not state. If you are not sure, say so and offer a colleague.
"""
TENANT_POLICIES = {
    "acme": """\
You speak for Acme Bicycles. Parcels leave the warehouse in Delft every working day at four in the
afternoon. A frame has a warranty of five years, wheels and brakes of two. Returns are free within
thirty days if the bicycle was not ridden in the rain. Batteries may not be sent by post: the
customer brings them to one of our fourteen shops. Orders above six hundred euros ship insured.
""",
    "borealis": """\
You speak for Borealis Telecom. A contract can be ended with one month's notice. A technician comes
between eight and twelve or between one and five, never at a given hour. A router that shows a red
light is restarted once; if it stays red it is exchanged. Roaming is free in twenty-nine countries
and costs nine cents a megabyte elsewhere. Bills are sent on the third day of each month.
""",
}
QUESTIONS = {
    "acme": [
        "Where is my parcel? It was to come on Friday.",
        "My rear brake squeaks since the second week. Is that covered?",
        "Can I send the battery back with the bicycle?",
        "I would like to return the city bike, it is too large for me.",
        "Is the frame of a used bicycle under warranty as well?",
        "Do you ship to Norway, and is the parcel insured?",
    ],
    "borealis": [
        "My router shows a red light since this morning.",
        "When exactly does the technician come tomorrow?",
        "I move to Malta in June. Does my contract go on?",
        "Why is my bill eleven euros higher than last month?",
        "How do I end the contract for my mother's telephone?",
        "Is the fibre in Lindhaven ready now?",
    ],
}
FOLLOW_UPS = [
    "And if that does not help?",
    "How long will that take?",
    "Can somebody call me about it?",
    "Thank you. Is there anything I have to sign?",
    "That is not what your colleague told me yesterday.",
]
ANSWERS = [
    "I am sorry for the trouble. I have looked it up for you and the policy covers this case. "
    "Next step: please send us the order number.",
    "That depends on the date of purchase. Most cases are settled within two working days. "
    "Next step: I can hand you over to a colleague.",
    "Yes, that is possible and costs nothing. You will get a letter with all the details. "
    "Next step: please confirm your address.",
    "I am not sure about this one. A colleague who knows the contract will answer you today. "
    "Next step: please stay reachable by telephone.",
]


def support_chat() -> list[Record]:
    """Two tenants behind one gateway: the platform's public prompt, then each tenant's policy."""
    chance = random.Random(11)
    turns: list[tuple[datetime, str, str, Record, Record]] = []
    for number in range(24):
        tenant = "acme" if chance.random() < 0.6 else "borealis"
        session = f"{tenant}-{number:02d}"
        arrival = START + timedelta(seconds=chance.uniform(0, 3000))
        messages: list[Record] = [
            {"role": "system", "content": PLATFORM_PROMPT + TENANT_POLICIES[tenant]},
            {"role": "user", "content": chance.choice(QUESTIONS[tenant])},
        ]
        for _ in range(chance.randint(1, 4)):
            answer = {"role": "assistant", "content": chance.choice(ANSWERS)}
            body = {"model": "harbor-8b-chat", "messages": list(messages), "max_tokens": 128}
            turns.append((arrival, tenant, session, body, answer))
            messages += [answer, {"role": "user", "content": chance.choice(FOLLOW_UPS)}]
            arrival += timedelta(seconds=chance.uniform(15, 120))
    turns.sort(key=lambda turn: turn[0])
    return [
        envelope(
            number,
            arrival,
            "/v1/chat/completions",
            tenant,
            session,
            body,
            {"index": 0, "message": answer},
        )
        for number, (arrival, tenant, session, body, answer) in enumerate(turns)
    ]


# --- coding agent -----------------------------------------------------------------------------

AGENT_PROMPT = """\
You are a careful programmer who works in a checkout of a small service. Read before you write.
Make the smallest change that solves the task and run the tests after each change. Use one tool at
a time. Do not touch files under vendor. When all tests pass, say what you changed and why in two
sentences. Style: type hints everywhere, names are whole words, a blank line before each return.
"""


def tool(name: str, about: str, **parameters: str) -> Record:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


TOOLS = [
    tool(
        "read_file",
        "Return the text of a file of the checkout.",
        path="path from the checkout's root",
    ),
    tool("search", "Return the lines that match a regular expression.", pattern="what to look for"),
    tool(
        "edit_file",
        "Replace one text by another in a file.",
        path="the file",
        old="now",
        new="then",
    ),
    tool(
        "run_tests",
        "Run the tests below a folder and return the summary.",
        folder="folder of tests",
    ),
]
TASKS = [
    "Prices with a comma are read as zero. Please fix parse_price and add a test.",
    "The report command prints the totals twice when the list is empty.",
    "Rename the class Ledger to Journal everywhere, the file too.",
]
FILES = [
    "app/prices.py",
    "app/report.py",
    "app/ledger.py",
    "tests/test_prices.py",
    "tests/test_report.py",
]
SOURCE_LINES = [
    "def parse_price(text: str) -> int:",
    '    """Return the price in cents."""',
    "    whole, _, cents = text.partition('.')",
    "    return int(whole) * 100 + int(cents or 0)",
    "class Ledger:",
    "    def __init__(self) -> None:",
    "        self.entries: list[Entry] = []",
    "    def total(self) -> int:",
    "        return sum(entry.amount for entry in self.entries)",
    "for row in rows:",
    "    print(f'{row.name:<20} {row.amount:>10}')",
    "assert parse_price('12.50') == 1250",
]


def agent_step(chance: random.Random, number: int) -> tuple[Record, str]:
    """Return the call that the model makes, and what the tool answers."""
    name = chance.choice(["read_file", "search", "edit_file", "run_tests"])
    file = chance.choice(FILES)
    arguments: dict[str, str] = {
        "read_file": {"path": file},
        "search": {"pattern": chance.choice(["parse_price", "Ledger", "total\\("])},
        "edit_file": {"path": file, "old": chance.choice(SOURCE_LINES), "new": "    return 0"},
        "run_tests": {"folder": "tests"},
    }[name]
    if name == "run_tests":
        failed, passed, seconds = chance.randint(0, 2), chance.randint(20, 24), chance.random()
        result = f"{failed} failed, {passed} passed in {seconds:.2f} s"
    else:
        result = "\n".join(chance.choice(SOURCE_LINES) for _ in range(chance.randint(4, 16)))
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}, result


def coding_agent() -> list[Record]:
    """Three sessions of an agent whose prompts only grow; they share system prompt and tools."""
    chance = random.Random(23)
    turns: list[tuple[datetime, str, Record, Record]] = []
    for session_number, task in enumerate(TASKS):
        arrival = START + timedelta(seconds=40 * session_number)
        messages: list[Record] = [
            {"role": "system", "content": AGENT_PROMPT},
            {"role": "user", "content": task},
        ]
        for number in range(12):
            call, result = agent_step(chance, number)
            answer = {"role": "assistant", "content": None, "tool_calls": [call]}
            body = {"model": "harbor-coder-32b", "messages": list(messages), "tools": TOOLS}
            turns.append((arrival, f"agent-{session_number}", body, answer))
            tool_message = {"role": "tool", "tool_call_id": call["id"], "content": result}
            messages += [answer, tool_message]
            arrival += timedelta(seconds=chance.uniform(4, 30))
    turns.sort(key=lambda turn: turn[0])
    return [
        envelope(
            number,
            arrival,
            "/v1/chat/completions",
            "lab",
            session,
            body,
            {"index": 0, "message": answer},
        )
        for number, (arrival, session, body, answer) in enumerate(turns)
    ]


# --- retrieval --------------------------------------------------------------------------------

SUBJECTS = [
    "The pilot",
    "A vessel above eleven metres",
    "The harbour master",
    "Each tug",
    "The night watch",
    "A tanker",
    "The lock keeper",
    "Every master",
]
VERBS = [
    "reports to",
    "waits for",
    "must answer to",
    "is led past",
    "asks leave of",
    "takes orders from",
]
OBJECTS = [
    "the tower",
    "the outer mole",
    "berth four",
    "the customs boat",
    "the northern lock",
    "the signal station",
    "the duty officer",
]
CONDITIONS = [
    "before high water",
    "in fog",
    "when the wind is above seven",
    "after sunset",
    "on the ebb",
    "while the bridge is shut",
]
DOCUMENT_QUESTIONS = [
    "Who leads a tanker in fog?",
    "What does the night watch do when the bridge is shut?",
    "Whom does a vessel above eleven metres wait for?",
    "Which rule holds after sunset?",
    "Name the rules about berth four.",
    "What is forbidden when the wind is above seven?",
    "When may a tug pass the outer mole?",
]


def sentences(chance: random.Random) -> Iterator[str]:
    rules = list(itertools.product(SUBJECTS, VERBS, OBJECTS, CONDITIONS))
    chance.shuffle(rules)
    for number, rule in enumerate(rules, start=1):
        yield f"{number}. {' '.join(rule)}."


def retrieval() -> list[Record]:
    """Completions: one of a few long documents, then a short question; popular ones come often."""
    chance = random.Random(37)
    documents = [
        f"Harbour regulations, part {part}\n\n"
        + "\n".join(itertools.islice(sentences(chance), 110))
        for part in range(1, 7)
    ]
    records = []
    arrival = START
    for number in range(48):
        part = min(int(chance.paretovariate(0.9)) - 1, len(documents) - 1)
        question = chance.choice(DOCUMENT_QUESTIONS)
        prompt = f"{documents[part]}\n\nQuestion: {question}\nAnswer:"
        body = {"model": "harbor-24b-base", "prompt": prompt, "max_tokens": 64, "temperature": 0}
        answer = {"index": 0, "text": f" See part {part + 1}, rule {chance.randint(1, 110)}."}
        records.append(
            envelope(number, arrival, "/v1/completions", "port", f"search-{number}", body, answer)
        )
        arrival += timedelta(seconds=chance.expovariate(1 / 20))
    return records


# --- models -----------------------------------------------------------------------------------

CONFIGS: dict[str, Record] = {
    "support-chat": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "coding-agent": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "retrieval": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 32768,
        "rope_theta": 100000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
}


def main() -> None:
    scenarios = {
        "support-chat": support_chat(),
        "coding-agent": coding_agent(),
        "retrieval": retrieval(),
    }
    for name, records in scenarios.items():
        folder = HERE / name
        texts = [render(record["body"]) for record in records]
        tokenizer = train_tokenizer([*texts, ENGLISH.read_text()], vocab_size=4096)
        write_model(folder / "model", CONFIGS[name], tokenizer)
        add_usage(records, tokenizer)
        write_log(folder / "requests.jsonl", records)
        print(f"{name}: {len(records)} requests, vocabulary of {tokenizer.get_vocab_size()}")


if __name__ == "__main__":
    main()
