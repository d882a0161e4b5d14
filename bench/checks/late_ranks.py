#!/usr/bin/env python3
"""Two ranks that sum two tensors of different size in turns, without end, each in a process.

    late_ranks.py [--one-gpu]

Prints the ranks' PIDs when all of them sum, and ends them at the end of its input. A rank that gets
SIGUSR1 leaves out its next large sum. With --one-gpu both are on GPU 0 (rank_setup.py).
"""

import json
import os
import signal
import subprocess
import sys
import time

from rank_setup import free_port, gpu_of

RANKS, WARM = 2, 20


def rank_main():
    gpu = gpu_of(int(os.environ["RANK"]), "--one-gpu" in sys.argv)
    import torch
    import torch.distributed as dist

    skipped = []
    signal.signal(signal.SIGUSR1, lambda *_: skipped.append(True))
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    large, small = (torch.zeros(count, device="cuda") for count in (1 << 20, 1 << 8))
    step = 0
    while True:
        if skipped:
            skipped.clear()
        else:
            dist.all_reduce(large)
        dist.all_reduce(small)
        torch.cuda.synchronize()
        time.sleep(0.01)
        step += 1
        if step == WARM:
            print("sums", flush=True)


def main():
    port = free_port()
    ranks = [subprocess.Popen([sys.executable, *sys.argv, "--rank"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS),
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
             for rank in range(RANKS)]
    for rank in ranks:
        if not rank.stdout.readline():
            sys.exit("a rank ended")
    print(json.dumps({"ranks": [rank.pid for rank in ranks]}), flush=True)
    sys.stdin.read()
    for rank in ranks:
        rank.kill()
        rank.wait()


if __name__ == "__main__":
    rank_main() if "--rank" in sys.argv else main()
