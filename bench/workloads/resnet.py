#!/usr/bin/env python3
"""ResNet-50 on random images, weights random: `--mode train` (SGD, bf16 autocast),
`--mode eager` (inference, one launch per kernel: bound by the CPU at small batches) or
`--mode graph` (inference by CUDA-graph replay: one launch per request, about 1.2 ms at batch 4).
"""

import torch
import torch.nn.functional as F
from torch import nn

import harness
from torch_work import Torch


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.one = convolution(inputs, width, 1)
        self.two = convolution(width, width, 3, stride)
        self.three = convolution(width, outputs, 1)
        self.shortcut = (nn.Identity() if inputs == outputs and stride == 1
                         else convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        y = F.relu(self.one(x), inplace=True)
        y = F.relu(self.two(y), inplace=True)
        return F.relu(self.three(y) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = convolution(3, 64, 7, 2)
        layers, inputs = [], 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, width, stride))
                inputs = 4 * width
        self.layers = nn.Sequential(*layers)
        self.classify = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x), inplace=True), 3, 2, 1)
        return self.classify(self.layers(x).mean((2, 3)))


class ResNet(Torch):
    unit = "images"

    def __init__(self, options):
        super().__init__(options)
        self.options = options
        self.units_per_step = options.batch

    def build(self):
        torch.manual_seed(0)
        self.model = ResNet50().to(self.device)
        size = self.options.size
        self.images = torch.randn(self.options.batch, 3, size, size, device=self.device)
        self.labels = torch.randint(0, 1000, (self.options.batch,), device=self.device)
        self.make_events()

    def prepare(self):
        self.build()
        for _ in range(self.options.warm):
            self.enqueue()
        self.synchronize()


class Training(ResNet):
    name = "resnet50-train"

    def build(self):
        super().build()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def enqueue(self):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Eager(ResNet):
    name = "resnet50-eager"
    ahead = 4

    def build(self):
        super().build()
        self.model.eval()

    @torch.no_grad()
    def enqueue(self):
        self.logits = self.model(self.images)


class Graph(ResNet):
    """Captured once, replayed for each request."""

    name = "resnet50-graph"
    ahead = 4

    def prepare(self):
        self.build()
        self.model.eval()
        with torch.no_grad():
            if not self.on_gpu:
                self.replay = lambda: self.model(self.images)
                return
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(self.options.warm):
                    self.model(self.images)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = self.model(self.images)
            self.replay = self.graph.replay
        for _ in range(self.options.warm):
            self.enqueue()
        self.synchronize()

    def enqueue(self):
        self.replay()


MODES = {"train": Training, "eager": Eager, "graph": Graph}


def arguments(parser):
    parser.add_argument("--mode", choices=sorted(MODES), default="train")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--warm", type=int, default=10)


if __name__ == "__main__":
    harness.main(lambda o: MODES[o.mode](o), arguments)
