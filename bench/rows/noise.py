"""`run --gradient-noise` on a DistributedDataParallel training of two ranks: is it right, and what
does it cost?

The training computes the norms of its gradients itself and smooths what follows from them as the
monitor does. Then two trainings, one with the option and one without, take turns. A rate is that of
the median step: the host takes CPUs away at times. Needs two GPUs; --one-gpu puts both ranks on
one, through sockets.
"""

import json
import time

from rig import ranks
from rig.process import BENCH, python
from rig.ranks import RANKS
from rig.report import Report, interval, median
from rig.rig import RigError

TITLE = "The gradient noise scale of a training of two ranks"
MODES = ("gpt8", "resnet8", "resnet32")
DECAY = 0.9  # monitor/policy/gradient_noise.h
MOST_OFF, LEAST_RATE = 1e-3, 0.99


def arguments(parser):
    parser.add_argument("--modes", default=",".join(MODES), help="only these")
    ranks.arguments(parser)
    parser.add_argument("--steps", type=int, default=200, help="whose norms are compared")
    parser.add_argument("--pairs", type=int, default=6, help="turns with the option and without")
    parser.add_argument("--turn-steps", type=int, default=40, help="of a turn")
    parser.add_argument("--every", default="yes", help="of the turns: each so many steps, or yes")


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


def cost(rig, report, mode):
    o = rig.options
    jobs = {"with": start(rig, f"{mode}-with", mode, o.every),
            "without": start(rig, f"{mode}-without", mode, "no")}
    for job in jobs.values():
        job.ready(180)
    ratios = []
    for turn in range(max(2, int(o.pairs * o.scale))):
        order = ("with", "without") if turn % 2 == 0 else ("without", "with")
        rate = {name: jobs[name].ask(steps=o.turn_steps, timeout=120)["usual_rate"]
                for name in order}
        ratios.append(rate["with"] / rate["without"])
    told = settled(rig, f"{mode}-with")
    for job in jobs.values():
        job.end(30)
    report.raw.setdefault("ratios", {})[mode] = ratios
    report.at_least(f"{mode}: rate with the option, over that without", median(ratios), LEAST_RATE,
                    "{:.4f}")
    report.ends(interval(ratios), LEAST_RATE, form="{:.4f}")
    report.note(f"  {mode}: state, steps that were measured", f"{told['state']}, {told['steps']}")


def run(rig, report: Report):
    ranks.prepare(rig)
    for mode in rig.options.modes.split(","):
        rig.say(f"{mode}: values")
        compare(rig, report, mode)
        rig.say(f"{mode}: cost")
        cost(rig, report, mode)
