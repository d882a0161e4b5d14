#!/usr/bin/env python3
"""What cold caches cost a short request: MobileNetV2 at batch 1 by graph replay, alone on the GPU.
Three sorts take turns: as it is, with 256 MiB written before each request, and with all weights
read once more after that. Prints milliseconds.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import torch  # noqa: E402

import networks  # noqa: E402
from harness import percentile  # noqa: E402

REQUESTS = 200
DIRT_BYTES = 256 << 20  # several times the L2 cache


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu: to try the program, no figures")
    device = parser.parse_args().device
    work = networks.Graph(argparse.Namespace(device=device, model="mobilenetv2", batch=1,
                                             size=224, warm=10))
    work.prepare()
    dirt = torch.empty(DIRT_BYTES, dtype=torch.uint8, device=device)
    weights = [weight.data for weight in work.model.parameters()]
    torch._foreach_norm(weights)
    for kind in ("warm", "cold", "weights read") * 2:
        latencies = []
        for index in range(REQUESTS):
            if kind != "warm":
                dirt.fill_(index % 256)
            if kind == "weights read":
                torch._foreach_norm(weights)
            work.synchronize()
            time.sleep(0.004)
            begun = time.perf_counter()
            work.request()
            latencies.append((time.perf_counter() - begun) * 1e3)
        print(f"{kind}: p50 {percentile(latencies, 0.5):.3f}, "
              f"p95 {percentile(latencies, 0.95):.3f}", flush=True)


if __name__ == "__main__":
    main()
