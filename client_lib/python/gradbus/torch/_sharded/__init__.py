"""Sharded optimizers: each rank keeps the state of its share of the parameters."""
