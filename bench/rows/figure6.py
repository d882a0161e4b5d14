"""SwitchFlow's Figure 6 on today's stack: p95 of inference at batch 1 beside training at batch 32.

Inference of ResNet-50, MobileNetV2 and an LSTM by graph replay, beside training of MobileNetV2,
ResNet-50 and VGG16 (bf16). Every cell of an inference has the same Poisson arrivals. Default and
Switchyard are the same processes; MPS has its own, last.
"""

import time

from rig.report import Report, percentile
from rig.rig import ACTIVITY_WINDOW
from rows.latency import tiny

TITLE = "SwitchFlow's Figure 6: p95 of inference beside training"
INFERENCES = ("resnet50", "mobilenetv2", "lstm")
TRAININGS = ("mobilenetv2", "resnet50", "vgg16")
BOUND = 1.3


def arguments(parser):
    parser.add_argument("--rate", type=float, default=100, help="requests per second")
    parser.add_argument("--requests", type=int, default=300, help="of each cell")
    parser.add_argument("--no-mps", action="store_true")


def start(rig, under, suffix=""):
    """({inference: process}, {training: process}); under MPS they hold until told to begin."""
    small = ["--size", 32, "--warm", 2] if tiny(rig) else []
    hold = under == "mps"
    highs = {model: rig.start(f"serve-{model}{suffix}", "networks.py", "--mode", "graph",
                              "--model", model, "--batch", 1, *small, under=under, hold=hold,
                              priority="high") for model in INFERENCES}
    lows = {model: rig.start(f"train-{model}{suffix}", "networks.py", "--mode", "train",
                             "--model", model, "--batch", 2 if tiny(rig) else 32, *small,
                             under=under, hold=hold, priority="low") for model in TRAININGS}
    return highs, lows


def serve(rig, high, seed):
    return high.serve(rig.options.rate, rig.counted(rig.options.requests), seed=seed)


def beside(rig, key, highs, lows, cells):
    """All nine cells of one column."""
    for seed, (inference, high) in enumerate(highs.items()):
        for training, low in lows.items():
            rig.say(f"{key}: {inference} beside {training}")
            time.sleep(rig.scaled(ACTIVITY_WINDOW if key == "switchyard" else 0.2))
            low.start()
            time.sleep(rig.scaled(0.5))
            cell = serve(rig, high, seed)
            cell["training_steps_per_second"] = low.stop()["steps_per_second"]
            cells[inference][training][key] = cell


def run(rig, report: Report):
    cells = {inference: {"alone": [], **{training: {} for training in TRAININGS}}
             for inference in INFERENCES}
    report.keep(cells=cells)
    highs, lows = start(rig, "switchyard")
    mps = None if rig.options.no_mps else start(rig, "mps", "-mps")
    for part in (highs, lows, *(mps or ())):
        for warm in part.values():
            warm.ready()  # under MPS: holding

    def alone():
        for seed, (inference, high) in enumerate(highs.items()):
            time.sleep(rig.scaled(0.5))
            cells[inference]["alone"].append(serve(rig, high, seed))

    rig.say("alone")
    alone()
    beside(rig, "switchyard", highs, lows, cells)
    rig.means("none")
    beside(rig, "default", highs, lows, cells)
    rig.say("alone, again")
    alone()
    if mps and rig.start_mps():
        for part in mps:
            for warm in part.values():
                warm.send(init=True)
        for part in mps:
            for warm in part.values():
                warm.ready()
        beside(rig, "mps", *mps, cells)
    judge(report, cells)


def p95(cells):
    return percentile([value for cell in cells for value in cell["latencies_ms"]], 0.95)


def judge(report, cells):
    for inference in INFERENCES:
        alone = p95(cells[inference]["alone"])
        report.note(f"{inference}: p95 alone", f"{alone:.3f} ms")
        for training in TRAININGS:
            columns = cells[inference][training]
            got = {key: p95([cell]) for key, cell in columns.items()}
            ours = got.pop("switchyard")
            report.judge(f"  beside {training}", f"{ours:.3f} ms, {ours / alone:.2f} x",
                         f"at most {BOUND} x; "
                         + ", ".join(f"{key} {value:.3f}" for key, value in got.items()),
                         ours <= BOUND * alone and ours <= min(got.values()))
