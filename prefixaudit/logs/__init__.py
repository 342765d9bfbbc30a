"""Readers of request logs and traces, one file a format: bytes in, Request or Skipped out."""
