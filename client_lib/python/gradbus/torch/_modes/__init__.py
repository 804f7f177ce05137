"""Modes in which each rank steps on its own, options of the other modes, and changes of modes."""
