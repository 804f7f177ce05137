"""Rank 1 ends without the operation of rank 0, and without shutdown(); rank 0 hears of it under jax.jit."""

import time

import gradbus.jax as gradbus
import jax
import jax.numpy as jnp
import pytest

gradbus.init(op_timeout=5)
jax.jit(gradbus.allreduce)(jnp.ones(3)).block_until_ready()
if gradbus.rank() == 0:
    begin = time.monotonic()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"GB-[A-Z]\d+ .* \| next: "):
        jax.jit(lambda x: gradbus.allreduce(x, name="lonely"))(jnp.ones(3)).block_until_ready()
    assert time.monotonic() - begin < 15
print("ok")
