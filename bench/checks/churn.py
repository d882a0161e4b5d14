"""1,000 random allocations and frees, then nothing is held: `churn.py driver` or `churn.py torch`.

driver mixes cuMemAlloc, Pitch, Async, arrays and VMM. It says {"ready"} with only the context made,
and for the line "churn" answers when everything was freed and the pools were trimmed.
"""

import ctypes
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workloads"))

ROUNDS = 1000
HELD = 40  # at most at once


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR"""
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
                ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


class DriverCalls:
    def __init__(self):
        from quota import Vmm
        self.vmm = Vmm()
        self.driver = self.vmm.driver
        self.stream = self.driver.stream()
        self.takers = [self.plain, self.pitch, self.ordered, self.array, self.virtual]

    def take(self, rng):
        return rng.choice(self.takers)(rng.randrange(1, 16 << 20))

    def plain(self, size):
        address = self.driver.device_memory(size)
        return lambda: self.driver.check("cuMemFree_v2", address)

    def pitch(self, size):
        address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        self.driver.check("cuMemAllocPitch_v2", ctypes.byref(address), ctypes.byref(pitch),
                          ctypes.c_size_t(1000), ctypes.c_size_t(1 + size // 1000),
                          ctypes.c_uint(4))
        return lambda: self.driver.check("cuMemFree_v2", address)

    def ordered(self, size):
        address = ctypes.c_uint64()
        self.driver.check("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(size),
                          self.stream)
        return lambda: self.driver.check("cuMemFreeAsync", address, self.stream)

    def array(self, size):
        handle = ctypes.c_void_p()
        descriptor = ArrayDescriptor(1024, 1 + size // 4096, 0x20, 1)  # 32-bit float
        self.driver.check("cuArrayCreate_v2", ctypes.byref(handle), ctypes.byref(descriptor))
        return lambda: self.driver.check("cuArrayDestroy", handle)

    def virtual(self, size):
        taken = self.vmm.take(-(-size // (2 << 20)) * (2 << 20))
        return lambda: self.vmm.drop(taken)

    def finish(self):
        self.driver.check("cuCtxSynchronize")
        pool = ctypes.c_void_p()
        self.driver.check("cuDeviceGetDefaultMemPool", ctypes.byref(pool), self.driver.device)
        self.driver.check("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))

    def info(self):
        return self.driver.memory_info()


class TorchCalls:
    def __init__(self):
        import torch
        self.torch = torch
        torch.cuda.init()
        torch.cuda.synchronize()

    def take(self, rng):
        held = [self.torch.empty(rng.randrange(1, 16 << 20), dtype=self.torch.uint8,
                                 device="cuda")]
        return held.clear

    def finish(self):
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def info(self):
        return self.torch.cuda.mem_get_info()


def churn(calls):
    rng = random.Random(5)
    held = []
    for _ in range(ROUNDS):
        if len(held) == HELD or (held and rng.random() < 0.5):
            held.pop(rng.randrange(len(held)))()
        else:
            held.append(calls.take(rng))
    for drop in held:
        drop()
    calls.finish()


def main():
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    calls = {"driver": DriverCalls, "torch": TorchCalls}[sys.argv[1]]()
    out.write(json.dumps({"ready": True, "pid": os.getpid(), "info": calls.info()}) + "\n")
    for line in sys.stdin:
        if "churn" not in line:
            break
        churn(calls)
        out.write(json.dumps({"done": True, "info": calls.info()}) + "\n")
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
