"""Renderers, one file an output format: a Report in, text out."""
