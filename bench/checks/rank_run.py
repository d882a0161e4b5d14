"""The common part of torchrun's ranks of a training or of a generation. They meet in the
framework's deterministic mode, count their steps, and report their results.

Rank 0 prints one line when all ranks work, and a last one. That has the rate, moments at which a
step ended, each a second or more after the one before, and the values of each rank. The output fits
into a pipe that nobody reads.
"""

import hashlib
import json
import os
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from rank_setup import gpu_of  # noqa: E402

WARM = 20
PARTS = 16  # of the ballast


def arguments(parser):
    parser.add_argument("steps", type=int)
    parser.add_argument("--gib", type=int, default=0, help="ballast of each rank beside the model")
    parser.add_argument("--one-gpu", action="store_true",
                        help="all ranks on GPU 0, connected by sockets (rank_setup.py)")


def say(**what):
    if dist.get_rank() == 0:
        print(json.dumps(what), flush=True)


def digest(texts):
    return {"last": texts[-1], "all": hashlib.sha256(" ".join(texts).encode()).hexdigest()}


def join(options):
    """The index of this rank's GPU."""
    torch.use_deterministic_algorithms(True)
    gpu = gpu_of(int(os.environ["RANK"]), options.one_gpu)
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    return gpu


def ballast_of(options):
    """Random numbers of this rank. The next draws are of this rank, too."""
    torch.manual_seed(100 + dist.get_rank())
    return torch.randn(options.gib << 28, device="cuda")


def counted(steps, step, ballast):
    """Makes so many steps, each of which waits for the GPU: how fast, and when. Each step changes a
    part of the ballast, because a swap-out does not copy memory that has not changed."""
    parts = ballast.view(PARTS, -1) if ballast.numel() else None
    stamps, begun = [], 0.0
    for index in range(steps):
        if index == WARM:
            torch.cuda.synchronize()
            begun = time.monotonic()
            say(ready=True)
        if parts is not None:
            parts[index % PARTS].add_(1)
        step()
        if not stamps or time.monotonic() - stamps[-1] >= 1 or index + 1 == steps:
            stamps.append(time.monotonic())
    torch.cuda.synchronize()
    return {"rate": (steps - WARM) / (time.monotonic() - begun), "stamps": stamps}


def finish(measured, ballast, **own):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, {**own, "ballast": ballast.sum().item().hex()})
    say(**measured, values=values)
    dist.destroy_process_group()
