"""The loops over the words of a text: cut, look up, put the ids together.

A word's bytes stand in `text[offsets[word]:offsets[word + 1]]`, its ids in
`ids[first_ids[word]:first_ids[word] + num_ids[word]]`. `slots` finds a word by its hash: open
addressing, a power of two, 0 where free and the word's number plus one where not. A word is found
only if all its bytes are the same, whatever the hash.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Where words end.
ALWAYS = 1
IN_RUN = 2

# In place of `num_ids`: the word was seen but never encoded; it is going to be encoded.
SEEN = -1
WANTED = -2

# In place of a number of ids: nothing was learned.
NOT_APART = -1
UNKNOWN_LENGTH = -2

# A part with a longer word is encoded as a whole.
LONGEST_WORD_BYTES = 255
# Encoding a new word costs as much as this many bytes more in the middle of a text: in a call of
# its own, and in one with others.
_BYTES_OF_A_CALL = 20
_BYTES_OF_A_WORD = 8


@njit(cache=True, nogil=True)
def find_words(  # type: ignore[no-untyped-def]
    data,
    part_ends,
    classes,
    cuts,
    behind_runs,
    dropped,
    never_behind,
    learns_from_parts,
    factor,
    counts,
    slots,
    hashes,
    offsets,
    text,
    num_ids,
    words,
    word_ends,
    as_a_whole,
    wanted,
):
    """Cut the parts data[part_ends[i - 1]:part_ends[i]] (UTF-8) into words and look them up.

    `cuts[left << 8 | right]`, with the `classes` of two characters that follow one another, says
    whether a word ends between them: ALWAYS, or IN_RUN, if a byte of `behind_runs` follows. With
    `dropped` = 1 the right one is left out (and there is no cut if nothing, or a byte of
    `never_behind`, follows). The part's words go to words[word_ends[i - 1]:word_ends[i]], and
    `as_a_whole[i]` says whether it is cheaper to encode it in one piece (where a word is too long
    to be kept, no words are given either). Words that aren't known are entered; (word, start, end)
    of those that the caller has to encode go to `wanted`, whose number is returned: all new words
    of a part that isn't encoded as a whole; of one that is, those that were seen before, unless
    the caller `learns_from_parts`. counts = [words, bytes of text] in use; there must be room for
    one of each a byte of `data`.
    """
    mask = len(slots) - 1
    cost_of_a_word = _BYTES_OF_A_WORD if learns_from_parts else _BYTES_OF_A_CALL
    num_entries = counts[0]
    num_text = counts[1]
    num_words = 0
    num_wanted = 0
    place = 0
    for part in range(len(part_ends)):
        part_start = place
        part_end = part_ends[part]
        first_word = num_words
        first_new = num_entries
        cost = 0
        while place < part_end:
            start = place
            hashed = np.int64(0)
            left = np.uint8(255)  # the class of characters that no word ends behind
            while place < part_end:
                byte = np.int64(data[place])
                if byte < 128 or byte >= 192:  # a character starts here
                    code = byte
                    if byte >= 240:
                        code = np.int64(0xFFFF)
                    elif byte >= 224:
                        code = (
                            (byte & 15) << 12 | (data[place + 1] & 63) << 6 | data[place + 2] & 63
                        )
                    elif byte >= 192:
                        code = (byte & 31) << 6 | data[place + 1] & 63
                    right = classes[code]
                    cut = cuts[np.int64(left) << 8 | right]
                    if cut:
                        behind = data[place + 1] if place + 1 < part_end else 0
                        if (cut == ALWAYS or behind_runs[behind]) and (
                            dropped == 0 or (behind and not never_behind[behind])
                        ):
                            break
                    left = right
                hashed = (hashed ^ (byte + 1)) * factor
                hashed ^= hashed >> 32
                place += 1
            length = place - start
            if length > LONGEST_WORD_BYTES:
                cost = part_end + 1  # more than the whole
                num_words = first_word  # and nothing can be learned from it
                place = part_end
                break
            slot = (hashed ^ (hashed >> 16)) & mask
            entry = slots[slot] - 1
            while entry >= 0:
                if hashes[entry] == hashed and offsets[entry + 1] - offsets[entry] == length:
                    begin = offsets[entry]
                    same = 0
                    while same < length and text[begin + same] == data[start + same]:
                        same += 1
                    if same == length:
                        break
                slot = (slot + 1) & mask
                entry = slots[slot] - 1
            if entry < 0:
                entry = num_entries
                num_entries += 1
                slots[slot] = num_entries
                hashes[entry] = hashed
                for offset in range(length):
                    text[num_text + offset] = data[start + offset]
                num_text += length
                offsets[num_entries] = num_text
                num_ids[entry] = SEEN
            if num_ids[entry] == SEEN:
                cost += cost_of_a_word + length
            words[num_words] = entry
            num_words += 1
            if place < part_end:
                place += dropped
        as_a_whole[part] = cost > part_end - part_start
        learned = as_a_whole[part] and learns_from_parts
        end = part_start
        for number in range(first_word, num_words):
            entry = words[number]
            start = end
            end = start + offsets[entry + 1] - offsets[entry]
            if (
                num_ids[entry] == SEEN
                and not learned
                # A word that is seen again will probably come a third time.
                and (entry < first_new or not as_a_whole[part])
            ):
                num_ids[entry] = WANTED
                wanted[num_wanted, 0] = entry
                wanted[num_wanted, 1] = start
                wanted[num_wanted, 2] = end
                num_wanted += 1
            end += dropped
        word_ends[part] = num_words
    counts[0] = num_entries
    counts[1] = num_text
    return num_wanted


@njit(cache=True, nogil=True)
def learn(  # type: ignore[no-untyped-def]
    token_ids, lengths, num_in_front, dropped, words, offsets, first_ids, num_ids, ids, num_stored
):
    """Store the ids of words that were encoded together; return how many ids are stored then.

    `lengths[id]` is an id's length in bytes, of which `num_in_front` come before the first word
    and `dropped` between two. A word of -1 is one byte that isn't to be stored. Nothing is stored
    where a length isn't known (UNKNOWN_LENGTH) or a word doesn't end with a token (NOT_APART).
    `ids` must have room for all of them.
    """
    for place in range(len(token_ids)):
        if token_ids[place] >= len(lengths) or lengths[token_ids[place]] == 0:
            return UNKNOWN_LENGTH
    ends = np.empty(len(words), dtype=np.int64)
    passed = np.int64(0)
    place = 0
    word_end = np.int64(num_in_front)
    for number in range(len(words)):
        word = words[number]
        word_end += offsets[word + 1] - offsets[word] if word >= 0 else 1
        while passed < word_end and place < len(token_ids):
            passed += lengths[token_ids[place]]
            place += 1
        if passed != word_end:
            return NOT_APART
        ends[number] = place
        word_end += dropped
    if place < len(token_ids):
        return NOT_APART
    first = 0
    for number in range(len(words)):
        word = words[number]
        if word >= 0 and num_ids[word] < 0:
            first_ids[word] = num_stored
            num_ids[word] = ends[number] - first
            for index in range(first, ends[number]):
                ids[num_stored] = token_ids[index]
                num_stored += 1
        first = ends[number]
    return num_stored


@njit(cache=True, nogil=True)
def put_together(  # type: ignore[no-untyped-def]
    words, word_ends, as_a_whole, first_ids, num_ids, ids, id_ends
):
    """Return the ids of the words one after another (uint32), and their ends by part in `id_ends`.

    Parts that are encoded as a whole have none.
    """
    total = 0
    start = 0
    for part in range(len(word_ends)):
        if not as_a_whole[part]:
            for number in range(start, word_ends[part]):
                total += num_ids[words[number]]
        start = word_ends[part]
        id_ends[part] = total
    result = np.empty(total, dtype=np.uint32)
    place = 0
    start = 0
    for part in range(len(word_ends)):
        if not as_a_whole[part]:
            for number in range(start, word_ends[part]):
                entry = words[number]
                first = first_ids[entry]
                for offset in range(num_ids[entry]):
                    result[place] = ids[first + offset]
                    place += 1
        start = word_ends[part]
    return result
