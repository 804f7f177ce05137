"""Measures Gradbus beside its peers in one run and writes docs/BENCHMARKS.md; scripts/bench.sh starts it."""
