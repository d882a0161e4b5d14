#!/usr/bin/env python3
"""A small GPT training in the framework's deterministic mode; prints one line with all losses.

    paused_training.py STEPS

While it runs, somebody may pause and resume it: the losses must not tell.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import torch  # noqa: E402

from gpt import Gpt, train_step  # noqa: E402


def main():
    steps = int(sys.argv[1])
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = Gpt(6, 512, 8, 8192, 512).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 8192, (4, 513), device="cuda")
    losses = []
    print(json.dumps({"ready": True}), flush=True)
    begun = time.monotonic()
    for _ in range(steps):
        losses.append(train_step(model, optimizer, tokens))
    values = torch.stack(losses).cpu().numpy().tobytes()
    print(json.dumps({"losses": hashlib.sha256(values).hexdigest(), "last": float(losses[-1]),
                      "seconds": time.monotonic() - begun}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
