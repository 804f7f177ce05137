"""Measures steps, and finds buckets that suit them: plans of the coordinator, autotuning, recordings."""
