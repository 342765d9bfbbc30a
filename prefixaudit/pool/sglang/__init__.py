"""SGLang's prefix cache as the engine runs it: a radix tree over pages, and who asks for room when.

tree        the tree: lookup with split, insertion, locks, eviction of whole leaves
rules       what changed between releases
scheduler   add, prefill, decode, free: who asks for how much room, and when what is inserted
sequential  a whole BlockTrace, one request after another

A page is called a block here, as everywhere. Not modelled: the unified tree's rules for hybrid
models (0.5.18 and later), HiCache's host and storage tiers, and EAGLE's bigram keys.
"""
