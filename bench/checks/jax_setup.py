"""JAX made deterministic, so that two runs of one check can be compared bit by bit."""

import os
import subprocess
import sys

# Autotuning picks kernels by time, so two runs could differ in the last bit by themselves.
DETERMINISTIC = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")


def known(*flags):
    """XLA aborts at a flag that its version doesn't know, so another process tries them first."""
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment,
                          capture_output=True, check=False).returncode == 0


def deterministic(*more):
    """Must come before JAX is imported; `more` are flags of the check's own."""
    wanted = (*DETERMINISTIC, *more)
    if not known(*wanted):
        wanted = [flag for flag in wanted if known(flag)]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *wanted]).strip()
