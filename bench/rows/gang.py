"""A training of two ranks, one on each GPU, that is paused and swapped; or a tensor-parallel
generation by CUDA graphs.

What the table of NCCL's calls costs, in processes that take turns; then 50 pauses and 50 swap-outs
of a job at work, whose losses or tokens must be those of an undisturbed run. A step of the
generation is a token. Needs two GPUs, or --one-gpu.
"""

import time

from rig import ranks
from rig.report import Report, median

TITLE = "A job of two ranks, paused and swapped"
LEAST_RATE, LEAST_GB_S, MOST_RESUME_S = 0.995, 45, 0.005
# Of a short run, and of the disturbed one. A token takes one or two milliseconds.
TRAINING_STEPS, TOKENS = (600, 6000), (10000, 60000)


def arguments(parser):
    parser.add_argument("--pairs", type=int, default=3, help="with the library and without")
    parser.add_argument("--steps", type=int,
                        help=f"of each of these ({TRAINING_STEPS[0]}; {TOKENS[0]} tokens)")
    parser.add_argument("--times", type=int, default=50, help="pauses, and swap-outs")
    parser.add_argument("--disturbed-steps", type=int,
                        help=f"of the disturbed run ({TRAINING_STEPS[1]}; {TOKENS[1]} tokens)")
    parser.add_argument("--gib", type=int, default=4, help="of ballast of each rank")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--fsdp", action="store_true", help="sharded by FSDP2, instead of DDP")
    instead.add_argument("--generation", action="store_true",
                         help="tensor-parallel generation by CUDA graphs, instead of a training")
    ranks.arguments(parser)


def job(rig, steps):
    """A program of checks/, and its arguments."""
    o = rig.options
    check = "parallel_generation.py" if o.generation else "ddp_training.py"
    return [check, steps, "--gib", o.gib, *(["--fsdp"] if o.fsdp else [])]


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


def judge_speed(rig, report, swaps):
    speed = (rig.options.gib << 30) / median([out["seconds"] for out, _ in swaps]) / 1e9
    if rig.options.one_gpu:
        report.note("swap-out, GB/s of each rank, of the ballast alone", f"{speed:.1f}",
                    "they share one link")
    else:
        report.at_least("swap-out, GB/s of each GPU, of the ballast alone", speed, LEAST_GB_S,
                        "{:.1f}")


def compare(rig, steps):
    """Rates with the library, over those without; and the last run with it."""
    rates = []
    for index in range(rig.options.pairs):
        without = ranks.whole_run(rig, f"without-{index}", *job(rig, steps), under="plain")
        last = ranks.whole_run(rig, f"with-{index}", *job(rig, steps), swappable=True)
        rates.append(last["rate"] / without["rate"])
    return rates, last


def run(rig, report: Report):
    ranks.prepare(rig)
    o = rig.options
    short, long = TOKENS if o.generation else TRAINING_STEPS
    steps, disturbed_steps = o.steps or short, o.disturbed_steps or long
    rates, last = compare(rig, steps)
    rig.say("paused, then swapped")
    process = ranks.ready(ranks.start(rig, "disturbed", *job(rig, disturbed_steps), swappable=True))
    time.sleep(rig.scaled(10))  # until the host pool takes it
    pauses = disturb(rig, "disturbed", process, "pause", "resume")
    swaps = disturb(rig, "disturbed", process, "swap-out", "swap-in")
    disturbed = ranks.finish(rig, process)
    alone = (last if steps == disturbed_steps else
             ranks.whole_run(rig, "undisturbed", *job(rig, disturbed_steps), swappable=True))
    report.keep(rates=rates, pauses=pauses, swaps=swaps)
    report.at_least("rate with the library, over that without", median(rates), LEAST_RATE, "{:.4f}")
    for what, pairs in (("pauses", pauses), ("swap-outs", swaps)):
        good = sum(out["status"] == back["status"] == 0 for out, back in pairs)
        report.judge(f"{what} that succeeded", f"{good} of {len(pairs)}", f"all {o.times}",
                     good == o.times)
    report.note("pause, s, median", f"{median([out['seconds'] for out, _ in pauses]):.3f}")
    report.at_most("resume, s, median", median([back["seconds"] for _, back in pauses]),
                   MOST_RESUME_S)
    judge_speed(rig, report, swaps)
    report.judge(f"{'tokens' if o.generation else 'losses'} and ballast of each rank",
                 f"{disturbed_steps} steps",
                 "as in an undisturbed run", disturbed["values"] == alone["values"])
