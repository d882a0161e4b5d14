"""What memory that can be swapped costs a training that nobody disturbs: GPT and ResNet-50.

Two sorts of warm processes, started with `--swappable` and without, alternate on the idle GPU and
on the same CPUs. Their host memory is pinned before the first pair.
"""

from rig.residency import wait_for_pool
from rig.report import Report
from rows.cost import alternate, cpus, judge_ratio
from rows.latency import tiny, training_arguments

TITLE = "Cost of --swappable"
BOUND = 0.99


def arguments(parser):
    parser.add_argument("--only", choices=["gpt", "resnet"], action="append")
    parser.add_argument("--pairs", type=int, default=8, help="of each training")
    parser.add_argument("--seconds", type=float, default=3.5, help="of each cell")


def start_sorts(rig, name, script, arguments):
    """[(with, without)], not yet ready."""
    pin = ["--pin", cpus()]
    return [(rig.start(f"{name}-with", script, *arguments, *pin, swappable=True),
             rig.start(f"{name}-without", script, *arguments, *pin))]


def run(rig, report: Report):
    small = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch", 64]
    plans = {"gpt": ("GPT training", "gpt.py", training_arguments(rig)),
             "resnet": ("ResNet-50 training", "networks.py", ["--mode", "train", *small])}
    pairs = max(2, int(rig.options.pairs * rig.options.scale))
    wanted = rig.options.only or list(plans)
    started = {key: start_sorts(rig, key, script, arguments)
               for key, (_, script, arguments) in plans.items() if key in wanted}
    for sorts in started.values():
        for warm in sorts[0]:
            warm.ready(180)
    for sorts in started.values():
        with_it = sorts[0][0]
        wait_for_pool(rig, with_it.name, with_it.about.get("reserved_bytes", 0))
    for key, sorts in started.items():
        what = plans[key][0]
        rig.say(what)
        judge_ratio(report, what, key, alternate(rig, sorts, pairs, rig.options.seconds,
                                                 "steps_per_second"), BOUND)
        for warm in sorts[0]:
            warm.end()
