"""What an armed gate costs the training behind it: GPT and ResNet-50.

A service of one short kernel a second keeps the gate of the training armed at its closest spacing.
`means gate` and `means none` take turns on the same processes, the service going on in both.
"""

from rig.report import Report, interval, median, spread
from rig.rig import RigError
from rows.latency import tiny, training_arguments

TITLE = "Cost of an armed gate"
BOUND = 0.99


def arguments(parser):
    parser.add_argument("--pairs", type=int, default=6, help="of each training")
    parser.add_argument("--seconds", type=float, default=3, help="of each cell")


def waits(rig, name):
    return sum(gpu["gate_waits"] for gpu in rig.job(name)["gpus"])


def run(rig, report: Report):
    o = rig.options
    small = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch", 64]
    trainings = {
        "GPT": rig.start("gpt", "gpt.py", *training_arguments(rig), priority="low"),
        "ResNet-50": rig.start("resnet", "networks.py", "--mode", "train", *small,
                               priority="low"),
    }
    beat = rig.start("beat", "loops.py", "--kernels", 1, priority="high")
    for warm in (*trainings.values(), beat):
        warm.ready()
    pairs = max(2, int(o.pairs * o.scale))
    seconds = rig.scaled(o.seconds)
    # More requests than the row lasts: the end of the process ends the rest.
    beat.send(serve={"rate": 1, "requests": 600, "even": True, "warm": 0})
    for what, low in trainings.items():
        rig.say(what)
        low.run(rig.scaled(2))
        cells = []
        for turn in range(pairs):
            cell = {}
            for means in ("gate", "none") if turn % 2 == 0 else ("none", "gate"):
                rig.means(means)
                before = waits(rig, low.name)
                cell[means] = low.run(seconds)["steps_per_second"]
                cell[f"{means} waits"] = waits(rig, low.name) - before
            cells.append(cell)
        report.keep(**{low.name: cells})
        if median([cell["gate waits"] for cell in cells]) == 0 and not tiny(rig):
            raise RigError(f"{what}: no wait was put into its streams: the gate was not armed")
        ratios = [cell["gate"] / cell["none"] for cell in cells]
        low_end, high_end = interval(ratios)
        report.at_least(f"{what}: armed / not", median(ratios), BOUND, "{:.4f}")
        report.note("  95 % of the median, spread", f"{low_end:.4f} .. {high_end:.4f}",
                    f"spread of pairs {spread(ratios):.4f}")
        report.note("  waits a second",
                    f"{median([cell['gate waits'] for cell in cells]) / seconds:.0f}",
                    f"{median([cell['none'] for cell in cells]):.2f} steps/s without")
