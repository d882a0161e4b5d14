"""What NVML says of each process: in which part of its looks the process had the GPU.

Threading: one thread.
"""

import ctypes

from rig.residency import nvml

ROOM = 256  # processes


class Utilization(ctypes.Structure):
    """nvmlProcessUtilizationSample_t"""

    _fields_ = [("pid", ctypes.c_uint), ("at", ctypes.c_ulonglong), ("sm", ctypes.c_uint),
                ("memory", ctypes.c_uint), ("encoder", ctypes.c_uint), ("decoder", ctypes.c_uint)]


class Samples:
    """Those since it was made; each look adds. `by_pid`: {pid: {microseconds: percent}}."""

    def __init__(self, gpu=0):
        self.library, self.device = nvml(gpu)
        self.by_pid, self.since = {}, 0
        self.look()
        self.since = max((at for those in self.by_pid.values() for at in those), default=0)
        self.by_pid = {}

    def look(self):
        samples, count = (Utilization * ROOM)(), ctypes.c_uint(ROOM)
        failed = self.library.nvmlDeviceGetProcessUtilization(
            self.device, samples, ctypes.byref(count), ctypes.c_ulonglong(self.since))
        for sample in samples[:0 if failed else count.value]:
            if sample.at > self.since:
                self.by_pid.setdefault(sample.pid, {})[sample.at] = sample.sm

    def mean(self, pid):
        """Of the looks so far, from 0 to 1; None: there was no sample."""
        values = self.by_pid.get(pid, {}).values()
        return sum(values) / len(values) / 100 if values else None
