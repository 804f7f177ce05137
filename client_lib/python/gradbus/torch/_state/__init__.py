"""State for checkpoints: of the optimizers on shards, and of compression."""
