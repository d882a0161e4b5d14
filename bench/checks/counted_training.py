#!/usr/bin/env python3
"""A training on one GPU that counts its own steps, without end.

    counted_training.py MODE     plain, resnet, graph (the whole step is one CUDA graph), compile
                                 (torch.compile)

A line of input asks; the answer has the moments at which each step was launched. The CPU waits for
the GPU every 20 steps, so it is never far ahead. Random data, fixed seed.
"""

import json
import sys
import threading
import time

import torch
from torch import nn

WIDTH, LAYERS, TOKENS, BATCH, WORDS = 768, 8, 256, 16, 8192
WAITS_EVERY = 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, tokens, 3, 12, width // 12)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


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


class Training:
    def __init__(self, mode):
        torch.manual_seed(1)
        self.graphed = mode == "graph"
        if mode == "resnet":
            model = Convolutions().cuda()
            self.data = torch.randn(64, 3, 128, 128, device="cuda")
            self.target = torch.randint(0, 1000, (64,), device="cuda")
        else:
            model = Gpt().cuda()
            self.data = torch.randint(0, WORDS, (BATCH, TOKENS), device="cuda")
            self.target = torch.randint(0, WORDS, (BATCH * TOKENS,), device="cuda")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=self.graphed)
        self.forward = torch.compile(model) if mode == "compile" else model
        for _ in range(5):
            self.train()
        self.step = self.capture() if self.graphed else self.train
        torch.cuda.synchronize()

    def train(self):
        with torch.autocast("cuda", torch.bfloat16):
            out = self.forward(self.data)
            loss = nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), self.target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.graphed)

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


def main():
    training = Training(sys.argv[1])
    moments = []

    def answer():
        for _ in sys.stdin:
            print(json.dumps({"moments": list(moments)}), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    while True:
        moments.append(time.monotonic())
        training.step()
        if len(moments) % WAITS_EVERY == 0:
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
