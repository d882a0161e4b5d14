"""Gangs that need no framework (rank_steps): they step without end, and compare their memory last.

Threading: one thread.
"""

import importlib.util
import os
import struct
import subprocess
import time
from pathlib import Path

from rig.monitor import Monitor, Refused
from rig.rig import RigError

GIVES_UP_S = 100


def nccl_folder():
    """Of the package that PyTorch brings along; else the loader finds it."""
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations if found else ():
        if (Path(place) / "nccl" / "lib").is_dir():
            return str(Path(place) / "nccl" / "lib")
    return ""


class Gang:
    """Rank n works on the n-th GPU that it sees. `kernel_us`: of a kernel that begins each step."""

    def __init__(self, rig, name, ranks, mib, kernel_us=0, **knobs):
        self.rig = rig
        self.name = name
        self.ranks = ranks
        self.folder = rig.scratch / name
        self.folder.mkdir()
        paths = (nccl_folder(), os.environ.get("LD_LIBRARY_PATH", ""))
        self.process = rig.once(name, [rig.program("rank_steps"), ranks, self.folder, mib, kernel_us],
                                under="switchyard",
                                environment={"LD_LIBRARY_PATH": ":".join(filter(None, paths))},
                                **knobs)

    def steps(self):
        out = []
        for rank in range(self.ranks):
            file = self.folder / f"steps-{rank}"
            data = file.read_bytes() if file.exists() else b""
            out.append(struct.unpack("<Q", data)[0] if len(data) == 8 else 0)
        return out

    def fail_if_ended(self):
        if self.process.poll() is not None:
            raise RigError(f"{self.name} ended: {self.process.log.read_text()}")

    def goes_on(self, since):
        """Seconds until each rank has made a step after `since`."""
        before = self.steps()
        while any(now <= then for now, then in zip(self.steps(), before)):
            self.fail_if_ended()
            if time.monotonic() - since > GIVES_UP_S:
                raise RigError(f"{self.name} stands still, {before}")
            time.sleep(0.001)
        return max(0.0, time.monotonic() - since)

    def end(self, timeout=90):
        """What the ranks say of their memory: "right", or which one is wrong."""
        try:
            said, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return "no end"
        return said.decode().strip()

    def ask(self, **request):
        """What the monitor says; the text of a refusal."""
        try:
            return Monitor(self.rig.socket).ask(target=self.name, **request)
        except Refused as refused:
            return str(refused)
