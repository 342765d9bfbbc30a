"""SGLang's scheduler around its radix tree: who asks for how much room, and what is inserted when.

Order of operations (SGLang 0.4.10 to 0.5.23, one request at a time in each operation):

add      match all but the last prompt token, lock the match, make room, take slots for the chunk,
         then insert the chunk
chunk    make room, take slots, insert what is computed so far (whole blocks), free own duplicates,
         match again and move the lock to it
decode   at every step ask for one token (blocks of 1) or one block; take it when the last is full
free     insert prompt and output (whole blocks), free duplicates and the tail, unlock
abort    (no room at a chunk or a decode step) free the request's own slots, unlock
reset    forget everything, if no request runs

Slots are tokens. A slot belongs to the tree from insertion on, so an unfinished tail is the
request's own until it ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.core.trace import Int64Array
from prefixaudit.pool.eviction import EvictionPolicy
from prefixaudit.pool.sglang.rules import SglangRules, check_block_size
from prefixaudit.pool.sglang.tree import Node, RadixTree


@dataclass(slots=True, kw_only=True)
class Running:
    """A request that holds slots.

    [0, num_inserted_tokens)                    in the tree, locked
    [num_inserted_tokens, num_computed_tokens)  the request's own slots

    `num_counted_blocks` of its blocks have counted it as a hit.
    """

    donor: int
    namespace: int
    blocks: Int64Array
    num_prompt_tokens: int
    priority: int
    node: Node
    num_hit_tokens: int
    num_computed_tokens: int
    num_inserted_tokens: int
    num_counted_blocks: int = 0


class SglangPool:
    """A pool of `capacity_tokens` slots in blocks of `block_size` tokens."""

    def __init__(
        self,
        *,
        capacity_tokens: int,
        block_size: int,
        policy: EvictionPolicy,
        rules: SglangRules,
    ) -> None:
        self.block_size = check_block_size(block_size)
        self.rules = rules
        # A paged allocator hands out whole blocks only.
        self.num_tokens = capacity_tokens // block_size * block_size
        self.num_free_tokens = self.num_tokens
        self.num_evicted_tokens = 0
        self.num_running = 0
        self._policy = policy
        self.tree = RadixTree(policy=policy)

    @property
    def num_evictable_tokens(self) -> int:
        """Tokens in nodes that no running request locks."""
        return self.tree.num_unlocked_blocks * self.block_size

    def add(
        self,
        blocks: Int64Array,
        num_prompt_tokens: int,
        *,
        donor: int,
        namespace: int = 0,
        priority: int = 0,
        first_tokens: int | None = None,
        reads_cache: bool = True,
    ) -> tuple[int, Running | None]:
        """Look a prompt up and compute `first_tokens` (None: all) of its missing tokens.

        `blocks` are the ids of the prompt's full blocks. Returns the hit in tokens, and the
        running request, or None where there was no room (nothing is kept then).
        """
        # At least one token is computed even when every block is cached, or there are no logits.
        num_lookup = max(0, num_prompt_tokens - 1) // self.block_size if reads_cache else 0
        node, num_hit = self.tree.match(namespace, blocks[:num_lookup])
        self.tree.lock(node)
        num_hit_tokens = num_hit * self.block_size
        request = Running(
            donor=donor,
            namespace=namespace,
            blocks=blocks,
            num_prompt_tokens=num_prompt_tokens,
            priority=priority,
            node=node,
            num_hit_tokens=num_hit_tokens,
            num_computed_tokens=num_hit_tokens,
            num_inserted_tokens=num_hit_tokens,
        )
        missing = num_prompt_tokens - num_hit_tokens
        if not self._prefill(request, missing if first_tokens is None else first_tokens):
            self.tree.unlock(node)
            return num_hit_tokens, None
        self.num_running += 1
        return num_hit_tokens, request

    def prefill(self, request: Running, num_tokens: int) -> bool:
        """Compute up to `num_tokens` further prompt tokens; without room, end the request.

        Where none is left nothing happens: no chunk runs, so none is inserted or counted as a hit.
        """
        if request.num_computed_tokens >= request.num_prompt_tokens:
            return True
        if self._prefill(request, num_tokens):
            return True
        self.abort(request)
        return False

    def extend(self, request: Running, num_tokens: int) -> int:
        """Compute `num_tokens` answer tokens one by one; return how many found a slot."""
        block_size = self.block_size
        num_done = 0
        while num_done < num_tokens:
            # Room is asked for at every step, whether or not this step needs a new block.
            self._make_room(block_size)
            in_block = request.num_computed_tokens % block_size
            if block_size == 1:
                step = min(self.num_free_tokens, num_tokens - num_done)
                self.num_free_tokens -= step
            elif in_block:
                # Until the block is full nothing is taken, so all steps ask the same.
                step = min(block_size - in_block, num_tokens - num_done)
            else:
                step = int(self.num_free_tokens >= block_size)
                self.num_free_tokens -= step * block_size
            if step == 0:
                break
            request.num_computed_tokens += step
            num_done += step
        return num_done

    def free(self, request: Running, blocks: Int64Array) -> None:
        """End a request; `blocks` are the ids of the full blocks of its prompt and output."""
        full = blocks[: request.num_computed_tokens // self.block_size]
        self._insert(request, full, is_chunk=False)
        if self.rules.raises_prompt:
            self._raise_prompt(request, full)
        # The tail that fills no block has no place in the tree.
        num_slots = self._round_up(request.num_computed_tokens)
        self.num_free_tokens += num_slots - len(full) * self.block_size
        self.tree.unlock(request.node)
        self.num_running -= 1

    def abort(self, request: Running) -> None:
        """End a request that found no room: what isn't in the tree yet is lost (retraction)."""
        num_slots = self._round_up(request.num_computed_tokens)
        self.num_free_tokens += num_slots - request.num_inserted_tokens
        self.tree.unlock(request.node)
        self.num_running -= 1

    def reset(self) -> bool:
        """Forget everything if no request runs (`flush_cache`); return whether that was done."""
        if self.num_running:
            return False
        self.tree = RadixTree(policy=self._policy)
        self.num_free_tokens = self.num_tokens
        return True

    def _prefill(self, request: Running, num_tokens: int) -> bool:
        num_done = request.num_computed_tokens
        num_new = min(num_tokens, request.num_prompt_tokens - num_done)
        if num_new > 0:
            # A request may need one more block than its tokens fill: paged allocation asks for it.
            spare = 0 if self.block_size == 1 else self.block_size
            self._make_room(num_new + spare)
            num_slots = self._round_up(num_done + num_new) - self._round_up(num_done)
            if num_slots > self.num_free_tokens:
                return False
            self.num_free_tokens -= num_slots
            request.num_computed_tokens += num_new
        blocks = request.blocks[: request.num_computed_tokens // self.block_size]
        is_chunk = request.num_computed_tokens < request.num_prompt_tokens
        self._insert(request, blocks, is_chunk=is_chunk)
        node, _ = self.tree.match(request.namespace, blocks)
        self.tree.unlock(request.node)
        self.tree.lock(node)
        request.node = node
        return True

    def _insert(self, request: Running, blocks: Int64Array, *, is_chunk: bool) -> None:
        num_stored = self.tree.insert(
            request.namespace,
            blocks,
            donor=request.donor,
            priority=request.priority,
            counted_from=self._counted_from(request, len(blocks), is_chunk=is_chunk),
        )
        # What another request stored in the meantime was computed twice; one copy goes back.
        self.num_free_tokens += num_stored * self.block_size - request.num_inserted_tokens
        request.num_inserted_tokens = len(blocks) * self.block_size

    def _counted_from(self, request: Running, num_blocks: int, *, is_chunk: bool) -> int:
        """Return how many blocks of an insertion don't count it as a hit."""
        match self.rules.hit_counts:
            case "never":
                return num_blocks
            case "insertions":
                return num_blocks if is_chunk else 0
            case "every-insertion":
                return 0
            case "requests":
                counted = request.num_counted_blocks
                request.num_counted_blocks = max(counted, num_blocks)
                return counted

    def _raise_prompt(self, request: Running, full: Int64Array) -> None:
        num_prompt_blocks = request.num_prompt_tokens // self.block_size
        if 0 < num_prompt_blocks < len(full):
            self.tree.insert(
                request.namespace,
                full[:num_prompt_blocks],
                donor=request.donor,
                priority=request.priority + 1,
                counted_from=num_prompt_blocks,
            )

    def _make_room(self, num_tokens: int) -> None:
        missing = num_tokens - self.num_free_tokens
        if missing <= 0:
            return
        asked = num_tokens if self.rules.evicts == "need" else missing
        freed = self.tree.evict(-(-asked // self.block_size)) * self.block_size
        self.num_free_tokens += freed
        self.num_evicted_tokens += freed

    def _round_up(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size) * self.block_size
