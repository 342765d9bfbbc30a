"""Recomputes golden vectors with this installation, one file a kind."""
