"""The part of a PyTorch workload that is the same for all: tickets are CUDA events.

On the CPU (--device cpu) everything runs at once and the figures mean nothing. It exists so that
the driver can be tried on a machine without a GPU.

Threading: as harness.py.
"""

import os
import statistics

import torch

import harness


class Torch(harness.Workload):
    def __init__(self, options):
        self.options = options
        self.device = torch.device(options.device)
        self.on_gpu = self.device.type == "cuda"
        self.events = []
        self.next_event = 0
        if not self.on_gpu:
            torch.set_num_threads(1)

    def make_events(self):
        # Reused: creating an event in every step would be a cost that no real program has.
        if self.on_gpu:
            self.events = [torch.cuda.Event() for _ in range(self.ahead + 2)]

    def enqueue(self):
        raise NotImplementedError

    def warm_up(self):
        for _ in range(self.options.warm):
            self.enqueue()
        self.synchronize()

    def step(self):
        self.enqueue()
        if not self.on_gpu:
            return None
        event = self.events[self.next_event]
        self.next_event = (self.next_event + 1) % len(self.events)
        event.record()
        return event

    def wait(self, ticket):
        if ticket is not None:
            ticket.synchronize()

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def gpu_time_ms(self, count):
        if not self.on_gpu:
            return 1.0
        times = []
        for _ in range(count):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            self.enqueue()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)

    def kernel_ms(self, count=5):
        """GPU milliseconds of a request's kernels and copies, without the gaps between them. The
        profiler stays loaded, so nothing is to be timed after this."""
        if not self.on_gpu:
            return 1.0
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as recorded:
            for _ in range(count):
                self.request()
            torch.cuda.synchronize()
        # The host's calls are listed too, each with the time of the kernel that it launched.
        on_gpu = [event for event in recorded.events()
                  if event.device_type == torch.autograd.DeviceType.CUDA]
        return sum(event.self_device_time_total for event in on_gpu) / 1e3 / count

    def do(self, what):
        if what == "kernel_ms":
            return {"kernel_ms": self.kernel_ms()}
        if what != "empty_cache":
            return super().do(what)
        if not self.on_gpu:
            return {"reserved_bytes": 0}
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return {"reserved_bytes": torch.cuda.memory_reserved(),
                "allocated_bytes": torch.cuda.memory_allocated()}

    def info(self):
        if not self.on_gpu:
            return {"gpu": "none: a stand-in on the CPU"}
        return {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "reserved_bytes": torch.cuda.memory_reserved(),
            "switchyard_job": os.environ.get("SWITCHYARD_JOB", ""),
        }
