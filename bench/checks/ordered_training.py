#!/usr/bin/env python3
"""A training of two ranks that waits for orders and knows the norms of its gradients.

    ordered_training.py MODE [--own] [--one-gpu] [--layers L] [--width W]

MODE is a model, and its batch for each rank: gpt8 and resnet32 by DistributedDataParallel, fsdp4 a
GPT of L layers of W by FSDP2.

It starts its two ranks itself. A line {"steps": N} has all ranks make N steps. The answer has the
rate, and the rate by the median step, which a host that takes its CPUs away does not change. It has
the median step of those with an even number and of the others as well, in milliseconds. --own: each
rank also computes the squared norms of its buckets, before and after they are summed. A
communication hook or a wrapper of the reduce-scatter does so. The answer has two figures of each step. One
is the mean of a rank's own |gradient|² over the ranks, the other |mean gradient|². For DDP both are
of gradients that are divided by the number of ranks, as it sends them.

--one-gpu: both ranks are on one GPU (rank_setup.py).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from rank_setup import free_port, gpu_of  # noqa: E402

RANKS = 2
WARM = 20
SAMPLES = 256  # that batches are drawn from, so that there is a gradient beside the noise


def model_and_batch(mode):
    model = mode.rstrip("0123456789")
    if model not in ("gpt", "resnet", "fsdp") or model == mode:
        raise ValueError
    return model, int(mode[len(model):])


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", type=model_and_batch)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--one-gpu", action="store_true")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rank", type=int)
    return parser.parse_args()


# --- the parent: one line of orders to each rank, one answer from all ---


def start_rank(rank, port):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port))
    return subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)], env=environment,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answers(ranks):
    lines = [rank.stdout.readline() for rank in ranks]
    if not all(lines):
        raise RuntimeError("a rank has ended")
    return [json.loads(line) for line in lines]


def joined(each):
    """Of all ranks: a step's norms are those of all."""
    steps = []
    for step in zip(*(one.get("norms", []) for one in each)):
        steps.append([sum(own for own, _ in step) / RANKS, sum(part for _, part in step)])
    return {**{key: min(one[key] for one in each) for key in ("rate", "usual_rate")},
            "halves_ms": each[0]["halves_ms"], "norms": steps}


def parent(options):
    port = free_port()
    ranks = [start_rank(rank, port) for rank in range(RANKS)]
    try:
        answers(ranks)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            for rank in ranks:
                rank.stdin.write(line)
                rank.stdin.flush()
            print(json.dumps(joined(answers(ranks))), flush=True)
        for rank in ranks:
            rank.stdin.close()
        for rank in ranks:
            rank.wait(timeout=30)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()


# --- a rank ---


def square(numbers):
    return numbers.double().square().sum()


class Norms:
    """A communication hook that does what DistributedDataParallel does without one, and notes the
    squared norms before and after. They stay on the GPU until somebody asks."""

    def __init__(self):
        self.__name__ = self.__qualname__ = "norms"  # DistributedDataParallel asks for them
        self.steps = []
        self.buckets = []

    def __call__(self, _, bucket):
        import torch.distributed as dist
        sent = bucket.buffer().div_(dist.get_world_size())
        before = square(sent)

        def finish(future):
            summed = future.value()[0]
            # All ranks have the whole of it, so each counts its part.
            self.buckets.append((before, square(summed) / RANKS ** 3))
            return summed

        return dist.all_reduce(sent, async_op=True).get_future().then(finish)

    def on(self, model):
        model.register_comm_hook(None, self)

    def end_step(self):
        self.steps.append(self.buckets)
        self.buckets = []

    def take(self):
        out = [[sum(float(norm[at]) for norm in step) for at in (0, 1)] for step in self.steps]
        self.steps = []
        return out


class ShardNorms(Norms):
    """The same of FSDP2, which averages by reduce-scatters: a rank has its shard of each mean."""

    def on(self, _):
        import torch.distributed as dist
        original = dist.reduce_scatter_tensor

        def reduce_scatter_tensor(output, input, *more, **named):
            before = square(input)
            work = original(output, input, *more, **named)
            self.buckets.append((before, square(output)))
            return work

        dist.reduce_scatter_tensor = reduce_scatter_tensor


def predicting_words(model, length, words):
    import torch
    from torch import nn
    data = torch.randint(0, words, (SAMPLES, length + 1), device="cuda")

    def loss(network, at):
        out = network(data[at, :-1])
        return nn.functional.cross_entropy(out.flatten(0, 1).float(), data[at, 1:].flatten())

    return model, loss


def build(options):
    """(model, a step's loss)"""
    import torch
    from torch import nn
    name = options.mode[0]
    if name == "gpt":
        from counted_training import TOKENS, WORDS, small_gpt
        return predicting_words(small_gpt(), TOKENS, WORDS)
    if name == "fsdp":
        from sharded_model import LENGTH, VOCABULARY, gpt
        return predicting_words(gpt(options.layers, options.width), LENGTH, VOCABULARY)
    from models import ResNet50
    model = ResNet50()
    images = torch.randn(SAMPLES, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 10, (SAMPLES,), device="cuda")

    def loss(network, at):
        return nn.functional.cross_entropy(network(images[at]).float(), labels[at])

    return model, loss


def wrapped(name, model):
    import torch
    if name == "fsdp":
        from sharded_model import fully_sharded
        return fully_sharded(model)
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


class Rank:
    def __init__(self, options):
        import torch
        import torch.distributed as dist
        self.torch = torch
        torch.cuda.set_device(gpu_of(options.rank, options.one_gpu))
        dist.init_process_group("nccl")
        torch.manual_seed(1)
        name, self.batch = options.mode
        model, self.loss = build(options)
        self.model = wrapped(name, model.cuda())
        self.norms = (ShardNorms if name == "fsdp" else Norms)() if options.own else None
        if self.norms:
            self.norms.on(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.draw = torch.Generator(device="cuda").manual_seed(100 + options.rank)

    def step(self):
        torch = self.torch
        at = torch.randint(0, SAMPLES, (self.batch,), device="cuda", generator=self.draw)
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(self.model, at)
        self.optimizer.zero_grad()
        loss.backward()
        if self.norms:
            self.norms.end_step()
        self.optimizer.step()

    def run(self, steps):
        ends = [self.torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        self.torch.cuda.synchronize()
        begun = time.monotonic()
        ends[0].record()
        for end in ends[1:]:
            self.step()
            end.record()
        self.torch.cuda.synchronize()
        out = {"rate": steps / (time.monotonic() - begun)}
        each = [one.elapsed_time(other) for one, other in zip(ends, ends[1:])]
        out["usual_rate"] = 1000 / statistics.median(each)
        out["halves_ms"] = [statistics.median(each[half::2] or each) for half in (0, 1)]
        if self.norms:
            out["norms"] = self.norms.take()
        return out


def child(options):
    rank = Rank(options)
    rank.run(WARM)  # the first steps settle what a bucket is
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(rank.run(json.loads(line)["steps"])), flush=True)
    rank.torch.distributed.destroy_process_group()


if __name__ == "__main__":
    asked = arguments()
    parent(asked) if asked.rank is None else child(asked)
