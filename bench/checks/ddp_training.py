#!/usr/bin/env python3
"""A rank of a training by DistributedDataParallel, or by FSDP2, in the framework's deterministic
mode; torchrun starts it. The values of a rank are digests of its losses and of its ballast
(rank_run.py).
"""

import argparse

import rank_run  # before torch: it sets what cuBLAS reads

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    rank_run.arguments(parser)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--fsdp", action="store_true")
    return parser.parse_args()


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
    model = made(options, rank_run.join(options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ballast = rank_run.ballast_of(options)
    losses = []

    def step():
        loss = model(torch.randn(options.batch, options.width, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())

    measured = rank_run.counted(options.steps, step, ballast)
    rank_run.finish(measured, ballast, losses=rank_run.digest(losses))


if __name__ == "__main__":
    main()
