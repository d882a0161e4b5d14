#!/usr/bin/env python3
"""A network on random inputs (`--model`, ResNet-50 by itself).

* `--mode train`: SGD, bf16 autocast.
* `--mode eager`: inference, one launch per kernel, bound by the CPU at small batches.
* `--mode graph`: inference by CUDA-graph replay, one launch per request; ResNet-50 at batch 4 takes
  about 1.2 ms.
"""

import hashlib

import torch
import torch.nn.functional as F

import harness
import models
from torch_work import Torch


class Network(Torch):
    unit = "inputs"
    mode = ""

    def __init__(self, options):
        super().__init__(options)
        self.name = f"{options.model}-{self.mode}"
        self.units_per_step = options.batch

    def build(self):
        torch.manual_seed(0)
        model, shape = models.build(self.options.model, self.options.size)
        self.model = model.to(self.device)
        self.inputs = models.inputs(self.options.model, self.options.batch, shape, self.device)
        self.labels = torch.randint(0, 1000, (self.options.batch,), device=self.device)
        self.make_events()

    def info(self):
        return {**super().info(), "made_of": getattr(self.model, "made_of", "")}

    def prepare(self):
        self.build()
        self.warm_up()


class Training(Network):
    mode = "train"

    def build(self):
        super().build()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def do(self, what):
        """`digest`: of every bit of the model's and the optimizer's state."""
        if what != "digest":
            return super().do(what)
        state = [*self.model.state_dict().values()]
        for kept in self.optimizer.state.values():
            state += [value for value in kept.values() if torch.is_tensor(value)]
        digest = hashlib.sha256()
        for tensor in state:
            digest.update(tensor.detach().cpu().numpy().tobytes())
        return {"digest": digest.hexdigest(),
                "bytes": sum(tensor.numel() * tensor.element_size() for tensor in state)}

    def enqueue(self):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Eager(Network):
    mode = "eager"
    ahead = 4

    def build(self):
        super().build()
        self.model.eval()

    @torch.no_grad()
    def enqueue(self):
        self.logits = self.model(self.inputs)


class Graph(Network):
    """Captured once, replayed for each request."""

    mode = "graph"
    ahead = 4

    def prepare(self):
        self.build()
        self.model.eval()
        with torch.no_grad():
            if not self.on_gpu:
                self.replay = lambda: self.model(self.inputs)
                return
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(self.options.warm):
                    self.model(self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = self.model(self.inputs)
            self.replay = self.graph.replay
        self.warm_up()

    def enqueue(self):
        self.replay()


MODES = {"train": Training, "eager": Eager, "graph": Graph}


def arguments(parser):
    parser.add_argument("--model", choices=sorted(models.MODELS), default="resnet50")
    parser.add_argument("--mode", choices=sorted(MODES), default="train")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--warm", type=int, default=10)


if __name__ == "__main__":
    harness.main(lambda o: MODES[o.mode](o), arguments)
