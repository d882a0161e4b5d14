"""What the ranks of a training need before they meet, with nothing but the standard library.

NCCL refuses two ranks of one host on one GPU. A rank that shares its GPU tells NCCL a host of its
own. So NCCL takes the ranks for those of several hosts and connects them by sockets.
"""

import os
import socket


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


def gpu_of(rank, one_gpu):
    """The index of the GPU that a rank works on. To be called before NCCL is."""
    if not one_gpu:
        return rank
    os.environ["NCCL_HOSTID"] = f"rank{rank}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_IB_DISABLE", "1")
    return 0
