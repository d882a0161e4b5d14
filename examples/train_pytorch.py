#!/usr/bin/env python3
"""A small PyTorch training that knows nothing of Switchyard.

    build/switchyard run --name train --priority low --memory 8GiB -- python3 examples/train_pytorch.py

--seconds N ends it (20). It says its rate once a second.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_pytorch.py: PyTorch sees no GPU")
    free, total = torch.cuda.mem_get_info()
    print(f"this job sees {total >> 20} MiB of device memory, {free >> 20} MiB free", flush=True)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, wanted = torch.randn(2, 32, 256, 512, device="cuda")

    def one():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    steps.repeat(one, options.seconds)


if __name__ == "__main__":
    main()
