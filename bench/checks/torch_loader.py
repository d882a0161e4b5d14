"""PyTorch training fed by DataLoader workers: `torch_loader.py fork` or `torch_loader.py spawn`.

The parent has used CUDA before the workers are made, which is how most training scripts run.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from result import say
from torch_setup import deterministic, model_digest


class Images(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def main(method):
    deterministic()
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
                          nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Images(), batch_size=32, num_workers=2, pin_memory=True,
                        multiprocessing_context=method)
    losses = []
    for _ in range(2):
        for images, labels in loader:
            loss = F.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    say({"losses": losses, "weights": model_digest(model)}, torch=torch.__version__)


if __name__ == "__main__":
    main(sys.argv[1])
