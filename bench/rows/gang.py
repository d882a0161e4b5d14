"""A DistributedDataParallel training of two ranks, one on each GPU, that is paused and swapped.

What the table of NCCL's calls costs, in processes that take turns; then 50 pauses and 50 swap-outs
of a training at work, whose losses must be those of an undisturbed run. Needs two GPUs.
"""

import json
import socket
import time

from rig.process import BENCH, python
from rig.report import Report, median
from rig.residency import nvml
from rig.rig import RigError

TITLE = "A training of two ranks, paused and swapped"
RANKS = 2
LEAST_RATE, LEAST_GB_S, MOST_RESUME_S = 0.995, 45, 0.005


def arguments(parser):
    parser.add_argument("--pairs", type=int, default=3, help="with the library and without")
    parser.add_argument("--steps", type=int, default=600, help="of each of these")
    parser.add_argument("--times", type=int, default=50, help="pauses, and swap-outs")
    parser.add_argument("--disturbed-steps", type=int, default=6000)
    parser.add_argument("--gib", type=int, default=4, help="of ballast of each rank")
    parser.add_argument("--one-gpu", action="store_true",
                        help="both ranks on GPU 0, connected by sockets, as if on two hosts")


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


def start(rig, name, steps, under):
    """Returns when all ranks train."""
    torchrun = [python(), "-m", "torch.distributed.run", "--nproc-per-node", RANKS,
                "--master-port", free_port()]
    one_gpu = ["--one-gpu"] if rig.options.one_gpu else []
    knobs = {"swappable": True} if under == "switchyard" else {}
    process = rig.once(name, [*torchrun, BENCH / "checks" / "ddp_training.py", steps,
                              rig.options.gib, *one_gpu], under=under, **knobs)
    if not process.stdout.readline():
        raise RigError(f"{name} ended: {process.log.read_text()}")
    return process


def finish(rig, name, process, timeout=300):
    return json.loads(rig.wait_for(name, process, timeout))


def whole_run(rig, name, steps, under):
    rig.say(name)
    return finish(rig, name, start(rig, name, steps, under))


def timed(rig, *command):
    begun = time.monotonic()
    done = rig.cli(*command, check=False, timeout=60)
    return {"seconds": time.monotonic() - begun, "status": done.returncode}


def disturb(rig, name, process, out, back):
    """So many times `out` and `back`: [(how the one went, how the other did)]"""
    pairs = []
    while len(pairs) < rig.options.times and process.poll() is None:
        pairs.append((timed(rig, out, name), timed(rig, back, name)))
        time.sleep(0.3)
    return pairs


def run(rig, report: Report):
    nvml(0 if rig.options.one_gpu else RANKS - 1)  # says so if there is none
    o = rig.options
    if o.one_gpu:
        rig.means("none")  # a rank waits in a kernel, so a long slice would be spent on waiting
    rates = []
    for index in range(o.pairs):
        without = whole_run(rig, f"without-{index}", o.steps, "plain")
        last = whole_run(rig, f"with-{index}", o.steps, "switchyard")
        rates.append(last["rate"] / without["rate"])
    rig.say("paused, then swapped")
    job = start(rig, "disturbed", o.disturbed_steps, "switchyard")
    time.sleep(rig.scaled(10))  # until the host pool takes it
    pauses = disturb(rig, "disturbed", job, "pause", "resume")
    swaps = disturb(rig, "disturbed", job, "swap-out", "swap-in")
    disturbed = finish(rig, "disturbed", job)
    alone = (last if o.steps == o.disturbed_steps
             else whole_run(rig, "undisturbed", o.disturbed_steps, "switchyard"))
    report.keep(rates=rates, pauses=pauses, swaps=swaps)
    report.at_least("rate with the library, over that without", median(rates), LEAST_RATE, "{:.4f}")
    for what, pairs in (("pauses", pauses), ("swap-outs", swaps)):
        good = sum(out["status"] == back["status"] == 0 for out, back in pairs)
        report.judge(f"{what} that succeeded", f"{good} of {len(pairs)}", f"all {o.times}",
                     good == o.times)
    report.note("pause, s, median", f"{median([out['seconds'] for out, _ in pauses]):.3f}")
    report.at_most("resume, s, median", median([back["seconds"] for _, back in pauses]),
                   MOST_RESUME_S)
    out_s = median([out["seconds"] for out, _ in swaps])
    speed = (o.gib << 30) / out_s / 1e9
    if o.one_gpu:
        report.note("swap-out, GB/s of each rank, of the ballast alone", f"{speed:.1f}",
                    "they share one link")
    else:
        report.at_least("swap-out, GB/s of each GPU, of the ballast alone", speed, LEAST_GB_S,
                        "{:.1f}")
    report.judge("losses and ballast of each rank", f"{o.disturbed_steps} steps",
                 "as in an undisturbed run", disturbed["values"] == alone["values"])
