"""Of the stand-in for Horovod."""
