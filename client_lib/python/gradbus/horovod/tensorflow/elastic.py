"""``hvd.elastic`` of TensorFlow: its names, which raise InvalidError with the reason."""

from .._elastic import Refused

ObjectState = Refused("ObjectState")
TensorFlowKerasState = Refused("TensorFlowKerasState")
TensorFlowState = Refused("TensorFlowState")
run = Refused("run")
