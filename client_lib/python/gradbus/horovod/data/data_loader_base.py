"""BaseDataLoader, and AsyncDataLoaderMixin, which reads batches ahead in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_LOOK_S = 0.1  # from one look to the next whether the loader was closed


class BaseDataLoader:
    """Batches of one epoch at a time. Subclasses define ``__len__()`` and ``_iterate()``."""

    def __len__(self) -> int:
        """How many batches an epoch has."""
        raise NotImplementedError

    def _iterate(self) -> Iterable[Any]:
        """The batches of one epoch."""
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """What a training gets of a batch. Runs in the thread that iterates."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class AsyncDataLoaderMixin:
    """Has a thread read the next batches: ``class Loader(AsyncDataLoaderMixin, MyLoader)``.

    Args:
        async_loader_queue_size: how many batches may wait. 0: no thread.
        debug_data_loader: changes nothing.
        further arguments: those of the next class.

    An iteration starts a thread and ends it, also when the loop is left early. An error of ``_iterate()`` is raised
    in the loop, after the batches before it.
    """

    _reader: _Reader | None = None

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the thread. An iteration that is under way ends, too."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __iter__(self) -> Iterator[Any]:
        loader: Any = self
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        reader = self._reader = _Reader(loader._iterate, self.async_loader_queue_size)
        try:
            for batch in reader.batches():
                yield loader._process_batch(batch)
        finally:
            reader.close()


class _Reader:
    """One epoch, read by a thread. The entries of the queue are batches; a tuple of one error or None is the end."""

    def __init__(self, iterate: Callable[[], Iterable[Any]], batches_max: int) -> None:
        self._iterate = iterate
        self._queue: queue.Queue[tuple[bool, Any]] = queue.Queue(batches_max)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="gradbus-data-loader", daemon=True)
        self._thread.start()

    def batches(self) -> Iterator[Any]:
        while not self._closed.is_set():
            try:
                is_batch, value = self._queue.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if is_batch:
                yield value
            elif value is not None:
                raise value
            else:
                return

    def close(self) -> None:
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _read(self) -> None:
        error = None
        try:
            for batch in self._iterate():
                if not self._put(True, batch):
                    return
        except Exception as problem:
            error = problem
        self._put(False, error)

    def _put(self, is_batch: bool, value: Any) -> bool:
        """False: nobody wants it."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put((is_batch, value), timeout=_LOOK_S)
                return True
        return False
