"""FLOPs, bytes and seconds of a model's prefill.

weights   parameters by part
flops     prefill FLOPs by component, and what a cached prefix saves
memory    bytes of keys, values and states
"""
