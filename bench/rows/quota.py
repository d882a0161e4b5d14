"""A memory quota as each way of allocating meets it. The framework gives its own out-of-memory
error at the quota, never more than 64 MiB above it by NVML. The job sees the quota, and nothing
stays counted after 1,000 random allocations and frees. Memory without a plain allocation has the
same checks: contexts, local memory and heaps of kernels, managed pools, memory that outlives its
maker. These alone take less than a minute:

    python3 bench/run.py quota --quota-gib 3 --kind contexts --kind local --kind heap \
        --kind managed-pool --kind outlived
"""

import ctypes
import time

from rig.process import BENCH, WorkloadFailed, python
from rig.report import Report

TITLE = "Memory quota"
KINDS = {
    "cudaMalloc": "cudaMalloc",
    "cudaMallocAsync": "stream-ordered",
    "vmm": "VMM",
    "torch": "PyTorch",
    "torch-expandable": "PyTorch, expandable segments",
    "jax": "JAX, no pool",
    "jax-pool": "JAX, preallocating",
    "cupy": "CuPy",
    "contexts": "contexts",
    "local": "local memory of kernels",
    "heap": "malloc heap",
    "managed-pool": "managed pool without a place",
    "outlived": "memory that outlives its maker",
}
# What comes in large pieces, or is taken when it is used: only the upper bound holds.
UNNAMED = ("contexts", "local", "heap", "managed-pool", "outlived")
MIB = 1 << 20
ABOVE = 64 * MIB
# The quota's unused rest at a refusal. It is the last piece, and the memory that a context or a
# framework takes beside its arrays in pieces of its own.
BELOW = 64 * MIB


def arguments(parser):
    parser.add_argument("--quota-gib", type=int, default=6)
    parser.add_argument("--kind", action="append", choices=[*KINDS, "churn"], help="only these")


class NvmlProcess(ctypes.Structure):
    """nvmlProcessInfo_t, second version"""
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


def nvml_devices(visit):
    """Of visit(nvml, device) for each GPU, asked from outside of any job."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        answers = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            answers.append(visit(nvml, device))
        return answers
    finally:
        nvml.nvmlShutdown()


def listed(nvml, device):
    """{pid: bytes}"""
    count, processes = ctypes.c_uint(256), (NvmlProcess * 256)()
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes) != 0:
        return {}
    return {each.pid: each.used for each in processes[:count.value]}


def nvml_used(pid):
    """NVML's figure for a process; None when it isn't listed."""
    return next((each[pid] for each in nvml_devices(listed) if pid in each), None)


def nobodys():
    """The bytes that are used of all GPUs, and by no process that NVML lists."""
    def of_device(nvml, device):
        memory = NvmlMemory()
        nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        return memory.used - sum(listed(nvml, device).values())

    return sum(nvml_devices(of_device))


def usage(rig, name):
    gpus = rig.job(name)["gpus"]
    return {key: sum(gpu.get(key) or 0 for gpu in gpus)
            for key in ("memory_used_bytes", "memory_overhead_bytes", "refusals")}


def start(rig, kind):
    if kind == "outlived":
        path = str(rig.scratch / "outlived.socket")
        job = rig.start_program("quota-outlived",
                                [python(), BENCH / "checks" / "quota.py", kind, path],
                                memory=f"{rig.options.quota_gib}GiB")
        rig.start_program("quota-maker", [python(), BENCH / "checks" / "quota.py", "maker", path])
        return job
    return rig.start_program(f"quota-{kind}", [python(), BENCH / "checks" / "quota.py", kind],
                             memory=f"{rig.options.quota_gib}GiB")


def fill(rig, report, kind, job, quota, nobodys_before):
    what = KINDS[kind]
    try:
        shown = job.ready().about
        rig.say(f"{what}: {shown}")
        filled = job.ask(fill=True, timeout=120)
    except WorkloadFailed as failure:
        rig.say(str(failure))
        report.judge(what, "failed", "its own error at the quota", False)
        report.keep(**{kind: str(failure)})
        return
    time.sleep(1.2)  # the monitor re-reads NVML every second
    used, counted = nvml_used(shown["pid"]), usage(rig, job.name)
    report.keep(**{kind: {"shown": shown, "filled": filled, "nvml_used_bytes": used,
                          "counted": counted}})
    report.judge(f"{what}: error", (filled["errors"] or ["none"])[0][:44], filled["expected"],
                 filled["own_error"])
    at = used or 0
    # Memory of a process that has ended is another's to NVML, or nobody's.
    if kind == "outlived":
        at += max(nobodys() - nobodys_before, 0)
    form = f"{at / MIB:.0f} of {quota / MIB:.0f} MiB" if used else "not listed"
    if kind == "jax-pool":
        limit = shown.get("pool_limit_bytes") or 0
        report.judge("  preallocates from the quota", f"{limit / quota:.2f} of it", "0.70 .. 0.80",
                     0.70 <= limit / quota <= 0.80)
        report.judge("  NVML", form, "at most 64 MiB above", 0 < at <= quota + ABOVE)
    elif kind in UNNAMED:
        report.judge("  NVML", form, "at most 64 MiB above", 0 < at <= quota + ABOVE)
    else:
        report.judge("  NVML", form, "64 MiB around the quota",
                     quota - BELOW <= at <= quota + ABOVE)
    if kind == "torch-expandable":
        report.judge("  segments expandable", str(shown["expandable"]), "True",
                     shown["expandable"])
    inside = shown["nvidia_smi"].get("total_bytes")
    report.judge("  total shown: mem_get_info, nvidia-smi",
                 f"{shown['total_bytes'] // MIB}, {inside // MIB if inside else inside} MiB",
                 f"{quota // MIB} MiB", shown["total_bytes"] == quota and inside == quota)
    job.end()


def churn(rig, report, kind, job):
    what = f"1,000 random alloc / free, {kind}"
    try:
        job.ready()
        time.sleep(1.2)
        before = usage(rig, job.name)
        job.ask(churn=True, timeout=120)
        time.sleep(1.2)
        after = usage(rig, job.name)
    except WorkloadFailed as failure:
        rig.say(str(failure))
        report.judge(what, "failed", "0 bytes left counted", False)
        return
    counted = [one["memory_used_bytes"] - one["memory_overhead_bytes"] for one in (before, after)]
    report.keep(**{f"churn-{kind}": {"before": before, "after": after}})
    report.judge(what, f"{counted[0]} -> {counted[1]} B", "nothing left counted",
                 counted[1] == counted[0])
    job.end()


def run(rig, report: Report):
    quota = rig.options.quota_gib << 30
    wanted = rig.options.kind or [*KINDS, "churn"]
    nobodys_before = nobodys()
    jobs = {kind: start(rig, kind) for kind in KINDS if kind in wanted}
    churns = {}
    if "churn" in wanted:
        churns = {kind: rig.start_program(f"churn-{kind}",
                                          [python(), BENCH / "checks" / "churn.py", kind],
                                          memory=f"{rig.options.quota_gib}GiB")
                  for kind in ("driver", "torch")}
    for kind, job in jobs.items():
        fill(rig, report, kind, job, quota, nobodys_before)
    for kind, job in churns.items():
        churn(rig, report, kind, job)
