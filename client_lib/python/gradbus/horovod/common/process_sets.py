"""Process sets, under the names that they have in ``horovod.common.process_sets``."""

from ..._process_sets import global_process_set
from .._process_sets import ProcessSet, add_process_set, remove_process_set
from .._process_sets import set_of_number as process_set_by_id

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "process_set_by_id", "remove_process_set"]
