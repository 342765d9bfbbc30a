"""Finds what replay needs in a model folder: tokenizer.json, chat templates, special tokens.

Templates are looked for where transformers 5.24 looks: `chat_template.jinja` (which wins over the
one in `tokenizer_config.json`), further ones in `additional_chat_templates/` (older folders:
`chat_templates/`), and `chat_template` in `tokenizer_config.json`, a text or a list of named ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts.refusal import Refusal

TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_TEMPLATE_FOLDERS = ("additional_chat_templates", "chat_templates")
_MAX_TEMPLATE_BYTES = 16 << 20

# The names under which transformers hands a tokenizer's special tokens to a template.
_SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFiles:
    """What a model folder says about prompts.

    templates       chat templates by name; a folder with only one calls it `default`
    sources         the file each template stands in
    special_tokens  what templates see as `bos_token` and so on
    """

    folder: Path
    templates: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER

    def template_for(self, *, has_tools: bool) -> str:
        """Return the template that transformers picks. Raises Refusal where there is none."""
        if has_tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" in self.templates:
            return self.templates["default"]
        if self.templates:
            raise Refusal(
                "no-chat-template",
                f"{self.folder}: several chat templates and none is `default`; "
                "give one with --chat-template FILE",
            )
        raise Refusal(
            "no-chat-template",
            f"{self.folder}: no chat template found in {_CONFIG}, {_TEMPLATE} or "
            f"{_TEMPLATE_FOLDERS[0]}/; give one with --chat-template FILE",
        )


def read_prompt_files(folder: Path, *, needs_tokenizer: bool = True) -> PromptFiles:
    """Read a model folder. Raises ConfigurationError with all problems that it has.

    A folder without tokenizer.json is fine where `needs_tokenizer` is False.
    """
    problems: list[str] = []
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder}: no such folder; expected a model folder with {TOKENIZER}"
        )
    if needs_tokenizer and not (folder / TOKENIZER).is_file():
        problems.append(f"{folder / TOKENIZER}: no such file; prompts can't be tokenized without")
    config_path = folder / _CONFIG
    config = _read_object(config_path, problems)
    templates: dict[str, str] = {}
    sources: dict[str, Path] = {}
    for name, text in _config_templates(config, config_path, problems):
        templates[name], sources[name] = text, config_path
    for path, name in _template_files(folder):
        from_file = _read_text(path, problems)
        if from_file is not None:
            templates[name], sources[name] = from_file, path
    special_tokens = _special_tokens(config)
    if "added_tokens_decoder" not in config:
        # Older folders keep them in a file of their own, which then wins.
        old = _read_object(folder / "special_tokens_map.json", problems)
        special_tokens |= _special_tokens(old)
    if problems:
        raise ConfigurationError(problems)
    return PromptFiles(
        folder=folder, templates=templates, sources=sources, special_tokens=special_tokens
    )


def _template_files(folder: Path) -> list[tuple[Path, str]]:
    files = []
    for inner in _TEMPLATE_FOLDERS:
        if (folder / inner).is_dir():
            files += [(path, path.stem) for path in sorted((folder / inner).glob("*.jinja"))]
    if (folder / _TEMPLATE).is_file():
        files.append((folder / _TEMPLATE, "default"))
    return files


def _config_templates(
    config: Mapping[str, Any], path: Path, problems: list[str]
) -> list[tuple[str, str]]:
    found = config.get("chat_template")
    if found is None:
        return []
    if isinstance(found, str):
        return [("default", found)]
    if isinstance(found, Mapping):
        found = [{"name": name, "template": text} for name, text in found.items()]
    if isinstance(found, list) and all(
        isinstance(entry, Mapping)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("template"), str)
        for entry in found
    ):
        return [(entry["name"], entry["template"]) for entry in found]
    problems.append(
        f"{path}: `chat_template` is neither a text nor a list of objects with `name` and "
        "`template`"
    )
    return []


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")
        if isinstance(token, str):
            tokens[name] = token
    return tokens


def _read_object(path: Path, problems: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror}")
        return {}
    except orjson.JSONDecodeError as error:
        problems.append(f"{path}:{error.lineno}: is not valid JSON")
        return {}
    if not isinstance(value, dict):
        problems.append(f"{path}: holds no JSON object")
        return {}
    return value


def _read_text(path: Path, problems: list[str]) -> str | None:
    try:
        if path.stat().st_size > _MAX_TEMPLATE_BYTES:
            problems.append(f"{path}: larger than 16 MiB; expected a chat template")
            return None
        return path.read_text(encoding="utf-8")
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{path}: is not UTF-8")
    return None
