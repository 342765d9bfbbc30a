"""The vocabulary: values that the stages hand to each other. No I/O, no computation beyond them.

unknown   UNKNOWN, which is neither None nor a default
identity  everything but the tokens that a block's key has to hold
request   what a log says: Request, Skipped, Usage, and the forms a prompt can have
prompt    a request whose tokens are known
trace     BlockTrace, the waist: all blocks of all requests as integers
pool      hits: HitCurve, Lookups
engine    what is known of an engine's cache by version
model     the shape of a model, as far as it costs FLOPs or bytes
times     what hits are worth in seconds and money
reading   what an engine says of its own cache; reported: what servers said, beside a replay
rule, audit, finding  a rule, what it looks at, and what it finds
why, template, gate, inspection, log_fact, report  what commands answer
prefixes  how far two token arrays are the same
"""
