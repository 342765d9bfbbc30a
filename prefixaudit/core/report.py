"""What a renderer gets: the whole result of a run, as values."""
