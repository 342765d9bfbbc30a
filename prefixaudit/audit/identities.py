"""The identities of a log as numbers: a column a field, and values of some fields numbered once.

A log can have as many identities as requests (an end user each), and an audit looks at them in
every tier, rule and policy. So each field is numbered once, and a value that is made of a few
fields (a tier's key, the content identity) is made once for each combination of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from prefixaudit.core.identity import Identity
from prefixaudit.core.trace import Int64Array
from prefixaudit.core.unknown import UNKNOWN, Known

UNKNOWN_CODE: Final = -1
ABSENT_CODE: Final = 0
# An empty text is no salt and no extra key.
_EMPTY_IS_NONE: Final = frozenset({"cache_salt", "extra_key"})
# A log's traces have one tuple of identities each, of which there are a few at a time.
_NUM_KEPT: Final = 8
_KEPT: list[tuple[tuple[Identity, ...], IdentityTable]] = []


class IdentityTable:
    """Columns over a tuple of identities; all arrays are int64 [identities]."""

    def __init__(self, identities: Sequence[Identity]) -> None:
        self.identities = identities
        self._codes: dict[str, Int64Array] = {}

    def codes(self, name: str) -> Int64Array:
        """Number a field's values: -1 unknown, 0 known to be absent, else from 1 on."""
        codes = self._codes.get(name)
        if codes is None:
            numbers: dict[object, int] = {UNKNOWN: UNKNOWN_CODE, None: ABSENT_CODE}
            if name in _EMPTY_IS_NONE:
                numbers[""] = ABSENT_CODE
            taken = len(numbers) - 1
            codes = np.array(
                [
                    numbers.setdefault(getattr(identity, name), len(numbers) - taken)
                    for identity in self.identities
                ],
                dtype=np.int64,
            )
            self._codes[name] = codes
        return codes

    def number(self, names: Sequence[str], form: Callable[[Identity], object]) -> Int64Array:
        """Number the values of `form`, which looks at the fields `names` only (from 0)."""
        combined = np.zeros(len(self.identities), dtype=np.int64)
        for name in names:
            codes = self.codes(name) + 1
            pairs = combined * (int(codes.max(initial=0)) + 1) + codes
            _, combined = np.unique(pairs, return_inverse=True)
        _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
        numbers: dict[object, int] = {}
        of_combination = [
            numbers.setdefault(form(self.identities[place]), len(numbers))
            for place in first.tolist()
        ]
        result: Int64Array = np.array(of_combination, dtype=np.int64)[inverse]
        return result


def table_of(identities: tuple[Identity, ...]) -> IdentityTable:
    """Return the table of a trace's identities, made once for each tuple."""
    for kept, table in _KEPT:
        if kept is identities:
            return table
    table = IdentityTable(identities)
    _KEPT.append((identities, table))
    del _KEPT[:-_NUM_KEPT]
    return table


def value_of(identity: Identity, name: str) -> Known[str]:
    """Return an identity field as engines see it: an empty salt is none."""
    value: Known[str] = getattr(identity, name)
    return None if value == "" and name in _EMPTY_IS_NONE else value
