"""Unsafe sharing: who would be served whose blocks, under the keys that a deployment really has.

facts           servers and tiers of a deployment; server_facts: what is known of each server
gathering       what is noted of each request while the log is read
identities      the log's identities as numbers
keys            a tier's key, and the complete one, as namespaces; media: how it tells media apart
hash_roots      which servers' hashes can be equal at all
tiers           replays each tier under both keys
sharing         readers, donors, and the fields in which they differ
false_hits      what each field that a key lacks lets through
isolation       what keeping tenants, domains or users apart costs
public          public prefixes: declared and proposed
reported        what servers said of their caches, against the replay
engine_figures  an engine's own hit rates, told apart by what they cover
rules           reads rules/*.toml; predicates: the questions that they ask; needs: what they expect
findings        runs rules; examples: runs those of a rule; page: the table of all rules
"""
