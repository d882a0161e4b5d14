#!/usr/bin/env python3
"""Work whose kernels the profiler counts, so that the count can be held against the shim's.

Commands: {"warm": KIND} and {"count": KIND}, KIND one of eager, compile, cublaslt, graph. `count`
answers with what CUPTI saw: kernels, graph launches, copies and sets.
"""

import json
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import harness
from models import ResNet50


class Eager:
    """ResNet-50 training at batch 8: convolutions, norms, SGD; forward and backward."""

    def __init__(self):
        self.model = ResNet50().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(8, 3, 224, 224, device="cuda")
        self.labels = torch.randint(0, 1000, (8,), device="cuda")

    def step(self):
        loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Compile:
    """Triton kernels made by Inductor, forward and backward."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024),
                                   nn.Linear(1024, 512)).cuda()
        self.x = torch.randn(256, 512, device="cuda")
        self.loss = torch.compile(lambda x: self.model(x).square().mean())

    def step(self):
        self.loss(self.x).backward()
        self.model.zero_grad(set_to_none=True)


class CublasLt:
    """Matrix products with an epilogue, which PyTorch hands to cuBLASLt."""

    def __init__(self):
        self.x = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
        self.w = torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
        # Plain products too, whichever library this version prefers for them.
        torch.backends.cuda.preferred_blas_library("cublaslt")

    def step(self):
        F.linear(self.x, self.w, self.b)
        torch._addmm_activation(self.b, self.x, self.w.t(), use_gelu=True)
        self.x @ self.w.t()


class Graph:
    """One graph launch for all kernels of ResNet-50's forward pass."""

    def __init__(self):
        self.model = ResNet50().cuda().eval()
        self.images = torch.randn(4, 3, 224, 224, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                self.model(self.images)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.model(self.images)

    def step(self):
        self.graph.replay()


KINDS = {"eager": Eager, "compile": Compile, "cublaslt": CublasLt, "graph": Graph}
STEPS = 10


def profiled(work):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            work.step()
        torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        recorded.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    finally:
        os.unlink(path)
    calls, seen = {}, {"kernel": 0, "gpu_memcpy": 0, "gpu_memset": 0}
    for event in events:
        category = event.get("cat", "")
        if category in seen:
            seen[category] += 1
        if category in ("cuda_runtime", "cuda_driver"):
            calls[event["name"]] = calls.get(event["name"], 0) + 1
    return {"kernels": seen["kernel"], "memcpy": seen["gpu_memcpy"], "memset": seen["gpu_memset"],
            "graph_launches": sum(count for name, count in calls.items()
                                  if name.startswith(("cudaGraphLaunch", "cuGraphLaunch"))),
            "calls": calls, "steps": STEPS}


def main():
    protocol = harness.Protocol()
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    protocol.say(ready=True, name="coverage", pid=os.getpid(), torch=torch.__version__)
    made = {}
    while (command := protocol.next()) is not None:
        try:
            if "warm" in command:
                work = made[command["warm"]] = KINDS[command["warm"]]()
                for _ in range(3):
                    work.step()
                torch.cuda.synchronize()
                profiled(work)  # the profiler's own start belongs to no count
                protocol.say(warm=True)
            else:
                protocol.say(**profiled(made[command["count"]]))
        except Exception as error:
            protocol.say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
