#!/usr/bin/env python3
"""Training of ResNet-50 whose input is CPU-heavy: each step decodes its JPEG images, then trains.

Nothing is fetched ahead, so a step has a CPU phase and a GPU phase, as SwitchFlow's jobs have. With
`--lock FILE` a whole step runs under that lock: what sharing by whole iterations costs.
"""

import fcntl
import io
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
from PIL import Image

import harness
from networks import Training

SOURCE = 500  # pixels each way of a stored image


def stored_images(count):
    """JPEG files in memory: noise at a coarse grain, so that they decode as photographs do."""
    rng = numpy.random.default_rng(random.Random(7).randrange(1 << 30))
    files = []
    for _ in range(count):
        grain = rng.integers(0, 256, (SOURCE // 10, SOURCE // 10, 3), dtype=numpy.uint8)
        image = Image.fromarray(grain).resize((SOURCE, SOURCE), Image.BICUBIC)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


class JpegTraining(Training):
    ahead = 0

    def build(self):
        super().build()
        self.name = "jpeg-train"
        self.pool = ThreadPoolExecutor(self.options.decoders)
        self.files = stored_images(32)
        self.lock = open(self.options.lock, "w") if self.options.lock else None
        self.phases = {"cpu": [], "gpu": []}

    def decode(self, index):
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        size = self.options.size
        return numpy.asarray(image.resize((size, size)), dtype=numpy.float32) / 255

    def whole_step(self):
        begun = time.monotonic()
        images = numpy.stack(list(self.pool.map(self.decode, range(self.options.batch))))
        batch = torch.from_numpy(images).permute(0, 3, 1, 2)
        decoded = time.monotonic()
        self.inputs = batch.to(self.device)
        super().enqueue()
        self.synchronize()
        self.phases["cpu"].append(decoded - begun)
        self.phases["gpu"].append(time.monotonic() - decoded)

    def enqueue(self):
        if self.lock is None:
            self.whole_step()
            return
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            self.whole_step()
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    def info(self):
        medians = {f"{phase}_ms": 1e3 * statistics.median(values[-20:])
                   for phase, values in self.phases.items() if values}
        return {**super().info(), **medians}


def arguments(parser):
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--decoders", type=int, default=6, help="threads that decode")
    parser.add_argument("--lock", default="", help="a file to lock around each step")


if __name__ == "__main__":
    harness.main(JpegTraining, arguments)
