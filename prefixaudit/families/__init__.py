"""Model families, one file a family: config.json in, a model's shape out."""
