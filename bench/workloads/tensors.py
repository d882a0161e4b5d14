#!/usr/bin/env python3
"""Device memory with known contents: `--tensors` of `--bytes` each, and a light kernel over one
after the other that reads and writes every word and leaves it as it is. {"do": "check"} compares
every bit.

Each tensor is a window of one random text in the host, a page further than the one before.
"""

import ctypes
import os
import time
from concurrent.futures import ThreadPoolExecutor

import harness
from driver_api import SIZE
from driver_work import DriverWork

STEP = 4096  # between the windows of two tensors
PARTS = 8    # of a comparison, at once


class Tensors(DriverWork):
    name = "tensors"
    ahead = 4

    def __init__(self, options):
        self.count = options.tensors
        self.size = options.bytes // STEP * STEP
        self.next = 0

    def prepare(self):
        driver = self.open()
        (self.add,) = driver.kernels("add_words")
        length = self.size + self.count * STEP
        self.text = driver.pinned_memory(length)
        for begin in range(0, length, 64 << 20):
            piece = os.urandom(min(64 << 20, length - begin))
            ctypes.memmove(self.text.value + begin, piece, len(piece))
        self.back = driver.pinned_memory(self.size)
        self.compare = ctypes.CDLL(None).memcmp
        self.compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, SIZE]
        self.threads = ThreadPoolExecutor(PARTS)
        self.tensors = [driver.device_memory(self.size) for _ in range(self.count)]
        for index, tensor in enumerate(self.tensors):
            driver.check("cuMemcpyHtoDAsync_v2", tensor, ctypes.c_void_p(self.window(index)),
                         SIZE(self.size), self.stream)

    def window(self, index):
        return self.text.value + index * STEP

    def step(self):
        tensor = self.tensors[self.next]
        self.next = (self.next + 1) % self.count
        self.driver.launch(self.add, self.stream, tensor, ctypes.c_uint32(0),
                           ctypes.c_uint64(self.size // 4), blocks=1024, threads=256)
        return self.ticket()

    def equal(self, index):
        self.driver.check("cuMemcpyDtoHAsync_v2", self.back, self.tensors[index], SIZE(self.size),
                          self.stream)
        self.synchronize()
        edges = [self.size * part // PARTS for part in range(PARTS + 1)]
        return not any(self.threads.map(
            lambda begin, end: self.compare(self.back.value + begin, self.window(index) + begin,
                                            end - begin), edges, edges[1:]))

    def do(self, what):
        if what != "check":
            return super().do(what)
        begun = time.monotonic()
        wrong = [index for index in range(self.count) if not self.equal(index)]
        return {"wrong": wrong, "compared": self.count, "seconds": time.monotonic() - begun}

    def info(self):
        return {"tensor_bytes": self.size * self.count, "ahead": self.ahead}


def arguments(parser):
    parser.add_argument("--tensors", type=int, default=80)
    parser.add_argument("--bytes", type=int, default=512 << 20)


if __name__ == "__main__":
    harness.main(Tensors, arguments)
