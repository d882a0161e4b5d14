#!/usr/bin/env python3
"""A rank of a tensor-parallel decoder that generates tokens; torchrun starts it.

As in Megatron-LM, each rank has a part of the heads and of the MLP's columns, and an all-reduce
follows attention and MLP. Embeddings and head are replicated. A token is one replay of a CUDA
graph, all-reduces and the greedy choice included. When the cache is full, the position is 0 again,
and the last token goes on. The values of a rank are digests of its tokens and of its ballast
(rank_run.py).
"""

import argparse

import rank_run  # before torch: it sets what cuBLAS reads

import torch
import torch.distributed as dist
import torch.nn.functional as F

from graph_capture import captured

HEADS, WORDS, LENGTH = 16, 16384, 512


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    rank_run.arguments(parser)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=16)
    return parser.parse_args()


def replicated(*shape):
    """A weight of which all ranks have the same."""
    weight = torch.randn(shape, device="cuda", dtype=torch.bfloat16) * shape[-1] ** -0.5
    dist.broadcast(weight, 0)
    return weight


def part(weight, dimension):
    """This rank's part of a weight."""
    return weight.chunk(dist.get_world_size(), dimension)[dist.get_rank()].clone()


def normed(x):
    return F.layer_norm(x, x.shape[-1:])


def summed(x):
    dist.all_reduce(x)
    return x


class Block:
    def __init__(self, width):
        self.heads = HEADS // dist.get_world_size()
        # The rows of one head lie together: its query, key and value. So a part has whole heads.
        self.qkv = part(replicated(HEADS * 3 * (width // HEADS), width), 0)
        self.out = part(replicated(width, width), 1)
        self.up = part(replicated(4 * width, width), 0)
        self.down = part(replicated(width, 4 * width), 1)
        self.keys, self.values = (
            torch.zeros(self.heads, LENGTH, width // HEADS, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))

    def attention(self, x, here, later):
        query, key, value = F.linear(x, self.qkv).view(self.heads, 1, -1).chunk(3, dim=-1)
        # By a mask: an indexed copy sorts its indices in the deterministic mode.
        self.keys.copy_(torch.where(here, key, self.keys))
        self.values.copy_(torch.where(here, value, self.values))
        scores = (query @ self.keys.transpose(1, 2)).float() * key.shape[-1] ** -0.5
        weights = scores.masked_fill(later, float("-inf")).softmax(-1).bfloat16()
        return F.linear((weights @ self.values).reshape(1, -1), self.out)

    def mlp(self, x):
        return F.linear(F.gelu(F.linear(x, self.up)), self.down)

    def __call__(self, x, here, later):
        x = x + summed(self.attention(normed(x), here, later))
        return x + summed(self.mlp(normed(x)))


class Decoder:
    """All its state is on the GPU, so a graph can be the whole step."""

    def __init__(self, options):
        torch.manual_seed(1)
        self.words, self.head = (replicated(WORDS, options.width) for _ in range(2))
        self.positions = replicated(LENGTH, options.width)
        self.blocks = [Block(options.width) for _ in range(options.layers)]
        self.places = torch.arange(LENGTH, device="cuda")
        self.token, self.position = (torch.zeros(1, device="cuda", dtype=torch.long)
                                     for _ in range(2))

    @torch.no_grad()
    def step(self):
        here = (self.places == self.position).view(1, -1, 1)
        later = (self.places > self.position).view(1, 1, -1)
        x = F.embedding(self.token, self.words) + F.embedding(self.position, self.positions)
        for block in self.blocks:
            x = block(x, here, later)
        self.token.copy_(F.linear(normed(x), self.head).argmax(-1))
        self.position.copy_((self.position + 1) % LENGTH)


def main():
    options = parse()
    rank_run.join(options)
    decoder = Decoder(options)
    ballast = rank_run.ballast_of(options)
    # A thread of the process group asks for events meanwhile, which another mode may not allow.
    graph = captured(decoder.step, errors="thread_local")
    tokens = []

    def step():
        graph.replay()
        tokens.append(str(decoder.token.item()))

    measured = rank_run.counted(options.steps, step, ballast)
    graph.reset()  # NCCL's communicator waits for the graphs that use it before it ends
    rank_run.finish(measured, ballast, tokens=rank_run.digest(tokens))


if __name__ == "__main__":
    main()
