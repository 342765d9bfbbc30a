"""FLOPs, bytes and seconds of a model's prefill.

weights     parameters by part, and their bytes
flops       prefill FLOPs by component, and what a cached prefix saves
lora        what an adapter adds
memory      bytes of keys, values and states
blocks      vLLM's groups and blocks, the effective block size of hybrids
engine_log  what an engine says of its pool at start-up
pool        how many blocks fit, as a range
hardware    GPUs and tiers (hardware.toml)
time        seconds of a prefill, as a range
savings     what a hit saves in seconds; when a fetch is worth it
log_times   the same over a whole log
position    the position encoding as identity; when KV depends on the prompt's length
estimate    all of it for one prompt
"""
