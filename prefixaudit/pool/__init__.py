"""Replays a BlockTrace against a pool of blocks."""
