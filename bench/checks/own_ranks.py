"""Ranks that rank 0 starts itself, each in a process, in its own job.

The others have its command line, with --rank and --port. Rank 0 writes their orders into their
standard input, and they end with it.
"""

import argparse
import os
import subprocess
import sys
import threading

import torch

from rank_setup import free_port, gpu_of


def arguments(parser):
    parser.add_argument("--one-gpu", action="store_true",
                        help="all ranks on GPU 0, connected by sockets (rank_setup.py)")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)


def obey_input(obey):
    """Hands each line of input on, in a thread. The process ends with its input.

    Call it before join(): a rank that waits there for one that has ended then ends as well."""
    def read():
        for line in sys.stdin:
            obey(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()


def join(options, ranks):
    """Connects this rank to the others; on rank 0 their processes, which it has started."""
    others = []
    if options.rank == 0:
        options.port = free_port()
        for rank in range(1, ranks):
            command = [sys.executable, *sys.argv, "--rank", str(rank), "--port", str(options.port)]
            others.append(subprocess.Popen(command, stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, text=True))
    torch.cuda.set_device(gpu_of(options.rank, options.one_gpu))
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{options.port}",
                                         rank=options.rank, world_size=ranks)
    return others


def order(others, line):
    """Writes a line to the other ranks."""
    for other in others:
        other.stdin.write(f"{line}\n")
        other.stdin.flush()
