"""Measures the sync modes: scripts/modes.sh."""
