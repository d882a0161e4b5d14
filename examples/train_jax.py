#!/usr/bin/env python3
"""A small JAX training that knows nothing of Switchyard. JAX takes three quarters of the memory that
it sees when it starts: under a quota, three quarters of the quota.

    build/switchyard run --name jax --memory 8GiB -- python3 examples/train_jax.py

--seconds N ends it (20).
"""

import argparse

import jax
import jax.numpy as jnp

import steps


def loss_of(weights, x, wanted):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.mean((x - wanted) ** 2)


@jax.jit
def step(weights, x, wanted):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, wanted)
    return [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients)], loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    device = jax.devices()[0]
    if device.platform != "gpu":
        raise SystemExit(f"train_jax.py: JAX sees no GPU, only {device}")
    keys = jax.random.split(jax.random.PRNGKey(0), 8)
    weights = [jax.random.normal(key, (2048, 2048)) / 45 for key in keys[:6]]
    x, wanted = (jax.random.normal(key, (4096, 2048)) for key in keys[6:])
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    print(f"JAX has taken a pool of {limit >> 20} MiB", flush=True)

    def one():
        nonlocal weights
        weights, loss = step(weights, x, wanted)
        return float(loss)

    steps.repeat(one, options.seconds)


if __name__ == "__main__":
    main()
