#!/usr/bin/env python3
"""Short kernels by the driver API: a step or request is `--kernels` of `--microseconds` each."""

import ctypes

import harness
from driver_api import Driver


class Loop(harness.Workload):
    name = "loop"

    def __init__(self, options):
        self.options = options
        self.next_event = 0

    def prepare(self):
        driver = self.driver = Driver()
        (self.busy,) = driver.kernels("busy")
        self.stream = driver.stream()
        self.events = [driver.event() for _ in range(self.ahead + 2)]
        self.length = ctypes.c_uint32(self.options.microseconds)
        self.request()

    def step(self):
        for _ in range(self.options.kernels):
            self.driver.launch(self.busy, self.stream, self.length)
        event = self.events[self.next_event]
        self.next_event = (self.next_event + 1) % len(self.events)
        self.driver.check("cuEventRecord", event, self.stream)
        return event

    def wait(self, ticket):
        self.driver.check("cuEventSynchronize", ticket)

    def synchronize(self):
        self.driver.check("cuStreamSynchronize", self.stream)


def arguments(parser):
    parser.add_argument("--microseconds", type=int, default=100, help="of a kernel, about")
    parser.add_argument("--kernels", type=int, default=10)


if __name__ == "__main__":
    harness.main(Loop, arguments)
