"""torch.compile: Inductor writes Triton kernels in subprocesses, then a training runs on them."""

import torch
import torch.nn.functional as F
from torch import nn

from result import say
from torch_setup import deterministic, model_digest


def main():
    deterministic()
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512),
                          nn.Linear(512, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(512, 256, device="cuda")
    y = torch.randn(512, 64, device="cuda")

    @torch.compile
    def loss_of(x, y):
        return F.mse_loss(model(x), y)

    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say({"losses": losses, "weights": model_digest(model)})


if __name__ == "__main__":
    main()
