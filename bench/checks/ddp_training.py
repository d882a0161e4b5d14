#!/usr/bin/env python3
"""A rank of a DistributedDataParallel training, in the framework's deterministic mode; torchrun
starts it.

    ddp_training.py STEPS GIB [--one-gpu]

With --one-gpu all ranks use GPU 0. NCCL refuses two ranks of one host on one GPU, so each rank tells
it a host of its own, and NCCL connects them by sockets. GIB is ballast of each rank beside the model. Rank 0 prints one line when all train, and one with
the rate, and the losses and the sum of the ballast of each rank.
"""

import json
import os
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
ONE_GPU = "--one-gpu" in sys.argv
if ONE_GPU:
    os.environ["NCCL_HOSTID"] = f"rank-{os.environ['RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

WIDTH, LAYERS, BATCH, WARM = 2048, 12, 256, 20


def say(**what):
    if dist.get_rank() == 0:
        print(json.dumps(what), flush=True)


def main():
    steps, gib = map(int, sys.argv[1:3])
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    gpu = 0 if ONE_GPU else rank
    torch.cuda.set_device(gpu)
    torch.manual_seed(1)
    layers = [part for _ in range(LAYERS)
              for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[gpu])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(100 + rank)
    ballast = torch.randn(gib << 28, device="cuda")
    losses, begun = [], 0.0
    for step in range(steps):
        if step == WARM:
            torch.cuda.synchronize()
            begun = time.monotonic()
            say(ready=True)
        loss = model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    torch.cuda.synchronize()
    rate = (steps - WARM) / (time.monotonic() - begun)
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, {"losses": losses, "ballast": ballast.sum().item().hex()})
    say(rate=rate, values=values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
