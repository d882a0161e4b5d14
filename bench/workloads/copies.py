#!/usr/bin/env python3
"""Uploads from pinned memory: `--mode upload` (one copy and its wait per request) or
`--mode saturate` (32 MiB pieces, several in the queue: PCIe is never idle).
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
        self.units_per_step = self.size
        self.saturate = options.mode == "saturate"
        self.name = f"copies-{options.mode}"
        self.ahead = 4 if self.saturate else 0

    def prepare(self):
        driver = self.open()
        self.target = driver.device_memory(self.size)
        self.source = driver.pinned_memory(self.size)
        self.bytes = SIZE(self.size)
        # Called directly in the timed path: a helper in between would be measured too.
        self.copy = driver.lib.cuMemcpyHtoDAsync_v2
        self.finish = driver.lib.cuStreamSynchronize
        for _ in range(50):
            self.request()

    def step(self):
        self.driver.check("cuMemcpyHtoDAsync_v2", self.target, self.source, self.bytes, self.stream)
        if not self.saturate:
            return None
        return self.ticket()

    def wait(self, ticket):
        if ticket is None:
            self.finish(self.stream)
        else:
            super().wait(ticket)

    def request(self):
        if self.copy(self.target, self.source, self.bytes, self.stream) or self.finish(self.stream):
            raise RuntimeError("an upload failed")

    def gpu_time_ms(self, count):
        driver = self.driver
        begin, end = driver.event(timing=True), driver.event(timing=True)
        times, value = [], ctypes.c_float()
        for _ in range(count):
            driver.check("cuEventRecord", begin, self.stream)
            driver.check("cuMemcpyHtoDAsync_v2", self.target, self.source, self.bytes, self.stream)
            driver.check("cuEventRecord", end, self.stream)
            driver.check("cuEventSynchronize", end)
            driver.check("cuEventElapsedTime", ctypes.byref(value), begin, end)
            times.append(value.value)
        return statistics.median(times)


def arguments(parser):
    parser.add_argument("--mode", choices=["upload", "saturate"], default="upload")
    parser.add_argument("--bytes", type=int, default=64 << 10)


if __name__ == "__main__":
    harness.main(Copies, arguments)
