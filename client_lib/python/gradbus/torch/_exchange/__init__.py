"""The exchange of gradients during and after the backward pass."""
