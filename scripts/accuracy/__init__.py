"""Trains the examples with every compression and writes docs/ACCURACY.md; see scripts/accuracy.sh."""
