"""Another rank program on a device, though it names none: `on_device.py DEVICE PROGRAM ARGUMENTS...`

Tensors and random generators that are made without a device are on this one. PROGRAM is a path below the folder ranks.
"""

import pathlib
import runpy
import sys

import torch

device, program, *arguments = sys.argv[1:]
to_numpy = torch.Tensor.numpy
Plain = torch.Generator


class Generator(Plain):
    """Of this device unless another one is named."""

    def __new__(cls, device=device):
        return Plain.__new__(cls, device)


torch.set_default_device(device)
torch.Generator = Generator
torch.Tensor.numpy = lambda tensor, **options: to_numpy(tensor.cpu(), **options)
# As exact as on the processor.
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

path = pathlib.Path(__file__).parents[1] / program
sys.argv = [str(path), *arguments]
sys.path.insert(0, str(path.parent))
runpy.run_path(str(path), run_name="__main__")
