"""How far two sequences of tokens are the same."""

from __future__ import annotations

from prefixaudit.core.request import TokenArray


def common_length(first: TokenArray, second: TokenArray) -> int:
    """Return the number of leading tokens that two arrays share."""
    length = min(len(first), len(second))
    begin = 0
    # In pieces, so that prompts that part early are not read to their ends.
    for piece in (256, 4096, length):
        end = min(length, begin + piece)
        differs = first[begin:end] != second[begin:end]
        if differs.any():
            return begin + int(differs.argmax())
        begin = end
        if begin == length:
            break
    return length
