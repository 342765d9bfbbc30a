"""Reads shell scripts as words, without running them.

Quotes, escapes, line continuations, comments, assignments, `${NAME:-default}` and arrays are
understood; a word with anything that only a shell can know (`$(…)`, an unset variable) has no
text, and its `raw` names the variables. Control flow is not followed: every command of the script
is read once, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)(.*)", re.DOTALL)
_BRACED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[@*]\])?(?:(:?[-=])(.*))?", re.DOTALL)
_OPERATORS: Final = frozenset(";|&()<>\n")
_KEYWORDS: Final = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "do",
        "done",
        "while",
        "until",
        "for",
        "case",
        "esac",
        "{",
        "}",
        "!",
        "time",
        "exec",
        "nohup",
        "sudo",
        "command",
        "function",
    ]
)
_SEPARATOR: Final = "\0"  # between the words that an expansion splits into
_UNKNOWN: Final = "\1"  # before an element of an array that isn't known
# Around what isn't known in the text of a script: no file that is UTF-8 holds it.
_MARK: Final = "\udc02"


@dataclass(frozen=True, slots=True)
class Word:
    """One word. `text` None: only a shell knows it; `raw` is then how the script writes it.

    `script` is then the text with marks for the unknown parts, for a shell that is to run it; it
    may be private.
    """

    text: str | None
    line: int
    raw: str = ""
    script: str = ""

    @property
    def partial(self) -> str:
        """What stands around the unknown parts of a word; it may be private."""
        return "".join(self.script.split(_MARK)[::2])

    def __str__(self) -> str:
        return self.text if self.text is not None else self.raw


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command: its words, and the variables that are set for it (None: not known)."""

    words: tuple[Word, ...]
    environment: Mapping[str, str | None]
    line: int


def unknown_part(name: str) -> str:
    """Return what stands in a `Word.script` for a part that isn't known: a variable's name."""
    return f"{_MARK}{name}{_MARK}"


def commands(text: str, known: Mapping[str, str | None] | None = None) -> Iterator[ShellCommand]:
    """Yield the commands of a script; `known` are variables set before it (None: not known)."""
    variables: dict[str, str | None] = dict(known or {})
    reader = _Reader(text.replace("\r\n", "\n"), variables)
    for words in reader.simple_commands():
        place = 0
        own: dict[str, str | None] = {}
        while place < len(words) and str(words[place]) in _KEYWORDS:
            place += 1
        if place < len(words) and str(words[place]) in ("export", "declare", "local", "readonly"):
            for word in words[place + 1 :]:
                _assign(word, variables, {})
            continue
        if place < len(words) and str(words[place]) == "env":
            place += 1
        while place < len(words) and _assign(words[place], own, variables):
            place += 1
        if place == len(words):
            variables.update(own)  # an assignment of its own holds from here on
            continue
        rest = tuple(words[place:])
        yield ShellCommand(words=rest, environment={**variables, **own}, line=rest[0].line)


def _assign(word: Word, target: dict[str, str | None], known: Mapping[str, str | None]) -> bool:
    """Put an assignment into `target`, `+=` on what is `known`; say whether the word is one."""
    match = _ASSIGNMENT.fullmatch(word.raw if word.text is None else word.text)
    if match is None:
        return False
    name, operator, value = match.groups()
    if word.text is None:
        target[name] = None
    elif operator == "+=":
        before = {**known, **target}.get(name, "")
        between = _SEPARATOR if before and word.raw.startswith(f"{name}+=(") else ""
        target[name] = None if before is None else before + between + value
    else:
        target[name] = value
    return True


class _Reader:
    def __init__(self, text: str, variables: dict[str, str | None]) -> None:
        self.text = text
        self.place = 0
        self.line = 1
        self.variables = variables

    def simple_commands(self) -> Iterator[list[Word]]:
        words: list[Word] = []
        while self.place < len(self.text):
            char = self.text[self.place]
            if char in " \t":
                self._step()
            elif self.text.startswith("\\\n", self.place):
                self._step(2)
            elif char == "#":
                while self.place < len(self.text) and self.text[self.place] != "\n":
                    self._step()
            elif self.text.startswith("<<", self.place):
                self._skip_here_document()
            elif char in "<>":
                self._step()  # a redirection: its target is no argument
                while self.place < len(self.text) and self.text[self.place] in " \t&>":
                    self._step()
                if self.place < len(self.text) and self.text[self.place] not in _OPERATORS:
                    self._word()
                if words and words[-1].text in ("1", "2"):
                    words.pop()
            elif char in _OPERATORS:
                self._step()
                if words:
                    yield words
                words = []
            else:
                words.extend(self._word())
        if words:
            yield words

    def _step(self, count: int = 1) -> str:
        part = self.text[self.place : self.place + count]
        self.line += part.count("\n")
        self.place += count
        return part

    def _skip_here_document(self) -> None:
        self._step(2)
        if self.text.startswith("<", self.place):  # a here string
            self._step()
            self._word()
            return
        while self.place < len(self.text) and self.text[self.place] in "- \t":
            self._step()
        mark = "".join(str(word) for word in self._word())
        end = re.compile(rf"^\t*{re.escape(mark)}$", re.MULTILINE).search(self.text, self.place)
        line_end = self.text.find("\n", self.place)
        if end is not None and line_end >= 0:
            # The rest of the command's own line still counts; the document after it doesn't.
            rest = self.text[self.place : line_end]
            self.line += self.text.count("\n", self.place, end.end())
            self.text = rest + self.text[end.end() :]
            self.place = 0

    def _word(self) -> list[Word]:
        """Read one word as the shell would split it: several where a variable holds several."""
        start, line = self.place, self.line
        text, is_known, quote = "", True, ""
        array = False
        while self.place < len(self.text):
            char = self.text[self.place]
            if char == _MARK:
                end = self.text.find(_MARK, self.place + 1)
                text += self._step((end if end >= 0 else len(self.text)) + 1 - self.place)
                is_known = False
            elif quote == "'":
                if self._step() == "'":
                    quote = ""
                else:
                    text += char
            elif char == "\\":
                escaped = self.text[self.place + 1 : self.place + 2]
                self._step(2)
                if escaped == "\n":
                    continue
                keeps = quote == '"' and escaped not in '"\\$`'
                text += ("\\" if keeps else "") + escaped
            elif char == '"':
                quote = "" if quote else '"'
                self._step()
            elif char == "'" and not quote:
                quote = "'"
                self._step()
            elif char == "`":
                end = self.text.find("`", self.place + 1)
                self._step((end if end >= 0 else len(self.text)) + 1 - self.place)
                text += unknown_part("$(…)")
                is_known = False
            elif char == "$":
                begin = self.place
                value, splits = self._expansion(bool(quote))
                if value is None:
                    text += unknown_part(_without_values(self.text[begin : self.place]))
                    is_known = False
                elif splits:
                    text += _SEPARATOR.join(value.split())
                else:
                    text += value
            elif not quote and char == "(" and text.endswith("=") and is_known:
                text += self._array()
                array = True
            elif not quote and char in " \t" + "".join(_OPERATORS):
                break
            else:
                text += self._step()
        raw = self.text[start : self.place]
        if not is_known:
            return [Word(None, line, _without_values(raw), text)]
        if array:
            return [Word(text, line, raw)]
        parts = text.split(_SEPARATOR)
        if len(parts) > 1 and _ASSIGNMENT.fullmatch(text):
            return [Word(text.replace(_SEPARATOR, " "), line, raw)]
        return [_part(part, line, raw) for part in parts if part or raw[:1] in "'\""]

    def _array(self) -> str:
        """Read `( … )` of an assignment; its words are joined with the separator of expansions."""
        self._step()
        items: list[str] = []
        while self.place < len(self.text) and self.text[self.place] != ")":
            char = self.text[self.place]
            if char in " \t\n":
                self._step()
            elif self.text.startswith("\\\n", self.place):
                self._step(2)
            elif char == "#":
                while self.place < len(self.text) and self.text[self.place] != "\n":
                    self._step()
            elif char in _OPERATORS:
                self._step()
            else:
                items.extend(
                    word.text if word.text is not None else _UNKNOWN + word.raw
                    for word in self._word()
                )
        self._step()
        return _SEPARATOR.join(items)

    def _expansion(self, is_quoted: bool) -> tuple[str | None, bool]:
        """Read `$…`; return its value (None: not known) and whether it is split into words."""
        self._step()
        if self.text.startswith("(", self.place):
            depth = 0
            while self.place < len(self.text):
                char = self._step()
                depth += {"(": 1, ")": -1}.get(char, 0)
                if not depth:
                    break
            return None, False
        if self.text.startswith("{", self.place):
            depth, inner = 0, ""
            while self.place < len(self.text):
                char = self._step()
                depth += {"{": 1, "}": -1}.get(char, 0)
                if not depth:
                    break
                inner += char
            return self._braced(inner[1:], is_quoted)
        match = _NAME.match(self.text, self.place)
        if match is None:
            if self.text[self.place : self.place + 1] in "@*#?$!0123456789-":
                self._step()
                return None, False
            return "$", False
        self._step(len(match[0]))
        value = self.variables.get(match[0])
        return value, not is_quoted

    def _braced(self, inner: str, is_quoted: bool) -> tuple[str | None, bool]:
        match = _BRACED.fullmatch(inner)
        if match is None:
            return None, False
        name, operator, default = match.groups()
        if name in self.variables and self.variables[name] is None:
            return None, False
        value = self.variables.get(name)
        if value is None and operator is not None:
            # The script's own default; the environment it is started in may say otherwise.
            nested = _Reader(default, self.variables)
            words = [word for part in nested.simple_commands() for word in part]
            known = all(word.text is not None for word in words)
            value = " ".join(word.text or "" for word in words) if known else None
        is_array = "[@]" in inner or "[*]" in inner
        if value is not None and is_array:
            return value, False  # separators inside: the elements stay whole
        return value, not is_quoted


def _part(part: str, line: int, raw: str) -> Word:
    if part.startswith(_UNKNOWN):
        return Word(None, line, part.removeprefix(_UNKNOWN))
    return Word(part, line, raw)


def _without_values(raw: str) -> str:
    """Return how an unknown word is written, safe to show: its option and variables only."""
    names = re.findall(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|\$\((?:[A-Z_][A-Z0-9_]*\)|…\))?", raw)
    shown = " ".join("$(…)" if name == "$(" else name for name in names) or "…"
    match = re.match(r"--?[A-Za-z][A-Za-z0-9_.-]*=|[A-Za-z_][A-Za-z0-9_]*\+?=", raw)
    return (match[0] if match else "") + shown
