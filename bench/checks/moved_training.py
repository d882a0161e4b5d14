#!/usr/bin/env python3
"""A training with a ballast of device memory, in the framework's deterministic mode.

It ends after so many steps, or at a line of input, and then prints one line. That has its steps, a
digest of all losses and of the ballast, and each gap of more than 100 ms between two steps.
"""

import argparse
import hashlib
import json
import os
import select
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402

WIDTH, LAYERS, BATCH = 2048, 16, 4096
PIECE = 256 << 20
PARTS = 16  # of the ballast, one of which changes in a step
GAP = 0.1


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gib", type=int, help="of ballast")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--both", action="store_true",
                        help="half of the layers, and of the ballast, on a second GPU")
    parser.add_argument("--changing", action="store_true", help="each step changes a part of it")
    return parser.parse_args()


def digest_of(piece):
    """Of all its words, each with an odd weight, computed where they are: modulo 2^64."""
    words = piece.view(torch.int64)
    weights = torch.arange(1, 2 * words.numel(), 2, dtype=torch.int64, device=words.device)
    return int(words.sum()), int((words * weights).sum())


class Model(torch.nn.Module):
    """As many layers on each GPU."""

    def __init__(self, gpus):
        super().__init__()
        self.gpus = gpus
        self.parts = torch.nn.ModuleList()
        for gpu in gpus:
            layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
                      for _ in range(LAYERS // len(gpus))]
            self.parts.append(torch.nn.Sequential(*layers).to(gpu))

    def forward(self, data):
        for gpu, part in zip(self.gpus, self.parts):
            data = part(data.to(gpu))
        return data


def told_to_end():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main():
    options = parse()
    most = options.steps
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    gpus = ("cuda:0", "cuda:1") if options.both else ("cuda:0",)
    model = Model(gpus)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ballast = [torch.randint(0, 255, (PIECE,), dtype=torch.uint8, device=gpus[at % len(gpus)])
               for at in range((options.gib << 30) // PIECE)]
    data = torch.randn(BATCH, WIDTH, device=gpus[0])
    digest, gaps, steps = hashlib.sha256(), [], 0
    print(json.dumps({"ready": True}), flush=True)
    last = time.monotonic()
    while steps != most and (most is not None or not told_to_end()):
        for piece in ballast[steps % PARTS::PARTS] if options.changing else ():
            piece.add_(1)
        optimizer.zero_grad()
        said = model(data)
        loss = (said - data.to(said.device)).square().mean()
        loss.backward()
        optimizer.step()
        digest.update(loss.item().hex().encode())
        steps += 1
        now = time.monotonic()
        if now - last > GAP:
            gaps.append(now - last)
        last = now
    for piece in ballast:
        digest.update(repr(digest_of(piece)).encode())
    print(json.dumps({"steps": steps, "digest": digest.hexdigest(), "gaps": gaps}), flush=True)


if __name__ == "__main__":
    main()
