"""Measures Gradbus beside its peers, writes docs/benchmarks/collectives.md; scripts/bench.sh starts it."""
