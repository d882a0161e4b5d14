#!/usr/bin/env python3
"""A job that is in every kind of call while its gate is closed: full queues, waits, copies, frees.

Says {"ready"}. The answer to the line "state" is how far each thread is and how many kernels have
run. At "end" it stops, waits for everything and says whether every kernel ran exactly once.
"""

import ctypes
import json
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from driver_api import POINTER, SIZE, Driver  # noqa: E402

STREAMS = 3
AHEAD = 2000  # more than a queue takes: the launcher of each stream stands before a full one


class Held:
    def __init__(self):
        driver = self.driver = Driver()
        self.busy, self.fill = driver.kernels("busy", "fill")
        page = driver.pinned_memory(4096)
        self.words = (ctypes.c_uint32 * STREAMS).from_address(page.value)
        self.page = page.value
        self.launched = [0] * STREAMS
        self.progress = {}
        self.ended = False
        self.wrong = []

    def launcher(self, index):
        def loop():
            stream = self.driver.stream()
            while not self.ended:
                if (self.launched[index] - self.words[index]) & 0xffffffff > AHEAD:
                    yield
                    continue
                # The word counts only as long as the stream's kernels run in their order.
                self.driver.launch(self.busy, stream, ctypes.c_uint32(50))
                self.launched[index] += 1
                self.driver.launch(self.fill, stream, ctypes.c_uint64(self.page + 4 * index),
                                   ctypes.c_uint32(self.launched[index]), ctypes.c_uint64(1))
                yield
            self.driver.check("cuStreamSynchronize", stream)
            if self.words[index] != self.launched[index]:
                self.wrong.append(f"stream {index}: {self.words[index]} of "
                                  f"{self.launched[index]}")
        return loop()

    def waiter(self):
        while not self.ended:
            self.driver.check("cuCtxSynchronize")
            yield

    def copier(self):
        size = 1 << 20
        target = self.driver.device_memory(size)
        out = (ctypes.c_uint8 * size)()
        value = 0
        while not self.ended:
            value = (value + 1) % 256
            self.driver.check("cuMemsetD8_v2", target, ctypes.c_ubyte(value), SIZE(size))
            self.driver.check("cuMemcpyDtoH_v2", out, target, SIZE(size))
            if out[0] != value or out[size - 1] != value:
                self.wrong.append(f"copied {out[0]} for {value}")
            yield

    def allocator(self):
        while not self.ended:
            address = POINTER()
            self.driver.check("cuMemAlloc_v2", ctypes.byref(address), SIZE(8 << 20))
            self.driver.check("cuMemFree_v2", address)
            yield

    def thread(self, name, steps):
        def body():
            try:
                self.driver.check("cuCtxSetCurrent", self.driver.context)
                for count, _ in enumerate(steps):
                    self.progress[name] = count
            except Exception as error:  # said at the end; the others go on
                self.wrong.append(f"{name}: {error}")
        made = threading.Thread(target=body, daemon=True)
        made.start()
        return made

    def run(self):
        threads = [self.thread(f"launcher {i}", self.launcher(i)) for i in range(STREAMS)]
        threads += [self.thread("waiter", self.waiter()), self.thread("copier", self.copier()),
                    self.thread("allocator", self.allocator())]
        print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
        for line in sys.stdin:
            if "end" in line:
                break
            print(json.dumps({"kernels": sum(self.words), "threads": self.progress}), flush=True)
        self.ended = True
        for thread in threads:
            thread.join(60)
        alive = sum(thread.is_alive() for thread in threads)
        print(json.dumps({"kernels": sum(self.words), "launched": sum(self.launched),
                          "wrong": self.wrong, "stuck": alive}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    Held().run()
