"""A GPT sharded by FSDP2 over the ranks, as a script does it: a unit is a block.

It needs bench/workloads in its path, and a process group.
"""

import torch
import torch.distributed as dist

from gpt import Gpt

HEADS, VOCABULARY, LENGTH = 16, 50304, 1024


def gpt(layers, width):
    return Gpt(layers, width, HEADS, VOCABULARY, LENGTH).cuda()


def reduce_scatter_apart():
    """All reduce-scatters of this process use one process group, which nothing else uses."""
    group = dist.new_group()
    original = dist.reduce_scatter_tensor

    def reduce_scatter_tensor(*arguments, **named):
        named["group"] = group
        return original(*arguments[:3], **named)

    dist.reduce_scatter_tensor = reduce_scatter_tensor


def fully_sharded(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)
