"""Memory that leaves its GPU for another one and comes back; and makes way there.

A job of 20 GiB is swapped out by `--park peer` to the second GPU, which must hold no context of it.
Then a second job allocates nearly all of that GPU. It waits until the parked memory has moved to
the host. Every bit is compared. Needs two GPUs that reach each other.
"""

import time

from rig.process import WorkloadFailed
from rig.report import Report, median
from rig.residency import on_gpu, used_bytes, wait_for_pool, wait_until, wait_until_out

TITLE = "Memory parked on another GPU"
LEAST_GB_S, MOST_WAIT_S = 250, 1
TENSOR = 512 << 20
LEFT = 4 << 30  # of the second GPU, by the job that needs the room
CONTEXT = 256 << 20  # less than the least that a context takes


def arguments(parser):
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)


def tensors(rig, name, size, **knobs):
    return rig.start(name, "tensors.py", "--tensors", size // TENSOR, "--bytes", TENSOR,
                     environment={"SWITCHYARD_SWAP_DIGEST": 0}, **knobs).ready(180)


def moved(monitor, name, order, residency, timeout=30):
    """Seconds from `order` until `ps` says that the memory is there, right within 2 ms."""
    begun = time.monotonic()
    order()
    while time.monotonic() < begun + timeout:
        job = next(job for job in monitor.ask(op="ps")["jobs"] if job["name"] == name)
        if job["residency"] == residency:
            return time.monotonic() - begun
        time.sleep(0.001)
    raise WorkloadFailed(name, f"not {residency} after {timeout} s but {job['residency']}")


def wait_until_given_back(rig, name):
    """The other GPU's memory: only then does the next move begin at once."""
    wait_until(rig, name, lambda job: not any(gpu["memory_parked_bytes"] for gpu in job["gpus"]),
               "given back")


def one_round(rig, name, idle):
    """Out and back by the command, and by a request without its start."""
    monitor = rig.connect()
    out = moved(monitor, name, lambda: rig.cli("swap-out", name, timeout=60), "swapped")
    parked = on_gpu(rig, name)["memory_parked_bytes"]
    beside = used_bytes(1) - idle - parked
    back = moved(monitor, name, lambda: rig.cli("swap-in", name, timeout=60), "resident")
    wait_until_given_back(rig, name)
    asked = {"out": moved(monitor, name, lambda: monitor.ask(op="swap-out", target=name),
                          "swapped"),
             "back": moved(monitor, name, lambda: monitor.ask(op="swap-in", target=name),
                           "resident")}
    wait_until_given_back(rig, name)
    return {"out": out, "back": back, "asked": asked, "parked": parked, "beside": beside}


def compared(job):
    job.send(do="check")
    return job.receive(120)["wrong"]


def make_way(rig, name):
    """How many seconds longer a job takes to start while memory is parked on its GPU."""
    size = (rig.listing("status")["gpus"][1]["memory_capacity_bytes"] - LEFT) // TENSOR * TENSOR
    times = []
    for parked in (True, False):
        if parked:
            rig.cli("swap-out", name, timeout=60)
            wait_until_out(rig, name)
        begun = time.monotonic()
        other = tensors(rig, f"other-{parked}", size, gpus=1)
        times.append(time.monotonic() - begun)
        other.end(30)
        rig.cli("swap-in", name, timeout=60)
    return times[0] - times[1]


def run(rig, report: Report):
    size = rig.options.gib << 30
    idle = used_bytes(1)
    job = tensors(rig, "parked", size, swappable=True, park="peer", gpus="0,1")
    wait_for_pool(rig, job.name, size)
    rounds = [one_round(rig, job.name, idle)
              for _ in range(max(1, int(rig.options.rounds * rig.options.scale)))]
    wrong = compared(job)
    waited = make_way(rig, job.name)
    report.keep(rounds=rounds, waited=waited)
    for what, key in (("out to the other GPU", "out"), ("back", "back")):
        took = median([one[key] for one in rounds])
        report.at_least(f"{what}, GB/s", size / took / 1e9, LEAST_GB_S, "{:.0f}")
        report.note("  median", f"{took:.3f} s", "the command's start with it")
        report.note("  without that", f"{median([one['asked'][key] for one in rounds]):.3f} s")
    report.judge("parked, GiB", f"{min(one['parked'] for one in rounds) / (1 << 30):.1f}",
                 "all of it", all(one["parked"] == size for one in rounds))
    report.at_most("used there beside it, MiB", max(one["beside"] for one in rounds) >> 20,
                   CONTEXT >> 20, "{:.0f}")
    report.at_most("an allocation there waits for it, s", waited, MOST_WAIT_S, "{:.2f}")
    wrong += compared(job)
    report.judge("every bit of every tensor", str(wrong or "equal"), "equal", not wrong)
