"""The errors that scripts of elastic jobs catch."""

from ..._errors import GradbusError as HorovodInternalError

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]


class HostsUpdatedInterrupt(RuntimeError):
    """Only scripts raise it: the hosts of a job do not change."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised: Gradbus is not built for one version of a framework."""
