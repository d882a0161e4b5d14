#!/usr/bin/env python3
"""Short kernels by the driver API: a step or request is `--kernels` of `--microseconds` each."""

import ctypes

import harness
from driver_work import DriverWork


class Loop(DriverWork):
    name = "loop"

    def __init__(self, options):
        self.options = options

    def prepare(self):
        driver = self.open()
        (self.busy,) = driver.kernels("busy")
        self.length = ctypes.c_uint32(self.options.microseconds)
        self.request()

    def step(self):
        for _ in range(self.options.kernels):
            self.driver.launch(self.busy, self.stream, self.length)
        return self.ticket()


def arguments(parser):
    parser.add_argument("--microseconds", type=int, default=100, help="of a kernel, about")
    parser.add_argument("--kernels", type=int, default=10)


if __name__ == "__main__":
    harness.main(Loop, arguments)
