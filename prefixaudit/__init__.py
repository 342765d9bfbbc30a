"""prefixaudit audits the prefix caches of LLM servers, offline, from logs and deployment files."""

__version__ = "0.1.0"
