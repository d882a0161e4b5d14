#!/usr/bin/env python3
"""Two ranks, on a GPU each, that sum 256 MiB and do nothing else, between `start` and `stop`.

    reducing.py [--one-gpu]

Rank 0 speaks the line protocol of bench/workloads/harness.py. The other one sums once for each line
that rank 0 writes, so no kernel of it waits for a rank that has stopped.
"""

import argparse
import queue
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import harness  # noqa: E402
import own_ranks  # noqa: E402
from torch_work import Torch  # noqa: E402

RANKS, BYTES = 2, 256 << 20


def numbers():
    """Zeros, which stay so however often they are summed."""
    return torch.zeros(BYTES // 4, device="cuda")


class Reducing(Torch):
    name = "reducing"
    unit = "bytes"
    units_per_step = BYTES

    def prepare(self):
        self.others = own_ranks.join(self.options, RANKS)
        self.numbers = numbers()
        self.make_events()
        for _ in range(3):
            self.request()

    def enqueue(self):
        own_ranks.order(self.others, "sum")
        dist.all_reduce(self.numbers)


def follow():
    """A rank other than 0."""
    parser = argparse.ArgumentParser()
    own_ranks.arguments(parser)
    orders = queue.SimpleQueue()
    own_ranks.obey_input(orders.put)
    own_ranks.join(parser.parse_args(), RANKS)
    summed = numbers()
    while orders.get():
        dist.all_reduce(summed)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        follow()
    else:
        harness.main(Reducing, own_ranks.arguments)
