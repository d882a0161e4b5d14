"""`run --gradient-noise` on a training of two ranks, by DistributedDataParallel or FSDP2: is it
right, and what does it cost?

The training computes the norms of its gradients itself and smooths what follows from them as the
monitor does. Then a training measures every other step: two processes of one program differ by more
than what it costs, the steps of one do not. A training without the option shows by how much they
do. Needs two GPUs; --one-gpu puts both ranks on one, through sockets.
"""

import json
import time

from rig import ranks
from rig.process import BENCH, python
from rig.ranks import RANKS
from rig.report import Report, interval, median
from rig.rig import RigError

TITLE = "The gradient noise scale of a training of two ranks"
MODES = ("gpt8", "resnet8", "resnet32", "fsdp4")
WARM = 20  # steps of checks/ordered_training.py before the first that is asked for
DECAY = 0.9  # monitor/policy/gradient_noise.h
MOST_OFF, LEAST_RATE = 1e-3, 0.99


def arguments(parser):
    parser.add_argument("--modes", default=",".join(MODES), help="only these")
    ranks.arguments(parser)
    parser.add_argument("--steps", type=int, default=200, help="whose norms are compared")
    parser.add_argument("--pairs", type=int, default=6, help="turns with the option and without")
    parser.add_argument("--turn-steps", type=int, default=40, help="of a turn, an even number")


def start(rig, name, mode, every, *more):
    argv = [python(), BENCH / "checks" / "ordered_training.py", mode, *more,
            *(["--one-gpu"] if rig.options.one_gpu else [])]
    return rig.start_program(name, argv, environment={"SWITCHYARD_GRADIENT_NOISE": every})


def noise(rig, name):
    said = rig.cli("stats", name, "--interval", "200ms", "--json")
    return json.loads(said.stdout)["jobs"][0]["gradient_noise"]


def settled(rig, name):
    """Once no further step is told."""
    last, until = noise(rig, name), time.monotonic() + 10
    while time.monotonic() < until:
        time.sleep(1)
        now = noise(rig, name)
        if now["steps"] == last["steps"]:
            return now
        last = now
    raise RigError(f"{name}: steps are told without end")


def smoothed(norms):
    """|G|² and S of the script's own norms."""
    gradient = variance = None
    for local, mean in norms:
        fresh = ((RANKS * mean - local) / (RANKS - 1), (local - mean) / (1 - 1 / RANKS))
        if gradient is None:
            gradient, variance = fresh
        gradient = DECAY * gradient + (1 - DECAY) * fresh[0]
        variance = DECAY * variance + (1 - DECAY) * fresh[1]
    return gradient, variance


def compare(rig, report, mode):
    job = start(rig, f"{mode}-own", mode, "yes", "--own").ready(180)
    own = job.ask(steps=rig.options.steps, timeout=240)["norms"]
    told = settled(rig, job.name)
    job.end(30)
    gradient, variance = smoothed(own)
    report.raw.setdefault("values", {})[mode] = {"own": own, "told": told}
    report.note(f"{mode}: state, steps, critical batch",
                f"{told['state']}, {told['steps']}, {told['critical_batch_ratio']}",
                f"spread {told['critical_batch_spread']}")
    if told["gradient_square"] is None:
        report.judge(f"{mode}: |G|², S", "not told", "told", False)
        return
    for what, key, value in (("|G|²", "gradient_square", gradient),
                             ("S", "gradient_variance", variance)):
        off = abs(told[key] - value) / abs(value)
        report.judge(f"{mode}: {what}, the script's own", f"{told[key]:.6g}, {value:.6g}",
                     f"within {MOST_OFF:g}: {off:.2g}", off <= MOST_OFF)


def slower_over_faster(halves):
    """[rate of the half of the steps that is slower by all turns, over that of the other half] of
    each turn. The steps that are measured are one of these halves."""
    ratios = [even / odd for even, odd in halves]
    return [1 / ratio for ratio in ratios] if median(ratios) > 1 else ratios


def cost(rig, report, mode):
    o = rig.options
    jobs = {"with": start(rig, f"{mode}-with", mode, "2"),
            "without": start(rig, f"{mode}-without", mode, "no")}
    for job in jobs.values():
        job.ready(180)
    halves = {name: [] for name in jobs}
    for turn in range(max(2, int(o.pairs * o.scale))):
        for name in list(jobs) if turn % 2 == 0 else reversed(jobs):
            halves[name].append(jobs[name].ask(steps=o.turn_steps, timeout=120)["halves_ms"])
    told = settled(rig, f"{mode}-with")
    for job in jobs.values():
        job.end(30)
    report.raw.setdefault("halves_ms", {})[mode] = halves
    ratios = slower_over_faster(halves["with"])
    report.at_least(f"{mode}: rate of steps that are measured, over the others", median(ratios),
                    LEAST_RATE, "{:.4f}")
    report.ends(interval(ratios), LEAST_RATE, form="{:.4f}")
    report.note(f"  {mode}: the same of a training that measures none",
                f"{median(slower_over_faster(halves['without'])):.4f}", "1 by right")
    steps = WARM + max(2, int(o.pairs * o.scale)) * o.turn_steps
    report.judge(f"  {mode}: steps that were measured", f"{told['state']}, {told['steps']}",
                 f"at most {steps // 2}", told["steps"] <= steps // 2)


def run(rig, report: Report):
    ranks.prepare(rig)
    for mode in rig.options.modes.split(","):
        rig.say(f"{mode}: values")
        compare(rig, report, mode)
        rig.say(f"{mode}: cost")
        cost(rig, report, mode)
