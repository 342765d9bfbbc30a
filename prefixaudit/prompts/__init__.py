"""Replays chat templates and tokenizers exactly as the serving stack does."""
