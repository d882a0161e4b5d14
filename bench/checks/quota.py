"""Takes device memory in one way until it is refused, says what was seen, and holds it until told.

    quota.py KIND

KIND is cudaMalloc, cudaMallocAsync, vmm, torch, torch-expandable, jax, jax-pool or cupy, or what no
plain allocation names: contexts, local, heap or managed-pool. `outlived SOCKET` has memory of
another process, `maker SOCKET`, which exports it there and ends.

It speaks lines of JSON. It says {"ready": ...} before anything is taken. For the line "fill" it
answers when memory was refused, and any other line ends it. bench/run.py quota reads NVML and
`switchyard ps` meanwhile.
"""

import ctypes
import glob
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "workloads"))

CHUNK = 32 << 20
MOST = 1 << 14  # chunks: a quota that doesn't bite must not fill the card and hang the check


class Refused(Exception):
    """The allocation that failed: its error is the cause."""


def refused(code):
    if code != 0:
        raise Refused("CUDA_ERROR_OUT_OF_MEMORY" if code == 2 else f"CUresult {code}")


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
        handle = ctypes.c_uint64()
        length = ctypes.c_size_t(size)
        code = self.driver.call("cuMemCreate", ctypes.byref(handle), length,
                                ctypes.byref(self.properties), ctypes.c_uint64(0))
        refused(code)
        return self.map(handle, length)

    def map(self, handle, length):
        address = ctypes.c_uint64()
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


class Contexts:
    """First threads make a context, allocate, and end it without a free; then contexts are made."""

    expected = "CUDA_ERROR_OUT_OF_MEMORY"

    def __init__(self):
        from driver_api import Driver
        self.driver = Driver()
        threads = [threading.Thread(target=self.churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def churn(self):
        for _ in range(3):
            context, address = ctypes.c_void_p(), ctypes.c_uint64()
            if self.driver.call("cuCtxCreate_v2", ctypes.byref(context), 0,
                                self.driver.device) != 0:
                continue
            self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(128 << 20))
            self.driver.check("cuCtxDestroy_v2", context)

    def info(self):
        return self.driver.memory_info()

    def take(self, _size):
        context = ctypes.c_void_p()
        refused(self.driver.call("cuCtxCreate_v2", ctypes.byref(context), 0, self.driver.device))
        self.driver.check("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        return context


class Local:
    """Kernels, each with more local memory for a thread than the one before."""

    expected = "CUDA_ERROR_OUT_OF_MEMORY"
    PTX = (".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n"
           ".local .align 16 .b8 depot[{bytes}];\n.reg .b64 %d<5>; .reg .b32 %r<3>;\n"
           "mov.u64 %d1,depot; ld.param.u64 %d2,[out]; cvt.u32.u64 %r1,%d2; and.b32 %r1,%r1,1020;\n"
           "cvt.u64.u32 %d3,%r1; add.u64 %d4,%d1,%d3; st.local.u32 [%d4],%r1;\n"
           "ld.local.u32 %r2,[%d4]; st.global.u32 [%d2],%r2;\nret;\n}}\n")

    def __init__(self):
        from driver_api import Driver
        self.driver = Driver()
        counts = []
        for which in (16, 39):  # MULTIPROCESSOR_COUNT, MAX_THREADS_PER_MULTIPROCESSOR
            value = ctypes.c_int()
            self.driver.check("cuDeviceGetAttribute", ctypes.byref(value), which,
                              self.driver.device)
            counts.append(value.value)
        self.threads = counts[0] * counts[1]
        self.bytes = 1024
        self.out = self.driver.device_memory(4096)

    def info(self):
        return self.driver.memory_info()

    def take(self, size):
        wanted = self.bytes + max(size // self.threads // 16 * 16, 16)
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        image = self.PTX.format(bytes=wanted).encode() + b"\0"
        refused(self.driver.call("cuModuleLoadData", ctypes.byref(module), image))
        self.driver.check("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
        pointer = ctypes.cast(ctypes.byref(self.out), ctypes.c_void_p)
        refused(self.driver.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, None,
                                 (ctypes.c_void_p * 1)(pointer), None))
        self.driver.check("cuCtxSynchronize")
        self.bytes = wanted
        return module


class Heap:
    """The heap of malloc() on the device."""

    expected = "CUDA_ERROR_OUT_OF_MEMORY"
    LIMIT = 2  # CU_LIMIT_MALLOC_HEAP_SIZE

    def __init__(self):
        from driver_api import Driver
        self.driver = Driver()

    def info(self):
        return self.driver.memory_info()

    def take(self, size):
        now = ctypes.c_size_t()
        self.driver.check("cuCtxGetLimit", ctypes.byref(now), self.LIMIT)
        refused(self.driver.call("cuCtxSetLimit", self.LIMIT, ctypes.c_size_t(now.value + size)))
        return size


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps"""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("windows", ctypes.c_void_p), ("most", ctypes.c_size_t),
                ("rest", ctypes.c_ubyte * 56)]


class ManagedPool:
    """A pool of managed memory without a place; every piece is brought to the GPU."""

    expected = "CUDA_ERROR_OUT_OF_MEMORY"

    def __init__(self):
        from driver_api import Driver
        self.driver = Driver()
        self.pool = ctypes.c_void_p()
        self.driver.check("cuMemPoolCreate", ctypes.byref(self.pool),
                          ctypes.byref(PoolProperties(type=2)))

    def info(self):
        return self.driver.memory_info()

    def take(self, size):
        address = ctypes.c_uint64()
        refused(self.driver.call("cuMemAllocFromPoolAsync", ctypes.byref(address),
                                 ctypes.c_size_t(size), self.pool, None))
        self.driver.check("cuMemsetD8_v2", address, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        self.driver.check("cuCtxSynchronize")
        return address


OUTLIVED = 1 << 30


class Outlived(Vmm):
    """Memory of another job's process that has ended, and then memory of its own."""

    def __init__(self):
        super().__init__()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(sys.argv[2])
            listener.listen(1)
            with listener.accept()[0] as maker:
                _, descriptors, _, _ = socket.recv_fds(maker, 1, 1)
                handle = ctypes.c_uint64()
                self.driver.check("cuMemImportFromShareableHandle", ctypes.byref(handle),
                                  ctypes.c_void_p(descriptors[0]), 1)
                os.close(descriptors[0])
                self.outlived = self.map(handle, ctypes.c_size_t(OUTLIVED))
                maker.sendall(b"x")
        time.sleep(2.5)  # its maker has ended, and the monitor has seen that

    def more(self):
        return {"outlived_bytes": OUTLIVED}


def make_for(path):
    way = Vmm()
    way.properties.handles = 1
    handle, descriptor = ctypes.c_uint64(), ctypes.c_int()
    way.driver.check("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(OUTLIVED),
                     ctypes.byref(way.properties), ctypes.c_uint64(0))
    way.driver.check("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, 1,
                     ctypes.c_uint64(0))
    end = time.monotonic() + 20
    with socket.socket(socket.AF_UNIX) as other:
        while True:
            try:
                other.connect(path)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        socket.send_fds(other, [b"x"], [descriptor.value])
        other.recv(1)


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
    "contexts": Contexts,
    "local": Local,
    "heap": Heap,
    "managed-pool": ManagedPool,
    "outlived": Outlived,
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
    if sys.argv[1] == "maker":
        make_for(sys.argv[2])
        return
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
