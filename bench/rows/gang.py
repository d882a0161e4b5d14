"""A training of two ranks or more, one on each GPU, that is paused and swapped; or a
tensor-parallel generation by CUDA graphs.

50 pauses and 50 swap-outs of a job at work, whose losses or tokens must be those of an undisturbed
run. A step of the generation is a token. Needs a GPU for each rank, or --one-gpu.
"""

import json
import time

from rig import ranks
from rig.report import Report, median
from rig.residency import wait_for_pool

TITLE = "A job of ranks, paused and swapped"
LEAST_GB_S, MOST_RESUME_S = 45, 0.005
MOST_PAUSE_S = 0.04  # to which comes the work that was launched before
NUMBERED_S = 3  # until the monitor believes the numbers of a job's work
# About a minute for the training, and half a minute each for the others.
TRAINING_STEPS, SHARDED_STEPS, GPT_STEPS, TOKENS = 4000, 700, 500, 9000


def arguments(parser):
    parser.add_argument("--times", type=int, default=50, help="pauses, and swap-outs")
    parser.add_argument("--steps", type=int,
                        help=f"of both runs ({TRAINING_STEPS}, {SHARDED_STEPS} sharded; "
                             f"{GPT_STEPS} of a GPT, {TOKENS} tokens)")
    parser.add_argument("--gib", type=int, default=4, help="of ballast of each rank")
    parser.add_argument("--armed", action="store_true",
                        help="beside a service on each GPU, so that its work is counted: does "
                             "nothing of it run when `pause` answers?")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--fsdp", action="store_true", help="sharded by FSDP2, instead of DDP")
    instead.add_argument("--gpt", action="store_true",
                         help="a GPT of 370 million parameters, instead of linear layers")
    instead.add_argument("--generation", action="store_true",
                         help="tensor-parallel generation by CUDA graphs, instead of a training")
    ranks.arguments(parser)
    ranks.number_argument(parser)


def job(rig):
    """A program of checks/, and its arguments."""
    o = rig.options
    steps = o.steps or (TOKENS if o.generation else SHARDED_STEPS if o.fsdp else
                        GPT_STEPS if o.gpt else TRAINING_STEPS)
    check = "parallel_generation.py" if o.generation else "ddp_training.py"
    return [check, steps, "--gib", o.gib, *(["--fsdp"] if o.fsdp else []),
            *(ranks.GPT if o.gpt else [])]


def arm(rig):
    """Where others work, the library counts what a job's GPUs have done."""
    rig.means("gate")
    services = [rig.start(f"beat{gpu}", "loops.py", "--kernels", 1, priority="high", gpus=gpu)
                for gpu in range(1 if rig.options.one_gpu else rig.options.ranks)]
    for service in services:
        service.ready()
        # More requests than the row lasts: the end of the process ends the rest.
        service.send(serve={"rate": 1, "requests": 900, "even": True, "warm": 0})
    time.sleep(NUMBERED_S)


def timed(rig, command, name):
    begun = time.monotonic()
    done = rig.cli(command, name, "--json", check=False, timeout=60)
    seconds = time.monotonic() - begun
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    return {"seconds": seconds, "status": done.returncode, "drained": said.get("drained")}


def disturb(rig, name, process, out, back):
    """So many times `out` and `back`: [(how the one went, how the other did)]"""
    pairs = []
    while len(pairs) < rig.options.times and process.poll() is None:
        pairs.append((timed(rig, out, name), timed(rig, back, name)))
        time.sleep(0.1)
    return pairs


def copied_out(rig, name):
    return sum(gpu["swap_moved_out_bytes"] for gpu in rig.job(name)["gpus"])


def seconds_out(pairs):
    return median([out["seconds"] for out, _ in pairs])


def judge_speed(rig, report, pauses, swaps, copied):
    """A swap-out does all that a pause does, until the ranks stand. Then it copies and releases."""
    each = copied / len(swaps) / rig.options.ranks
    speed = each / (seconds_out(swaps) - seconds_out(pauses)) / 1e9
    report.note("swap-out, s, median", f"{seconds_out(swaps):.3f}",
                f"{each / seconds_out(swaps) / 1e9:.1f} GB/s by the whole command")
    report.note("swap-out, GiB copied of each rank, mean", f"{each / (1 << 30):.2f}")
    why = ("they share one link" if rig.options.one_gpu else
           "little changes between two swap-outs" if rig.options.fsdp or rig.options.generation
           else None)
    if why:
        report.note("swap-out, GB/s of each rank", f"{speed:.1f}", why)
    else:
        report.at_least("swap-out, GB/s of each GPU", speed, LEAST_GB_S, "{:.1f}")


def run(rig, report: Report):
    ranks.prepare(rig)
    o = rig.options
    rig.say("paused, then swapped")
    process = ranks.ready(ranks.start(rig, "disturbed", *job(rig), swappable=True))
    if o.armed:
        arm(rig)
    wait_for_pool(rig, "disturbed", sum(gpu["memory_swappable_bytes"]
                                        for gpu in rig.job("disturbed")["gpus"]))
    pauses = disturb(rig, "disturbed", process, "pause", "resume")
    swaps = disturb(rig, "disturbed", process, "swap-out", "swap-in")
    copied = copied_out(rig, "disturbed")
    disturbed = ranks.finish(rig, process)
    alone = ranks.whole_run(rig, "undisturbed", *job(rig), swappable=True)
    report.keep(pauses=pauses, swaps=swaps, copied=copied)
    for what, pairs in (("pauses", pauses), ("swap-outs", swaps)):
        good = sum(out["status"] == back["status"] == 0 for out, back in pairs)
        report.judge(f"{what} that succeeded", f"{good} of {len(pairs)}", f"all {o.times}",
                     good == o.times)
    report.note("pause, s, median", f"{seconds_out(pauses):.3f}")
    if o.armed:
        report.at_most("  the longest, s", max(out["seconds"] for out, _ in pauses), MOST_PAUSE_S)
        still = sum(out["drained"] is True for out, _ in pauses)
        report.judge("  nothing of the job ran any more", f"{still} of {len(pauses)}", "all",
                     still == len(pauses))
    report.at_most("resume, s, median", median([back["seconds"] for _, back in pauses]),
                   MOST_RESUME_S)
    judge_speed(rig, report, pauses, swaps, copied)
    report.judge(f"{'tokens' if o.generation else 'losses'} and ballast of each rank",
                 f"{len(pauses) + len(swaps)} disturbances",
                 "as in an undisturbed run", disturbed["values"] == alone["values"])
