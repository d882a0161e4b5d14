#!/usr/bin/env python3
"""A service in PyTorch that knows nothing of Switchyard. It answers requests at random times by
replaying a CUDA graph, and says its latency every two seconds.

    build/switchyard run --name serve --priority high -- python3 examples/serve_pytorch.py

--seconds N ends it (20), --rate N is requests a second (50).
"""

import argparse
import random
import time

import torch
from torch import nn


def make_service():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
    question = torch.randn(1, 128, 512, device="cuda", dtype=torch.half)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(question)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = model(question)

    def answer():
        graph.replay()
        torch.cuda.synchronize()
        return result

    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=50)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("serve_pytorch.py: PyTorch sees no GPU")
    answer = make_service()
    rng = random.Random(1)
    begun = said = arrival = time.perf_counter()
    latencies = []
    while arrival - begun < options.seconds:
        arrival += rng.expovariate(options.rate)
        time.sleep(max(0.0, arrival - time.perf_counter()))
        answer()
        now = time.perf_counter()
        latencies.append((now - arrival) * 1e3)
        if now - said >= 2:
            latencies.sort()
            print(f"{len(latencies)} requests: p50 {latencies[len(latencies) // 2]:.2f} ms, "
                  f"p99 {latencies[int(0.99 * len(latencies))]:.2f} ms", flush=True)
            latencies, said = [], now


if __name__ == "__main__":
    main()
