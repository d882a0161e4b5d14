#!/usr/bin/env python3
"""A GPT-like model on random tokens: `--mode train` (forward, backward, AdamW, bf16 autocast) or
`--mode infer` (eager forward, one kernel launch after the other).

24 layers of 1024 with a vocabulary of 50304 are about 355 million parameters; training at batch 8
x 1024 reserves about 18 GiB. It is one of the two workloads of docs/measurements.md.
"""

import torch
import torch.nn.functional as F
from torch import nn

import harness
from torch_work import Torch


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        self.register_buffer("places", torch.arange(length), persistent=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(self.places[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, tokens):
    """The loss, still on the GPU. `tokens` are one longer than what the model sees."""
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train_step(model, optimizer, tokens):
    """The loss, likewise."""
    loss = loss_of(model, tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


class Training(Torch):
    name = "gpt-train"
    unit = "tokens"
    ahead = 2

    def __init__(self, options):
        super().__init__(options)
        self.units_per_step = options.batch * options.length

    def prepare(self):
        o = self.options
        torch.manual_seed(0)
        self.model = Gpt(o.layers, o.width, o.heads, o.vocabulary, o.length).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4,
                                           **({"fused": True} if self.on_gpu else {}))
        self.batches = [torch.randint(0, o.vocabulary, (o.batch, o.length + 1), device=self.device)
                        for _ in range(4)]
        self.turn = 0
        self.make_events()
        self.warm_up()

    def enqueue(self):
        tokens = self.batches[self.turn % len(self.batches)]
        self.turn += 1
        train_step(self.model, self.optimizer, tokens)


class Inference(Torch):
    name = "gpt-infer"
    unit = "requests"
    ahead = 1

    def prepare(self):
        o = self.options
        torch.manual_seed(0)
        self.model = Gpt(o.layers, o.width, o.heads, o.vocabulary, o.length).to(self.device).eval()
        if self.on_gpu:
            self.model.to(torch.bfloat16)
        self.tokens = torch.randint(0, o.vocabulary, (o.batch, o.length), device=self.device)
        self.make_events()
        self.warm_up()

    def enqueue(self):
        with torch.no_grad():
            self.logits = self.model(self.tokens)


def arguments(parser):
    parser.add_argument("--mode", choices=["train", "infer"], default="train")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warm", type=int, default=6)


if __name__ == "__main__":
    harness.main(lambda o: Training(o) if o.mode == "train" else Inference(o), arguments)
