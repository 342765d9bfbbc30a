"""The kinds of KV groups, one file a kind, each ending in `GROUP = ...`, a subclass of Group.

A group holds one block table a request and knows which cached blocks make a hit, how many new
blocks a request needs, which blocks get a key, and which are no longer needed. Its name is what
`GroupRules.kind` says.
"""

from __future__ import annotations

from prefixaudit.pool.vllm.groups._group import Group
from prefixaudit.registry import Registry

GROUP_KINDS: Registry[type[Group]] = Registry(
    kind="KV group kind", package="prefixaudit.pool.vllm.groups", attribute="GROUP"
)
