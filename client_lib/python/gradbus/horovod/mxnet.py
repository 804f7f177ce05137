"""There is no front end for MXNet: importing this module raises the ImportError of ``gradbus.mxnet``."""

from .. import mxnet as mxnet
