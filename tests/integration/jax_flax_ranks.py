"""A rank that trains a network of flax with optax; ``python -m tests.integration.jax_flax_ranks`` runs 1 to 4 of them.

All print the same SHA-256 of the weights: micro-batches are added exactly, whichever rank computes them.
"""

import hashlib
import os
from typing import Any

from tests.integration.framework_ranks import run

STEPS, MICRO_BATCHES = 20, 12


def trained() -> str:
    """Train; return the SHA-256 of the weights."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    import netsum.jax
    from netsum.digits.dataset import load_digits

    netsum.jax.init()

    class Model(nn.Module):
        @nn.compact  # type: ignore[untyped-decorator]
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.relu(nn.Conv(8, (3, 3))(x))
            x = nn.relu(nn.Conv(16, (3, 3), strides=2)(x))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    digits = load_digits(0)[0]
    images, labels = digits.pixels.reshape(-1, 8, 8, 1).astype("f"), digits.digits
    model, optimizer = Model(), optax.adam(1e-2)
    params = netsum.jax.broadcast(model.init(jax.random.key(netsum.jax.rank()), images[:1]))
    state = optimizer.init(params)

    @jax.jit  # type: ignore[untyped-decorator]
    def slope(params: object, x: jax.Array, y: jax.Array) -> Any:
        def loss(params: object) -> jax.Array:
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        return jax.value_and_grad(loss)(params)

    losses = []
    for step in range(STEPS):
        order = np.random.default_rng(step).permutation(len(images))[: MICRO_BATCHES * 16].reshape(-1, 16)

        def of(index: int, params: object = params, order: np.ndarray = order) -> object:
            return slope(params, images[order[index]], labels[order[index]])

        loss, gradient = netsum.jax.mean_of_micro_batches(of, MICRO_BATCHES)
        updates, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
    digest = hashlib.sha256()
    for each in jax.tree.leaves(params):
        digest.update(np.asarray(jnp.asarray(each)).tobytes())
    return f"loss {losses[0]:.4f} to {losses[-1]:.4f}, SHA-256 {digest.hexdigest()}"


if __name__ == "__main__":
    if "RANK" in os.environ:
        print("trained:", trained())
    else:
        for world in range(1, 5):
            for status, output in run(
                world, "jax_flax_ranks.py", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false"
            ):
                line = [each for each in output.splitlines() if each.startswith("trained:")]
                print(world, "ranks:", *(line or [f"status {status}: {output[-2000:]}"]), flush=True)
