"""What an audit finds: a Finding says what was found, its Rule why it matters and what to do."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


class Severity(enum.IntEnum):
    """How bad, if true."""

    INFORMATIONAL = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Confidence(enum.IntEnum):
    """How sure."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def label(self) -> str:
        return self.name.lower()


Verdict: TypeAlias = Literal["found", "inconclusive"]
"""`inconclusive`: a field that isn't known prevents an answer; never a silent pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a finding points: a deployment file, a log or a rule file; line 0 is the whole file."""

    path: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBy:
    """A pair of requests as evidence: `reader` was served what `donor` stored.

    Without a donor ("") the reader alone is what was found.
    """

    reader: str
    donor: str
    num_tokens: int
    reader_source: str = ""
    donor_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a predicate says of one subject; the rule that asked makes a Finding of it.

    `subject` names what it is about and is stable between runs (a tier and a field, an adapter's
    name, a server), for baselines. `message` holds names and figures, no prompt text, salt or key.
    `requests` are positions in the log (index), all of them; `evidence` the first few pairs.
    """

    subject: str
    message: str
    verdict: Verdict = "found"
    location: Location | None = None
    requests: tuple[int, ...] = ()
    num_tokens: int = 0
    evidence: tuple[SharedBy, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An observation under a rule.

    `severity` is what counts for `--fail-on`: the rule's, and informational where the verdict is
    inconclusive. `severity_if_true` is the rule's in both cases.
    """

    rule: str
    title: str
    severity: Severity
    severity_if_true: Severity
    confidence: Confidence
    observation: Observation
    remediation: str = ""

    @property
    def fingerprint(self) -> str:
        """Return 32 hex digits that stay equal between runs while rule and subject do."""
        text = f"{self.rule}\0{self.observation.subject}\0{self.observation.verdict}"
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
