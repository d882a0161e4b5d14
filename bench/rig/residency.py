"""Device memory as seen from outside of any job: where a job's memory is, and the room that is left
for jobs. Also the pinned memory that swapping needs.

Threading: any thread; NVML is opened once.
"""

import ctypes
import functools
import threading
import time

from rig.monitor import Refused
from rig.process import WorkloadFailed
from rig.rig import RigError


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


@functools.cache
def nvml(gpu=0):
    """(the library, a GPU)"""
    library, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(device)):
        raise RigError(f"NVML has no GPU {gpu}")
    return library, device


def used_bytes(gpu=0):
    library, device = nvml(gpu)
    memory = NvmlMemory()
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
        raise RigError("NVML does not say how much memory is used")
    return memory.used


class FreedWatch:
    """Notes the moment when NVML first shows `size` bytes less in use than at the start, but for a
    hundredth. The driver takes a little for itself at the first move."""

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
    """The host memory that the job has pinned so far."""
    return sum(gpu.get("host_pool_bytes") or 0 for gpu in rig.job(name)["gpus"])


def wait_for_pool(rig, name, size, timeout=90):
    """Until the job's host pool, which grows in the background, takes `size` bytes."""
    until = time.monotonic() + timeout
    while size and pooled_bytes(rig, name) < size:
        if time.monotonic() > until:
            raise RigError(f"{name}: only {pooled_bytes(rig, name) >> 20} of {size >> 20} MiB are "
                           f"pinned after {timeout} s: has the host so much to spare?")
        time.sleep(0.1)


def on_gpu(rig, name):
    """What `ps` says of the job on the first GPU that it uses."""
    gpus = rig.job(name)["gpus"]
    if not gpus:
        raise WorkloadFailed(name, "uses no GPU")
    return gpus[0]


def wait_until(rig, name, holds, what, timeout=30):
    """Until `holds` says so of the job in `ps`, which it returns."""
    until = time.monotonic() + timeout
    while not holds(job := rig.job(name)):
        if time.monotonic() > until:
            raise WorkloadFailed(name, f"not {what} after {timeout} s but {job['state']}: "
                                       f"{job['gpus']}")
        time.sleep(0.02)
    return job


def wait_until_out(rig, name, timeout=30):
    """Until all of its memory that can leave has left."""
    return wait_until(rig, name, lambda job: job["residency"] == "swapped", "swapped out", timeout)


def reserve_all_but(rig, left):
    """Leaves `left` bytes beside the jobs' present memory on the first GPU. A job without a
    process, which lives as long as this one, reserves the rest. So jobs stop fitting together while
    they run; the monitor's own --capacity is fixed from its start."""
    monitor = rig.connect()
    gpu = monitor.ask(op="status")["gpus"][0]
    there = sum(at["memory_resident_bytes"] for job in monitor.ask(op="ps")["jobs"]
                for at in job["gpus"] if at["uuid"] == gpu["uuid"])
    size = gpu["memory_capacity_bytes"] - there - left
    try:
        monitor.ask(op="create", card={"name": "rest", "memory": str(size)})
    except Refused as refusal:
        raise RigError(f"{size >> 20} MiB can't be reserved: {refusal}") from None
    return size
