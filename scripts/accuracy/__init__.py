"""Trains the examples with every compression and writes docs/benchmarks/accuracy.md; see scripts/accuracy.sh."""
