"""NCCL on one GPU: a process group of one rank, collectives, and a DDP training."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from result import say
from torch_setup import deterministic, model_digest, tensor_digest


def main():
    deterministic()
    meeting = tempfile.mktemp(prefix="nccl-")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=0, world_size=1,
                            device_id=torch.device("cuda", 0))
    summed = torch.randn(1 << 20, device="cuda")
    for _ in range(5):
        dist.all_reduce(summed)
    gathered = [torch.empty_like(summed)]
    dist.all_gather(gathered, summed)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 128, device="cuda")
    y = torch.randint(0, 10, (256,), device="cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    values = {"reduced": tensor_digest(summed), "gathered": tensor_digest(gathered[0]),
              "losses": losses, "weights": model_digest(model)}
    dist.destroy_process_group()
    say(values, nccl=".".join(map(str, torch.cuda.nccl.version())))
    sys.stdout.flush()
    if os.path.exists(meeting):
        os.unlink(meeting)


if __name__ == "__main__":
    main()
