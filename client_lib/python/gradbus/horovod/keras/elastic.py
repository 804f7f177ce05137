"""``hvd.elastic`` of Keras: its names, which raise InvalidError with the reason."""

from .._elastic import Refused

CommitStateCallback = Refused("CommitStateCallback")
KerasState = Refused("KerasState")
UpdateBatchStateCallback = Refused("UpdateBatchStateCallback")
UpdateEpochStateCallback = Refused("UpdateEpochStateCallback")
run = Refused("run")
