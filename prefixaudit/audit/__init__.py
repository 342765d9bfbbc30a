"""Unsafe sharing: who would be served whose blocks, under the keys that a deployment really has.

facts      servers and tiers of a deployment
gathering  what is noted of each request while the log is read
identities the log's identities as numbers
keys       a tier's key, and the complete one, as namespaces
tiers      replays each tier under both
sharing    readers, donors, and the fields in which they differ
public     public prefixes: declared and proposed
rules      reads rules/*.toml; predicates/ the questions that they ask
findings   runs rules; examples runs those of a rule
"""
