#!/usr/bin/env python3
"""A training that counts its own steps, without end.

    counted_training.py MODE [--one-gpu]

MODE: plain, resnet, graph (the whole step is one CUDA graph) and compile (torch.compile) on one GPU;
ddp and fsdp2 by two ranks, on a GPU each. With --one-gpu both are on the first one (rank_setup.py).

A line of input asks; the answer has the moments at which each step was launched (of rank 0). The
CPU waits for the GPU every 20 steps ("waits_every"), so it is never far ahead. Random data, fixed seed. The model is
the GPT of bench/workloads, in small; resnet's are a few convolutions.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import gpt  # noqa: E402
from rank_setup import free_port, gpu_of  # noqa: E402

WIDTH, LAYERS, HEADS, TOKENS, BATCH, WORDS = 768, 8, 12, 256, 16, 8192
WAITS_EVERY = 20
RANKS = {"ddp": 2, "fsdp2": 2}


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


def convolve_step(model, optimizer, data):
    images, labels = data
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images).float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


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
    def __init__(self, mode, rank):
        torch.manual_seed(1)
        if mode == "resnet":
            model, self.one = Convolutions().cuda(), convolve_step
        else:
            model, self.one = small_gpt().cuda(), gpt.train_step
        if mode in RANKS:
            model = spread(model, mode)
        torch.manual_seed(100 + rank)
        if mode == "resnet":
            self.data = (torch.randn(64, 3, 128, 128, device="cuda"),
                         torch.randint(0, 1000, (64,), device="cuda"))
        else:
            self.data = torch.randint(0, WORDS, (BATCH, TOKENS + 1), device="cuda")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                           capturable=mode == "graph")
        self.model = torch.compile(model) if mode == "compile" else model
        for _ in range(5):
            self.train()
        self.step = self.capture() if mode == "graph" else self.train
        torch.cuda.synchronize()

    def train(self):
        self.one(self.model, self.optimizer, self.data)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.train()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.train()
        return graph.replay


def join(options):
    """Rank 0 starts the others, in its own job. They end with their standard input."""
    others = []
    if options.rank == 0:
        options.port = free_port()
        for rank in range(1, RANKS[options.mode]):
            command = [sys.executable, __file__, options.mode, "--rank", str(rank), "--port",
                       str(options.port), *(["--one-gpu"] if options.one_gpu else [])]
            others.append(subprocess.Popen(command, stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL))
    torch.cuda.set_device(gpu_of(options.rank, options.one_gpu))
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{options.port}",
                                         rank=options.rank, world_size=RANKS[options.mode])
    return others


def parse():
    full = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    full.add_argument("mode", choices=["plain", "resnet", "graph", "compile", *RANKS])
    full.add_argument("--one-gpu", action="store_true")
    full.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    full.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    return full.parse_args()


def main():
    options = parse()
    moments = []

    def answer():
        for _ in sys.stdin:
            print(json.dumps({"moments": list(moments), "waits_every": WAITS_EVERY}), flush=True)
        os._exit(0)

    # Before anything waits for the other rank, which ends so if that one has ended.
    threading.Thread(target=answer, daemon=True).start()
    others = join(options) if options.mode in RANKS else []
    training = Training(options.mode, options.rank)
    print(json.dumps({"ready": True}), flush=True)
    while all(other.poll() is None for other in others):
        moments.append(time.monotonic())
        training.step()
        if len(moments) % WAITS_EVERY == 0:
            torch.cuda.synchronize()
    sys.exit("another rank has ended")


if __name__ == "__main__":
    main()
