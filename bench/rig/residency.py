"""Device memory as seen from outside of any job, and the pinned memory that swapping needs.

Threading: any thread; NVML is opened once.
"""

import ctypes
import functools
import threading
import time

from rig.rig import RigError


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


@functools.cache
def nvml():
    """(the library, the first GPU)"""
    library, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        raise RigError("NVML has no first GPU")
    return library, device


def used_bytes():
    library, device = nvml()
    memory = NvmlMemory()
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
        raise RigError("NVML does not say how much memory is used")
    return memory.used


class FreedWatch:
    """Notes the moment when NVML first shows `size` bytes less in use than at the start, but for a
    hundredth: the driver takes a little for itself at the first move."""

    def __init__(self, size):
        self.limit = used_bytes() - size * 99 // 100
        self.freed_at = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended.is_set() and self.freed_at is None:
            if used_bytes() <= self.limit:
                self.freed_at = time.monotonic()
            self.ended.wait(0.001)

    def moment(self, timeout):
        """When it was; None: not within `timeout` seconds from now."""
        self.thread.join(timeout)
        self.ended.set()
        return self.freed_at


def pooled_bytes(rig, name):
    """What the job has pinned of the host so far."""
    return sum(gpu.get("host_pool_bytes") or 0 for gpu in rig.job(name)["gpus"])


def wait_for_pool(rig, name, size, timeout=90):
    """Until the job's host pool, which grows in the background, takes `size` bytes."""
    until = time.monotonic() + timeout
    while size and pooled_bytes(rig, name) < size:
        if time.monotonic() > until:
            raise RigError(f"{name}: only {pooled_bytes(rig, name) >> 20} of {size >> 20} MiB are "
                           f"pinned after {timeout} s: has the host so much to spare?")
        time.sleep(0.1)
