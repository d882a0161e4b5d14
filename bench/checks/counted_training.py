#!/usr/bin/env python3
"""A training that counts its own steps, without end.

    counted_training.py MODE [--one-gpu] [--ranks N] [--batch N] [--waits-every STEPS]

MODE: plain, resnet, graph (the whole step is one CUDA graph) and compile (torch.compile) on one
GPU. The modes ddp and fsdp2 have two ranks or --ranks, on a GPU each. With --one-gpu all are on the
first one (rank_setup.py).

A line of input asks; the answer has the moments at which each step was launched (of rank 0). After
a line {"evaluate": STEPS} all ranks make so many steps without gradients; the answer, when they are
done, has their begin and their end. The CPU waits for the GPU every 20 steps ("waits_every"), so it
is never far ahead. Random data, fixed seed. The model is the GPT of bench/workloads, in small;
resnet's are a few convolutions.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import gpt  # noqa: E402
import own_ranks  # noqa: E402
from graph_capture import captured  # noqa: E402

WIDTH, LAYERS, HEADS, TOKENS, BATCH, WORDS = 768, 8, 12, 256, 16, 8192
WAITS_EVERY = 20
NOTICE = 60  # steps from an order until all ranks carry it out
OF_RANKS = ("ddp", "fsdp2")


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        layers, last = [], 3
        for width in (64, 64, 128, 128, 256, 256, 512, 512):
            stride = 2 if width > last > 3 else 1
            layers += [nn.Conv2d(last, width, 3, padding=1, stride=stride), nn.BatchNorm2d(width),
                       nn.ReLU()]
            last = width
        self.body, self.head = nn.Sequential(*layers), nn.Linear(last, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def small_gpt():
    return gpt.Gpt(LAYERS, WIDTH, HEADS, WORDS, TOKENS)


def convolve_loss(model, data):
    images, labels = data
    with torch.autocast("cuda", torch.bfloat16):
        return nn.functional.cross_entropy(model(images).float(), labels)


def spread(model, mode):
    """As the ranks have it."""
    if mode == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    from torch.distributed.fsdp import fully_shard
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


class Training:
    def __init__(self, options):
        mode = options.mode
        torch.manual_seed(1)
        if mode == "resnet":
            model, self.loss = Convolutions().cuda(), convolve_loss
        else:
            model, self.loss = small_gpt().cuda(), gpt.loss_of
        if mode in OF_RANKS:
            model = spread(model, mode)
        torch.manual_seed(100 + options.rank)
        if mode == "resnet":
            self.data = (torch.randn(64, 3, 128, 128, device="cuda"),
                         torch.randint(0, 1000, (64,), device="cuda"))
        else:
            self.data = torch.randint(0, WORDS, (options.batch, TOKENS + 1), device="cuda")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                           capturable=mode == "graph")
        self.model = torch.compile(model) if mode == "compile" else model
        for _ in range(5):
            self.train()
        self.step = captured(self.train).replay if mode == "graph" else self.train
        torch.cuda.synchronize()

    def train(self):
        self.loss(self.model, self.data).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self, steps):
        self.model.eval()
        for index in range(steps):
            self.loss(self.model, self.data)
            if index % WAITS_EVERY == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        self.model.train()


class Run:
    """The steps of one rank. Orders come in another thread.

    All ranks evaluate before the same step, and each counts its own. Rank 0 chooses that step, so
    far ahead that the others know it in time.
    """

    def __init__(self, waits_every):
        self.waits_every = waits_every
        self.moments = []
        self.others = []
        self.order = None  # to evaluate

    def obey(self, line):
        order = json.loads(line)
        if "evaluate" not in order:
            print(json.dumps({"moments": list(self.moments), "waits_every": self.waits_every}),
                  flush=True)
            return
        order.setdefault("at", len(self.moments) + NOTICE)
        own_ranks.order(self.others, json.dumps(order))
        self.order = order

    def evaluate(self, training):
        order, self.order = self.order, None
        begun = time.monotonic()
        training.evaluate(order["evaluate"])
        print(json.dumps({"evaluated": [begun, time.monotonic()]}), flush=True)

    def go_on(self, training):
        while all(other.poll() is None for other in self.others):
            if self.order and len(self.moments) >= self.order["at"]:
                self.evaluate(training)
            self.moments.append(time.monotonic())
            training.step()
            if len(self.moments) % self.waits_every == 0:
                torch.cuda.synchronize()


def parse():
    full = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    full.add_argument("mode", choices=["plain", "resnet", "graph", "compile", *OF_RANKS])
    full.add_argument("--ranks", type=int, default=2, help="of the modes ddp and fsdp2")
    full.add_argument("--batch", type=int, default=BATCH, help="of a rank; not for resnet")
    full.add_argument("--waits-every", type=int, default=WAITS_EVERY, metavar="STEPS",
                      help="1: the CPU waits for each step")
    own_ranks.arguments(full)
    return full.parse_args()


def main():
    options = parse()
    run = Run(options.waits_every)
    own_ranks.obey_input(run.obey)
    if options.mode in OF_RANKS:
        run.others = own_ranks.join(options, options.ranks)
    training = Training(options)
    print(json.dumps({"ready": True}), flush=True)
    run.go_on(training)
    sys.exit("another rank has ended")


if __name__ == "__main__":
    main()
