#!/usr/bin/env python3
"""Copies. `--mode upload`: from pinned memory, one copy and its wait per request. `--mode
saturate`: likewise, several steps in the queue, so with 32 MiB each PCIe is never idle. `--mode
inside`: between two buffers on the GPU, several steps in the queue.
"""

import ctypes
import statistics

import harness
from driver_api import SIZE
from driver_work import DriverWork


class Copies(DriverWork):
    unit = "bytes"

    def __init__(self, options):
        self.options = options
        self.size = options.bytes
        self.pieces = options.pieces
        self.units_per_step = self.size * self.pieces
        self.queued = options.mode != "upload"
        self.name = f"copies-{options.mode}"
        self.ahead = 4 if self.queued else 0

    def prepare(self):
        driver = self.open()
        self.target = driver.device_memory(self.size)
        inside = self.options.mode == "inside"
        self.source = driver.device_memory(self.size) if inside else driver.pinned_memory(self.size)
        self.bytes = SIZE(self.size)
        # Called directly in the timed path: a helper in between would be measured too.
        self.call = "cuMemcpyDtoDAsync_v2" if inside else "cuMemcpyHtoDAsync_v2"
        self.copy = getattr(driver.lib, self.call)
        self.finish = driver.lib.cuStreamSynchronize
        for _ in range(50):
            self.request()

    def step(self):
        for _ in range(self.pieces):
            self.driver.check(self.call, self.target, self.source, self.bytes, self.stream)
        return self.ticket() if self.queued else None

    def wait(self, ticket):
        if ticket is None:
            self.finish(self.stream)
        else:
            super().wait(ticket)

    def request(self):
        if self.copy(self.target, self.source, self.bytes, self.stream) or self.finish(self.stream):
            raise RuntimeError("a copy failed")

    def gpu_time_ms(self, count):
        driver = self.driver
        begin, end = driver.event(timing=True), driver.event(timing=True)
        times, value = [], ctypes.c_float()
        for _ in range(count):
            driver.check("cuEventRecord", begin, self.stream)
            driver.check(self.call, self.target, self.source, self.bytes, self.stream)
            driver.check("cuEventRecord", end, self.stream)
            driver.check("cuEventSynchronize", end)
            driver.check("cuEventElapsedTime", ctypes.byref(value), begin, end)
            times.append(value.value)
        return statistics.median(times)


def arguments(parser):
    parser.add_argument("--mode", choices=["upload", "saturate", "inside"], default="upload")
    parser.add_argument("--bytes", type=int, default=64 << 10)
    parser.add_argument("--pieces", type=int, default=1, help="of so many bytes, in a step")


if __name__ == "__main__":
    harness.main(Copies, arguments)
