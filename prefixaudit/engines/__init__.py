"""Profiles of engines' prefix caches, one TOML file an engine."""
