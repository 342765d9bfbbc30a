"""Reads TOML files into values, and reports all problems of a file at once."""
