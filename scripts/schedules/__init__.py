"""Trainings under each schedule over simulated links: scripts/schedules.sh."""
