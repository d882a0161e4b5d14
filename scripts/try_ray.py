#!/usr/bin/env python3
"""Two Ray actors with half a GPU each, on the simulated GPU. By hand: Ray's wheel has 70 MB.

    python3 -m venv env && env/bin/pip install ray
    env/bin/python scripts/try_ray.py BUILD

Both ways of docs/guide/ray.md: `py_executable`, and variables. Each actor has a quota of its own. It
writes a pattern into its memory, is refused what is beyond the quota, and reads the pattern back
while the other one works. It needs no GPU, and nothing is left on this machine.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
WORK = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp")  # Ray's sockets need a short path
os.environ.update(FAKECUDA_STATE=WORK.name + "/gpu", SWITCHYARD_SOCKET=WORK.name + "/m.sock",
                  LD_LIBRARY_PATH=str(BUILD / "fakecuda"), LC_ALL="C.UTF-8",
                  RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0",
                  PATH=f"{BUILD}:{os.environ['PATH']}")
os.environ.pop("LD_PRELOAD", None)
import ray  # noqa: E402

MIB = 1 << 20


class Half:
    """Ray makes an actor of it, in a process of its own."""

    def __init__(self, number):
        import ctypes
        self.c, self.cuda = ctypes, ctypes.CDLL("libcuda.so.1")
        self.context, self.address = ctypes.c_void_p(), ctypes.c_uint64()
        self.size = 16 * MIB
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuCtxCreate_v2(ctypes.byref(self.context), 0, 0) == 0
        assert self.allocate(self.size, self.address) == 0
        self.data = bytes((number * 7 + i) % 251 for i in range(4093)) * (self.size // 4093 + 1)
        assert self.cuda.cuMemcpyHtoD_v2(self.address, self.data, ctypes.c_size_t(self.size)) == 0

    def allocate(self, size, address):
        return self.cuda.cuMemAlloc_v2(self.c.byref(address), self.c.c_size_t(size))

    def beyond_quota(self):
        self.cuda.cuCtxSetCurrent(self.context)
        return self.allocate(2048 * MIB, self.c.c_uint64())  # 2: out of memory

    def intact(self):
        self.cuda.cuCtxSetCurrent(self.context)
        back = self.c.create_string_buffer(self.size)
        assert self.cuda.cuMemcpyDtoH_v2(back, self.address, self.c.c_size_t(self.size)) == 0
        return back.raw == self.data[:self.size]

    def about(self):
        return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


WAYS = {
    "py_executable": {"py_executable": "switchyard run --memory 1GiB -- " + sys.executable},
    "variables": {"env_vars": {"LD_PRELOAD": str(BUILD / "libswitchyard.so"),
                               "SWITCHYARD_MEMORY": "1GiB", "SWITCHYARD_REQUIRE": "1",
                               "SWITCHYARD_SOCKET": os.environ["SWITCHYARD_SOCKET"]}},
}


def jobs():
    listing = subprocess.run([BUILD / "switchyard", "ps", "--json"], check=True, text=True,
                             capture_output=True).stdout
    return json.loads(listing)["jobs"]


def try_way(name, runtime_env):
    actor = ray.remote(num_gpus=0.5, runtime_env=runtime_env)(Half)
    actors = [actor.remote(number) for number in (1, 2)]
    about = ray.get([each.about.remote() for each in actors])
    print(f"{name}: pids and GPUs {about}")
    assert [each[1] for each in about] == ["0", "0"], "both are on one GPU"
    there = {each["pid"]: job for job in jobs() for each in job["processes"]}
    for pid, _ in about:
        assert there[pid]["gpus"][0]["memory_quota_bytes"] == 1024 * MIB, there[pid]
    assert there[about[0][0]]["name"] != there[about[1][0]]["name"], "each is a job of its own"
    assert ray.get([each.beyond_quota.remote() for each in actors]) == [2, 2], "quotas"
    for _ in range(3):
        assert all(ray.get([each.intact.remote() for each in actors])), "values"
    for each in actors:
        ray.kill(each)
    for _ in range(600):
        if not jobs():
            break
        time.sleep(0.1)
    assert not jobs(), "a job is left"
    print(f"{name}: quotas kept, values intact, nothing left")


def main():
    monitor = subprocess.Popen([BUILD / "switchyardd", "--persist"], stderr=subprocess.DEVNULL)
    try:
        while not pathlib.Path(os.environ["SWITCHYARD_SOCKET"]).exists():
            time.sleep(0.05)
        ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, _temp_dir=WORK.name + "/r",
                 object_store_memory=128 * MIB, logging_level="ERROR")
        for name, runtime_env in WAYS.items():
            try_way(name, runtime_env)
    finally:
        ray.shutdown()
        monitor.terminate()
        monitor.wait()
        WORK.cleanup()
    print(f"try_ray: all is well with Ray {ray.__version__}")


main()
