#!/usr/bin/env python3
"""Logistic regression by gradient descent in CuPy; it knows nothing of Switchyard.

    build/switchyard run --name cupy --memory 4GiB -- python3 examples/train_cupy.py

--seconds N ends it (20).
"""

import argparse
import time

import cupy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    try:
        free, total = cupy.cuda.Device().mem_info
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise SystemExit(f"train_cupy.py: CuPy sees no GPU: {error}") from error
    print(f"this job sees {total >> 20} MiB of device memory, {free >> 20} MiB free", flush=True)
    rng = cupy.random.default_rng(0)
    x = rng.standard_normal((1 << 17, 512), dtype=cupy.float32)
    truth = rng.standard_normal(512, dtype=cupy.float32)
    labels = (x @ truth > 0).astype(cupy.float32)
    weights = cupy.zeros(512, dtype=cupy.float32)

    begun = said = time.monotonic()
    steps = 0
    while time.monotonic() - begun < options.seconds:
        guess = 1 / (1 + cupy.exp(-(x @ weights)))
        weights -= x.T @ (guess - labels) / len(x)
        steps += 1
        if steps % 20:
            continue
        right = float(((guess > 0.5) == (labels > 0.5)).mean())
        now = time.monotonic()
        if now - said >= 1:
            print(f"step {steps}, {100 * right:.1f} % right, {steps / (now - begun):.0f} steps/s",
                  flush=True)
            said = now
    print(f"{steps} steps", flush=True)


if __name__ == "__main__":
    main()
