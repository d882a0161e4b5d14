#!/usr/bin/env python3
"""The GPT training of the other rows in the framework's deterministic mode, for two at once that
don't fit together. Prints "ready", then one line with all losses and when each step had ended.

    together_training.py STEPS BATCH
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

LENGTH, VOCABULARY = 1024, 50304


def allocator():
    """What served it, as PyTorch says: asked for is not had."""
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        return "stream-ordered pool"
    expandable = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    return "expandable segments" if expandable else "its own allocator"


def main():
    steps, batch = int(sys.argv[1]), int(sys.argv[2])
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = Gpt(24, 1024, 16, VOCABULARY, LENGTH).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (batch, LENGTH + 1), device="cuda")
    losses, stamps, ended = [], [], []
    print(json.dumps({"ready": True}), flush=True)
    for _ in range(steps):
        losses.append(train_step(model, optimizer, tokens))
        ended.append(torch.cuda.Event())
        ended[-1].record()
        if len(ended) > 2:
            ended.pop(0).synchronize()
            stamps.append(time.monotonic())
    torch.cuda.synchronize()
    stamps += [time.monotonic()] * len(ended)
    values = torch.stack(losses).cpu().numpy().tobytes()
    print(json.dumps({"losses": hashlib.sha256(values).hexdigest(), "last": float(losses[-1]),
                      "reserved_bytes": torch.cuda.max_memory_reserved(), "stamps": stamps,
                      "allocator": allocator()}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
