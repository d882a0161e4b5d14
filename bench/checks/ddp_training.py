#!/usr/bin/env python3
"""A rank of a training by DistributedDataParallel, or by FSDP2, in the framework's deterministic
mode; torchrun starts it. The values of a rank are digests of its losses and of its ballast
(rank_run.py).
"""

import argparse
import sys
from pathlib import Path

import rank_run  # before torch: it sets what cuBLAS reads

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import torch  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gpt  # noqa: E402
import sharded_model  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    rank_run.arguments(parser)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--gpt", action="store_true", help="instead of linear layers")
    return parser.parse_args()


class Linears:
    def __init__(self, options):
        self.options = options

    def model(self):
        o = self.options
        layers = [part for _ in range(o.layers)
                  for part in (torch.nn.Linear(o.width, o.width), torch.nn.GELU())]
        return torch.nn.Sequential(*layers).cuda()

    def sharded(self, model):
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        return fully_shard(model)

    def loss(self, model):
        data = torch.randn(self.options.batch, self.options.width, device="cuda")
        return model(data).square().mean()


class Gpt:
    def __init__(self, options):
        self.options = options

    def model(self):
        return sharded_model.gpt(self.options.layers, self.options.width)

    def sharded(self, model):
        return sharded_model.fully_sharded(model)

    def loss(self, model):
        shape = self.options.batch, sharded_model.LENGTH + 1
        return gpt.loss_of(model, torch.randint(0, sharded_model.VOCABULARY, shape, device="cuda"))


def made(kind, options, gpu):
    torch.manual_seed(1)
    model = kind.model()
    if options.fsdp:
        return kind.sharded(model)
    return DistributedDataParallel(model, device_ids=[gpu])


def main():
    options = parse()
    kind = (Gpt if options.gpt else Linears)(options)
    model = made(kind, options, rank_run.join(options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ballast = rank_run.ballast_of(options)
    losses = []

    def step():
        loss = kind.loss(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())

    measured = rank_run.counted(options.steps, step, ballast)
    rank_run.finish(measured, ballast, losses=rank_run.digest(losses))


if __name__ == "__main__":
    main()
