"""What is deployed: prefixaudit.toml, the model folder, and what the log doesn't record."""
