"""Measures the exchange modes: scripts/modes.sh."""
