"""A rank of tests/integration/test_jax.py: JAX's own reductions in ``shard_map``, after `netsum.jax.install`."""

import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    f"127.0.0.1:{os.environ['MASTER_PORT']}", int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
)

import netsum.jax  # noqa: E402

netsum.jax.init(timeout_s=120)
netsum.jax.install()
netsum.jax.install()  # Changes nothing.
RANK, SIZE = netsum.jax.rank(), netsum.jax.size()
mesh = jax.make_mesh((SIZE,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
given = jax.make_array_from_process_local_data(
    NamedSharding(mesh, P("all")), np.arange(4.0, dtype="f") + RANK
)
everyone = np.stack([np.arange(4.0) + rank for rank in range(SIZE)])


def calls() -> int:
    """Return how many collectives this rank has made."""
    return int(re.sub(r".*\((\d+)\)", r"\1", repr(netsum.jax.current_session()._calls)))


def mapped(function: Any, *out: str) -> Any:
    """Return a function of all ranks' parts."""
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("all"), out_specs=P(*out)))


def local(array: Any) -> Any:
    """Return this rank's part of an array."""
    return np.asarray(array.addressable_data(0))


before = calls()
sums = mapped(lambda x: [jax.lax.psum(x, "all"), jax.lax.pmean(x, "all"), jax.lax.pmax(x, "all")])(given)
for sum_, expected in zip(sums, (everyone.sum(0), everyone.mean(0), everyone.max(0)), strict=True):
    assert (local(sum_) == expected).all()
assert calls() - before == 3

# Twice the same inner function, which no order of the data keeps apart.
inner = jax.jit(lambda x: jax.lax.psum(x, "all"))
for _ in range(20):
    one, hundred = mapped(lambda x: (inner(x), inner(100 * x)))(given)
    assert (local(one) == everyone.sum(0)).all()
    assert (local(hundred) == 100 * everyone.sum(0)).all()


def loss(x: Any) -> Any:
    """Square the sum over the ranks, in a loop."""
    total, _ = jax.lax.scan(lambda carry, _: (jax.lax.psum(carry, "all") / SIZE + 0 * x, None), x, None, 3)
    return (jax.lax.psum(x, "all") ** 2).sum() + jax.lax.psum(total.sum(), "all")


before = calls()
slope = local(mapped(jax.grad(loss), "all")(given))
assert calls() - before > 5
assert np.allclose(slope, 2 * everyone.sum(0) + 1), slope
# Types that the switch does not add stay on Gloo.
before = calls()
whole = mapped(lambda x: jax.lax.psum(x.astype(jnp.uint32), "all"))(given)
assert (local(whole) == everyone.sum(0)).all()
assert calls() == before
# The compiler's own sum too.
assert float(jax.jit(jnp.sum)(given)) == everyone.sum()
print("psum: done", flush=True)
