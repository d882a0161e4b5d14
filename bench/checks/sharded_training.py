#!/usr/bin/env python3
"""A rank of a GPT training of two ranks, unmodified FSDP2 or DDP of PyTorch; torchrun starts it.

    sharded_training.py MODE STEPS LAYERS WIDTH

    fsdp         FSDP2 as it is: all-gathers and reduce-scatters on one communicator
    fsdp-two     the script's change: its reduce-scatters go to a process group of their own
    ddp          DistributedDataParallel as it is
    ddp-sliced   each bucket's all-reduce in slices of SLICE numbers
    ddp-ahead    later buckets overtake: every other bucket on a process group of its own

With fewer GPUs than ranks all ranks use the first one (rank_setup.py). Rank 0 prints one line:
milliseconds of each step, and the losses of each rank.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from torch_setup import deterministic  # noqa: E402  before torch

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.utils.deterministic  # noqa: E402

from rank_setup import gpu_of  # noqa: E402
from sharded_model import (LENGTH, VOCABULARY, fully_sharded, gpt,  # noqa: E402
                           reduce_scatter_apart)

BATCH, BATCHES = 4, 4
SLICE = 1 << 18


def in_slices(_state, bucket):
    """As DDP does it, but in slices: their sum is the same."""
    numbers = bucket.buffer().div_(dist.get_world_size())
    for part in numbers.split(SLICE):
        last = dist.all_reduce(part, async_op=True)
    # They run on one stream, in this order.
    return last.get_future().then(lambda _: numbers)


def overtaking(groups, bucket):
    numbers = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(numbers, group=groups[bucket.index() % 2], async_op=True)
    return work.get_future().then(lambda _: numbers)


def replicated(model, mode):
    from torch.nn.parallel import DistributedDataParallel
    wrapped = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    if mode == "ddp-sliced":
        wrapped.register_comm_hook(None, in_slices)
    elif mode == "ddp-ahead":
        wrapped.register_comm_hook((dist.group.WORLD, dist.new_group()), overtaking)
    return wrapped


def step(model, optimizer, tokens, mode):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=mode.startswith("ddp")):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    mode, steps, layers, width = sys.argv[1], *map(int, sys.argv[2:])
    deterministic()
    torch.use_deterministic_algorithms(True)  # attention's backward pass is not if it only warns
    torch.utils.deterministic.fill_uninitialized_memory = False  # no kernels of its own
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(gpu_of(rank, one_gpu=torch.cuda.device_count() < ranks))
    dist.init_process_group("nccl")
    if mode == "fsdp-two":
        reduce_scatter_apart()
    model = gpt(layers, width)
    model = fully_sharded(model) if mode.startswith("fsdp") else replicated(model, mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(100 + rank)
    batches = [torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
               for _ in range(BATCHES)]
    losses, milliseconds = [], []
    for number in range(steps):
        begun = time.monotonic()
        losses.append(step(model, optimizer, batches[number % BATCHES], mode).hex())
        torch.cuda.synchronize()
        milliseconds.append(1000 * (time.monotonic() - begun))
    values = [None] * ranks
    dist.all_gather_object(values, losses)
    if rank == 0:
        print(json.dumps({"milliseconds": milliseconds, "losses": values,
                          "nccl": ".".join(map(str, torch.cuda.nccl.version()))}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
