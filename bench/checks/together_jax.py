#!/usr/bin/env python3
"""A training in JAX for two at once that don't fit together: feed-forward blocks under Adam. Says
what together_training.py says.

    together_jax.py STEPS BATCH POOL_MIB

Of the pool, which JAX takes in advance, some 12 GiB are used. POOL_MIB 0: no pool, each array is an
allocation of its own, of 256 MiB at most and some 14 GiB in all.
"""

import ctypes
import hashlib
import json
import os
import sys
import time

from jax_setup import deterministic


def total_memory():
    """Without a context: JAX makes it with flags of its own."""
    driver, device, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
    assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
    return size.value


POOL = int(sys.argv[3]) << 20
# Triton's products have one tiling for all sizes where nothing is tuned, slow for these.
FLAGS = ["--xla_gpu_enable_triton_gemm=false"]
if POOL:
    # JAX takes a part of all that the GPU has, which --capacity leaves as it is.
    os.environ.setdefault("XLA_CLIENT_MEM_FRACTION", str(POOL / total_memory()))
else:
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    # All that a step needs for itself would else be in one piece.
    FLAGS.append(f"--xla_multiheap_size_constraint_per_heap={256 << 20}")
deterministic(*FLAGS)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

BLOCKS = 5 if POOL else 6  # of 134 million weights: 1.5 GiB with Adam's two moments
WIDTH, LENGTH = 4096, 1024
RATE, DECAY_1, DECAY_2 = 1e-4, 0.9, 0.999


def forward(weights, x):
    for block in weights:
        scale = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
        normed = x * jax.lax.rsqrt(scale + 1e-6).astype(x.dtype)
        inner = jax.nn.relu(normed @ block["up"].astype(x.dtype))
        x = x + inner @ block["down"].astype(x.dtype)
    return x


def loss_of(weights, x, y):
    return jnp.mean(jnp.square(forward(weights, x).astype(jnp.float32) - y.astype(jnp.float32)))


def step(state, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(state["weights"], x, y)
    count = state["count"] + 1
    first = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, state["first"], gradients)
    second = jax.tree.map(lambda v, g: DECAY_2 * v + (1 - DECAY_2) * g * g, state["second"],
                          gradients)
    weights = jax.tree.map(
        lambda w, m, v: w - RATE * (m / (1 - DECAY_1 ** count))
        / (jnp.sqrt(v / (1 - DECAY_2 ** count)) + 1e-8), state["weights"], first, second)
    return {"weights": weights, "first": first, "second": second, "count": count}, loss


def fresh(batch):
    """(state, x, y)"""
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 2 * BLOCKS + 2))

    def normal(scale, shape, dtype=jnp.float32):
        return scale * jax.random.normal(next(keys), shape, dtype)

    weights = [{"up": normal(WIDTH ** -0.5, (WIDTH, 4 * WIDTH)),
                "down": normal((4 * WIDTH) ** -0.5, (4 * WIDTH, WIDTH))} for _ in range(BLOCKS)]
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    return ({"weights": weights, "first": zeros[0], "second": zeros[1],
             "count": jnp.zeros((), jnp.float32)},
            *(normal(1.0, (batch * LENGTH, WIDTH), jnp.bfloat16) for _ in range(2)))


def main():
    steps, batch = int(sys.argv[1]), int(sys.argv[2])
    device = jax.devices()[0]
    assert device.platform == "gpu", f"JAX sees no GPU: {jax.devices()}"
    train = jax.jit(step, donate_argnums=0).lower(
        *jax.eval_shape(lambda: fresh(batch))).compile()
    state, x, y = fresh(batch)
    sizes = train.memory_analysis()
    used = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes
    limit = (device.memory_stats() or {}).get("bytes_limit", POOL) if POOL else used
    assert not POOL or abs(limit - POOL) < POOL // 10, f"JAX's pool is of {limit >> 20} MiB"
    losses, stamps = [], []
    print(json.dumps({"ready": True}), flush=True)
    for index in range(steps):
        state, loss = train(state, x, y)
        losses.append(loss)
        if index >= 2:
            losses[index - 2].block_until_ready()
            stamps.append(time.monotonic())
    jax.block_until_ready(state)
    stamps += [time.monotonic()] * (steps - len(stamps))
    values = np.stack([np.asarray(loss) for loss in losses])
    print(json.dumps({"losses": hashlib.sha256(values.tobytes()).hexdigest(),
                      "last": float(values[-1]), "reserved_bytes": limit,
                      "used_bytes": used, "stamps": stamps,
                      "jax": jax.__version__, "flags": os.environ["XLA_FLAGS"]}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
