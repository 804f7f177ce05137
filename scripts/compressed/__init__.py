"""Compressed exchanges over simulated links: scripts/compressed.sh."""
