"""Takes device memory in one way until it is refused, says what was seen, and holds it until told.

    quota.py KIND

KIND is cudaMalloc, cudaMallocAsync, vmm, torch, torch-expandable, jax, jax-pool or cupy.

It speaks lines of JSON: {"ready": ...} before anything is taken, then, for each line on stdin,
"fill" answers when memory was refused and anything else ends it. bench/run.py quota reads NVML and
`switchyard ps` meanwhile.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workloads"))

CHUNK = 32 << 20
MOST = 1 << 14  # chunks: a quota that doesn't bite must not fill the card and hang the check


class Refused(Exception):
    """The allocation that failed: its error is the cause."""


class Runtime:
    """The CUDA Runtime by ctypes, from the wheels or a toolkit."""

    def __init__(self, asynchronous):
        roots = [sysconfig.get_paths()["purelib"] + "/nvidia", "/usr/local/cuda/lib64",
                 "/usr/local/cuda/targets/x86_64-linux/lib"]
        found = [path for root in roots
                 for path in sorted(glob.glob(root + "/**/libcudart.so.1[23]*", recursive=True))]
        self.lib = ctypes.CDLL(found[0] if found else "libcudart.so")
        self.asynchronous = asynchronous
        self.lib.cudaGetErrorName.restype = ctypes.c_char_p
        self.lib.cudaFree(None)  # makes the context

    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.lib.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def take(self, size):
        address = ctypes.c_void_p()
        if self.asynchronous:
            code = self.lib.cudaMallocAsync(ctypes.byref(address), ctypes.c_size_t(size), None)
        else:
            code = self.lib.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
        if code != 0:
            raise Refused(self.lib.cudaGetErrorName(code).decode())
        return address

    expected = "cudaErrorMemoryAllocation"


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationFlags(ctypes.Structure):
    _fields_ = [("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp"""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("windows", ctypes.c_void_p), ("flags", AllocationFlags)]


class Access(ctypes.Structure):
    """CUmemAccessDesc"""
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Vmm:
    """cuMemCreate, mapped and made accessible."""

    expected = "CUDA_ERROR_OUT_OF_MEMORY"

    def __init__(self):
        from driver_api import Driver
        self.driver = Driver()
        self.properties = AllocationProperties(type=1, location=Location(1, 0))

    def info(self):
        return self.driver.memory_info()

    def take(self, size):
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        length = ctypes.c_size_t(size)
        code = self.driver.call("cuMemCreate", ctypes.byref(handle), length,
                                ctypes.byref(self.properties), ctypes.c_uint64(0))
        if code != 0:
            raise Refused("CUDA_ERROR_OUT_OF_MEMORY" if code == 2 else f"CUresult {code}")
        check = self.driver.check
        check("cuMemAddressReserve", ctypes.byref(address), length, ctypes.c_size_t(0),
              ctypes.c_uint64(0), ctypes.c_uint64(0))
        check("cuMemMap", address, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = Access(Location(1, 0), 3)
        check("cuMemSetAccess", address, length, ctypes.byref(access), ctypes.c_size_t(1))
        return address, handle, length

    def drop(self, taken):
        address, handle, length = taken
        self.driver.check("cuMemUnmap", address, length)
        self.driver.check("cuMemAddressFree", address, length)
        self.driver.check("cuMemRelease", handle)


class Torch:
    expected = "OutOfMemoryError"

    def __init__(self, expandable):
        if expandable:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        import torch
        self.torch = torch
        torch.zeros(1, device="cuda")

    def info(self):
        return self.torch.cuda.mem_get_info()

    def more(self):
        segments = self.torch.cuda.memory_snapshot()
        return {"expandable": any(segment.get("is_expandable") for segment in segments)}

    def take(self, size):
        try:
            return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        except self.torch.cuda.OutOfMemoryError as error:
            raise Refused(f"OutOfMemoryError: {error}") from error


class Jax:
    """pooled: JAX as it is, which preallocates three quarters. Else every array is an allocation
    of its own, so that the quota itself refuses."""

    expected = "RESOURCE_EXHAUSTED"

    def __init__(self, pooled):
        if not pooled:
            os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
        import jax
        import jax.numpy
        self.jax = jax
        self.device = jax.devices()[0]
        self.pooled = pooled
        for size in (CHUNK, CHUNK >> 4):  # compiled now: a full card couldn't load the kernel
            self.take(size)

    def info(self):
        from driver_api import Driver
        return Driver().memory_info()

    def take(self, size):
        try:
            return self.jax.numpy.zeros((size,), self.jax.numpy.uint8).block_until_ready()
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def more(self):
        stats = self.device.memory_stats() or {}
        return {"pool_limit_bytes": stats.get("bytes_limit") if self.pooled else None}


class Cupy:
    expected = "OutOfMemoryError"

    def __init__(self):
        import cupy
        self.cupy = cupy
        cupy.zeros(1)

    def info(self):
        return self.cupy.cuda.Device().mem_info

    def take(self, size):
        try:
            return self.cupy.empty(size, dtype=self.cupy.uint8)
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise Refused(f"OutOfMemoryError: {error}") from error


KINDS = {
    "cudaMalloc": lambda: Runtime(False),
    "cudaMallocAsync": lambda: Runtime(True),
    "vmm": Vmm,
    "torch": lambda: Torch(False),
    "torch-expandable": lambda: Torch(True),
    "jax": lambda: Jax(False),
    "jax-pool": lambda: Jax(True),
    "cupy": Cupy,
}


def nvidia_smi():
    """What nvidia-smi shows inside the job, in bytes; None where there is none."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=30, check=True)
        total, used = done.stdout.splitlines()[0].split(",")
        return {"total_bytes": int(total) << 20, "used_bytes": int(used) << 20}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"error": str(error)}


def fill(way):
    held = []
    size = CHUNK
    errors = []
    while len(held) < MOST:
        try:
            held.append(way.take(size))
        except Refused as refused:
            errors.append(str(refused)[:300])
            if size == CHUNK >> 4:
                break
            size = CHUNK >> 4  # the last bit in 2 MiB pieces
    own = bool(errors) and all(way.expected in error for error in errors)
    return held, {"pieces": len(held), "errors": errors, "expected": way.expected,
                  "own_error": own}


def main():
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    way = KINDS[sys.argv[1]]()
    free, total = way.info()
    more = way.more() if hasattr(way, "more") else {}
    out.write(json.dumps({"ready": True, "pid": os.getpid(), "free_bytes": free,
                          "total_bytes": total, "nvidia_smi": nvidia_smi(), **more}) + "\n")
    for line in sys.stdin:
        if "fill" not in line:
            break
        held, figures = fill(way)
        free, total = way.info()
        figures["held"] = len(held)
        out.write(json.dumps({**figures, "free_bytes": free, "total_bytes": total}) + "\n")
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
