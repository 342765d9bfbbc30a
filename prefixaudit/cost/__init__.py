"""FLOPs, bytes and seconds of a model's prefill."""
