"""Chains of block hashes, and the BlockTrace built from prompts."""
