"""What test/utils/common.py of Horovod imports."""

import threading


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """A thread that runs already."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread
