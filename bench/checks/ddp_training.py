#!/usr/bin/env python3
"""A rank of a training by DistributedDataParallel, or by FSDP2, in the framework's deterministic
mode; torchrun starts it.

Rank 0 prints one line when all train, and one with the rate, moments at which a step ended, each
a second or more after the one before, and of each rank a digest of its losses and of its ballast.
The output fits into a pipe that nobody reads.
"""

import argparse
import hashlib
import json
import os
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from rank_setup import gpu_of  # noqa: E402

WARM = 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int)
    parser.add_argument("--gib", type=int, default=0, help="ballast of each rank beside the model")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--one-gpu", action="store_true",
                        help="all ranks on GPU 0, connected by sockets (rank_setup.py)")
    return parser.parse_args()


def say(**what):
    if dist.get_rank() == 0:
        print(json.dumps(what), flush=True)


def digest(losses):
    return {"last": losses[-1], "all": hashlib.sha256(" ".join(losses).encode()).hexdigest()}


def made(options, gpu):
    torch.manual_seed(1)
    layers = [part for _ in range(options.layers)
              for part in (torch.nn.Linear(options.width, options.width), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda()
    if not options.fsdp:
        return DistributedDataParallel(model, device_ids=[gpu])
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def main():
    options = parse()
    torch.use_deterministic_algorithms(True)
    rank = int(os.environ["RANK"])
    gpu = gpu_of(rank, options.one_gpu)
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    model = made(options, gpu)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(100 + rank)
    ballast = torch.randn(options.gib << 28, device="cuda")
    losses, stamps, begun = [], [], 0.0
    for step in range(options.steps):
        if step == WARM:
            torch.cuda.synchronize()
            begun = time.monotonic()
            say(ready=True)
        loss = model(torch.randn(options.batch, options.width, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if not stamps or time.monotonic() - stamps[-1] >= 1 or step + 1 == options.steps:
            stamps.append(time.monotonic())
    torch.cuda.synchronize()
    rate = (options.steps - WARM) / (time.monotonic() - begun)
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, {"losses": digest(losses), "ballast": ballast.sum().item().hex()})
    say(rate=rate, stamps=stamps, values=values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
