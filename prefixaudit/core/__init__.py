"""The vocabulary: values that the stages hand to each other. No I/O, no computation beyond them.

unknown   UNKNOWN, which is neither None nor a default
identity  everything but the tokens that a block's key has to hold
request   what a log says: Request, Skipped, Usage, and the forms a prompt can have
prompt    a request whose tokens are known
trace     BlockTrace, the waist: all blocks of all requests as integers
pool      hits: HitCurve, Lookups
engine    what is known of an engine's cache by version
model     the shape of a model, as far as it costs FLOPs or bytes
report    what a renderer gets
"""
