#!/usr/bin/env python3
"""Words that grow by one with each step, by the driver API: each step waits, and checks all of them.

{"do": "results"} tells how many steps were checked, and how many had a wrong word. {"do": "fault"}
writes to an address without memory. That ends the context of this process, and in an island the
contexts of all members.
"""

import ctypes

import harness
from driver_work import DriverWork

NOWHERE = 16  # an address on the page that no allocation is on


class Words(DriverWork):
    name = "words"
    ahead = 0  # each step has ended before the next one begins

    def __init__(self, options):
        self.options = options
        self.count = options.kib * 256
        self.grown = self.checked = self.wrong = 0

    def prepare(self):
        driver = self.open()
        self.busy, self.add, self.fill = driver.kernels("busy", "add_words", "fill")
        self.memory = driver.device_memory(4 * self.count)
        self.host = (ctypes.c_uint32 * self.count)()
        self.write(self.fill, 0)
        self.wait(self.step())

    def write(self, kernel, word, address=None, count=None):
        self.driver.launch(kernel, self.stream, address or self.memory, ctypes.c_uint32(word),
                           ctypes.c_uint64(count or self.count), blocks=64, threads=256)

    def step(self):
        self.driver.launch(self.busy, self.stream, ctypes.c_uint32(self.options.microseconds))
        self.write(self.add, 1)
        self.grown += 1
        return self.ticket()

    def wait(self, ticket):
        super().wait(ticket)
        self.driver.check("cuMemcpyDtoH_v2", self.host, self.memory,
                          ctypes.c_size_t(4 * self.count))
        self.checked += 1
        self.wrong += bytes(self.host) != self.grown.to_bytes(4, "little") * self.count

    def do(self, what):
        if what == "results":
            return {"checked": self.checked, "wrong": self.wrong}
        if what == "fault":
            self.write(self.fill, 1, ctypes.c_uint64(NOWHERE), 1)
            self.synchronize()
        return super().do(what)


def arguments(parser):
    parser.add_argument("--microseconds", type=int, default=500, help="of a kernel, about")
    parser.add_argument("--kib", type=int, default=64)


if __name__ == "__main__":
    harness.main(Words, arguments)
