"""JAX: a jitted training step, with the allocator's default preallocation."""

import os

from jax_setup import deterministic

deterministic()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from result import digest, say  # noqa: E402


def loss_of(weights, x, y):
    hidden = jnp.tanh(x @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - y) ** 2)


@jax.jit
def step(weights, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


def main():
    assert jax.devices()[0].platform == "gpu", f"JAX sees no GPU: {jax.devices()}"
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    weights = {"in": 0.1 * jax.random.normal(keys[0], (256, 512)),
               "out": 0.1 * jax.random.normal(keys[1], (512, 64))}
    x, y = jax.random.normal(keys[2], (1024, 256)), jax.random.normal(keys[3], (1024, 64))
    losses = []
    for _ in range(50):
        weights, loss = step(weights, x, y)
        losses.append(float(loss))
    say({"losses": losses, "weights": [digest(np.asarray(w).tobytes()) for w in weights.values()]},
        jax=jax.__version__, flags=os.environ["XLA_FLAGS"])


if __name__ == "__main__":
    main()
