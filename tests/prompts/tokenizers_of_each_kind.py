"""Small tokenizers, trained here: one for each way in which real ones split and normalize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "The harbour master keeps the berth plan, and the pilots don't like surprises.\n",
    "def tide(hour: int) -> float:\n    return heights[hour] + 0.25  # metres\n\n",
    "Wir fahren um 18:30 Uhr; das Café ist geöffnet. L'été, ça va? 你好世界 の カ\n",
    '{"vessel": "Marit", "quay": 7, "draught": 9.50, "tugs": [1, 22, 333]}\r\n',
] * 4
SPECIAL = ["<s>", "</s>", "<|user|>", "<|user|>x", "<|end|>", "<unk>"]

# Kinds whose words can be cut for certain, and those that only allow cuts at added tokens.
CUT_AT_WORDS = (
    "byte-level",
    "byte-level-prefix-space",
    "llama3",
    "o200k",
    "split-digits",
    "metaspace-first",
    "metaspace-always",
    "wordpiece",
    "word-level",
    "unigram",
    "whole-text-bpe",
    "byte-level-no-pattern",
    "lowercase-nfkc",
    "prepend",
    "prepend-rstrip",
    "metaspace-unsplit",
)
WORD_BY_WORD = (
    "whole-text-bpe",
    "byte-level-no-pattern",
    "prepend",
    "prepend-rstrip",
    "metaspace-unsplit",
)
CUT_AT_TOKENS = ("unicode-scripts", "lookbehind", "strip")
WHOLE = ("single-word-token",)
KINDS = CUT_AT_WORDS + CUT_AT_TOKENS + WHOLE


def train(kind: str, folder: Path) -> Path:
    """Train a tokenizer of a kind and return its file."""
    tokenizer = _untrained(kind)
    used = tokenizer.pre_tokenizer
    # Trained word by word, then used on whole texts: no entry holds a space behind a letter.
    if kind == "metaspace-unsplit":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    elif kind in ("whole-text-bpe", "prepend", "prepend-rstrip"):
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    elif kind == "byte-level-no-pattern":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(CORPUS, trainer=_trainer(tokenizer))
    if kind in WORD_BY_WORD:
        tokenizer.pre_tokenizer = used
    tokenizer.add_special_tokens(
        [token for token in SPECIAL if tokenizer.token_to_id(token) is None]
    )
    tokenizer.add_tokens(["Marit quay", AddedToken("İst", normalized=True)])
    if kind == "single-word-token":
        tokenizer.add_tokens([AddedToken("tug", single_word=True, normalized=False)])
    if kind == "llama3":
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    if kind == "prepend-rstrip":
        tokenizer.add_special_tokens([AddedToken("<mask>", rstrip=True)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")],
    )
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def configuration(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def _trainer(tokenizer: Tokenizer) -> Any:
    match tokenizer.model:
        case models.WordPiece():
            return trainers.WordPieceTrainer(
                vocab_size=400, special_tokens=SPECIAL, show_progress=False
            )
        case models.WordLevel():
            return trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
        case models.Unigram():
            return trainers.UnigramTrainer(
                vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
            )
        case _:
            return trainers.BpeTrainer(
                vocab_size=600,
                special_tokens=SPECIAL,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            )


def _untrained(kind: str) -> Tokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    patterns = {"llama3": LLAMA3, "o200k": O200K, "single-word-token": LLAMA3}
    patterns["lookbehind"] = r"(?<=\s)\S+|\s+|\S+"
    match kind:
        case "byte-level":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "byte-level-prefix-space":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        case "llama3" | "o200k" | "single-word-token" | "lookbehind":
            split = pre_tokenizers.Split(Regex(patterns[kind]), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        case "split-digits":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
                    pre_tokenizers.Split(Regex(r"[一-龥\u3040-ゟ゠-ヿ]+"), "isolated"),
                    pre_tokenizers.Split(Regex(GPT2), "isolated"),
                    byte_level,
                ]
            )
        case "metaspace-first" | "metaspace-always":
            scheme = kind.removeprefix("metaspace-")
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        case "metaspace-unsplit":
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        case "wordpiece":
            tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
            tokenizer.normalizer = normalizers.BertNormalizer()
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        case "word-level":
            tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
            tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        case "unigram":
            tokenizer = Tokenizer(models.Unigram())
            tokenizer.normalizer = normalizers.NFKC()
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.Punctuation(),
                    pre_tokenizers.Metaspace(),
                ]
            )
        case "whole-text-bpe":
            tokenizer.normalizer = normalizers.Replace(" ", "▁")
            tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        case "byte-level-no-pattern":
            tokenizer.pre_tokenizer = byte_level
        case "lowercase-nfkc":
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents()]
            )
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level]
            )
        case "prepend" | "prepend-rstrip":
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        case "unicode-scripts":
            tokenizer.pre_tokenizer = pre_tokenizers.UnicodeScripts()
        case "strip":
            tokenizer.normalizer = normalizers.Strip()
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        case _:
            raise AssertionError(kind)
    return tokenizer
