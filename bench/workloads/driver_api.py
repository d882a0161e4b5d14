"""The few driver API calls that the copy workload and the quota checks need, by ctypes.

No framework stands between these calls and the driver, so a 24 us copy can be timed. They run on
the simulated GPU as well.

Threading: plain calls; every thread needs the context to be current.
"""

import ctypes
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent.parent / "examples" / "kernels" / "kernels.ptx"
SIZE = ctypes.c_size_t
POINTER = ctypes.c_uint64
HANDLE = ctypes.c_void_p


class CudaError(RuntimeError):
    def __init__(self, call, code, text):
        super().__init__(f"{call} returned {code} ({text})")
        self.code = code


class Driver:
    OUT_OF_MEMORY = 2

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        self.device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self.device), 0)
        self.context = HANDLE()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.check("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def check(self, name, *arguments):
        code = self.call(name, *arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"no text").decode())

    def stream(self):
        handle = HANDLE()
        self.check("cuStreamCreate", ctypes.byref(handle), 1)  # CU_STREAM_NON_BLOCKING
        return handle

    def event(self, timing=False):
        handle = HANDLE()
        self.check("cuEventCreate", ctypes.byref(handle), 0 if timing else 2)
        return handle

    def kernels(self, *names):
        """Handles of the kernels of examples/kernels, in the order of their names."""
        module = HANDLE()
        self.check("cuModuleLoadData", ctypes.byref(module), KERNELS.read_bytes() + b"\0")
        handles = [HANDLE() for _ in names]
        for name, handle in zip(names, handles):
            self.check("cuModuleGetFunction", ctypes.byref(handle), module, name.encode())
        return handles

    def launch(self, kernel, stream, *arguments, blocks=1, threads=32):
        """Each argument is a ctypes value."""
        pointers = (ctypes.c_void_p * len(arguments))(
            *[ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments])
        self.check("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)

    def device_memory(self, size):
        address = POINTER()
        self.check("cuMemAlloc_v2", ctypes.byref(address), SIZE(size))
        return address

    def pinned_memory(self, size):
        address = HANDLE()
        self.check("cuMemAllocHost_v2", ctypes.byref(address), SIZE(size))
        return address

    def memory_info(self):
        free, total = SIZE(), SIZE()
        self.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value
