#!/usr/bin/env python3
"""A PyTorch process of 8 GiB that replays a CUDA graph without end, and knows what its memory holds.

A line of input asks. The answer has the moments at which a step ended 50 ms or more after the last
one. It also says whether all values are as they were.
"""

import json
import sys
import threading
import time

import torch

GIB = 1 << 30
GAP = 0.05


class Steady:
    def __init__(self, gib=8):
        torch.manual_seed(0)
        self.tensors = [torch.randn(GIB // 4, device="cuda") for _ in range(gib)]
        self.weights = torch.randn(2048, 2048, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.result = self.weights @ self.weights
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.weights @ self.weights + 1
        self.graph.replay()
        self.before = self.sums()
        self.steps, self.late = 0, []

    def sums(self):
        return [each.double().sum().item() for each in (*self.tensors, self.result)]

    def work(self):
        last = time.monotonic()
        while True:
            self.graph.replay()
            torch.cuda.synchronize()
            now = time.monotonic()
            if now - last > GAP:
                self.late.append(now)
            last = now
            self.steps += 1
            time.sleep(0.002)


def main():
    work = Steady()
    threading.Thread(target=work.work, daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"equal": work.sums() == work.before, "steps": work.steps,
                          "late": work.late}), flush=True)


if __name__ == "__main__":
    main()
