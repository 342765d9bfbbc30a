"""The pipeline, wired once: logs and a deployment in, a Report out."""
