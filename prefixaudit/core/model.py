"""The shape of a model, as far as it costs FLOPs or bytes."""
