"""SwitchFlow's Table 1 on today's stack: how long the state of a training takes out and in.

Warm trainings under SGD with momentum, one after the other. Each trains for a moment before each
round, so that its state has changed since it last came in. Memory that PyTorch caches and doesn't
use is given back then, because it is no state. `swap-out` and `swap-in` by the monitor's socket;
the MiB are what NVML shows less. Model and optimizer are compared bit by bit in each round. A
network that isn't installed is left out.
"""

import time

from rig.process import WorkloadFailed
from rig.report import Report, median
from rig.residency import used_bytes, wait_for_pool
from rows.latency import tiny

TITLE = "SwitchFlow's Table 1: state of a training, out and in"
MODELS = ("resnet50", "vgg16", "vgg19", "densenet121", "densenet169", "inceptionresnetv2",
          "inceptionv3", "mobilenetv2")
LARGE, LEAST_RATE = 400 << 20, 40  # GB/s
SMALL, MOST_MS = 256 << 20, 5


def arguments(parser):
    parser.add_argument("--only", choices=MODELS, action="append")
    parser.add_argument("--rounds", type=int, default=5, help="of each network")
    parser.add_argument("--batch", type=int, default=32)
    # Its segments give back what no state is in by pages; without them, only as a whole.
    parser.add_argument("--expandable", action="store_true", help="PyTorch's expandable segments")


def timed(rig, op, name):
    monitor = rig.connect()
    begun = time.monotonic()
    monitor.ask(op=op, target=name)
    return time.monotonic() - begun


def one_round(rig, job):
    job.run(rig.scaled(0.2))
    state = settle(job)["before"]
    before = used_bytes()
    out = timed(rig, "swap-out", job.name)
    away = before - used_bytes()
    back = timed(rig, "swap-in", job.name)
    return {"bytes": away, "out": out, "in": back, "equal": job.ask(do="digest") == state}


def settle(job):
    """Leaves the state alone on the GPU."""
    return {"before": job.ask(do="digest"), **job.ask(do="empty_cache")}


def measure(rig, model, job, settled):
    rounds = [one_round(rig, job)
              for _ in range(max(2, int(rig.options.rounds * rig.options.scale)))]
    going_on = job.run(rig.scaled(0.5))["steps"]
    return {"model": model, "state_bytes": settled["before"]["bytes"], **settled, "rounds": rounds,
            "equal": all(one["equal"] for one in rounds), "steps_afterwards": going_on}


def start(rig, model):
    small = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch",
                                                                         rig.options.batch]
    segments = ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if rig.options.expandable
                else {})
    return rig.start(f"state-{model}", "networks.py", "--mode", "train", "--model", model, *small,
                     environment=segments, swappable=True)


def run(rig, report: Report):
    if rig.options.expandable:
        report.row += "-expandable"  # a file of its own
    jobs = {model: start(rig, model) for model in rig.options.only or MODELS}
    cells = []
    report.keep(cells=cells)
    ready = {}
    for model, job in jobs.items():
        try:
            ready[model] = job.ready(180)
        except WorkloadFailed as failure:
            rig.say(str(failure))
            report.note(model, "left out", failure.why)
    settled = {model: settle(job) for model, job in ready.items()}
    for model, job in ready.items():  # before the first is timed: pinning is work for the host
        wait_for_pool(rig, job.name, settled[model]["reserved_bytes"])
    for model, job in ready.items():
        rig.say(model)
        cells.append(measure(rig, model, job, settled[model]))
        job.end()
        judge(report, cells[-1])


def judge(report, cell):
    rounds = cell["rounds"]
    size = median([one["bytes"] for one in rounds])
    out, back = (median([one[key] for one in rounds]) for key in ("out", "in"))
    report.note(f"{cell['model']}: {size / (1 << 20):.0f} MiB, out + in",
                f"{1e3 * out:.1f} + {1e3 * back:.1f} ms",
                f"{cell['state_bytes'] / (1 << 20):.0f} MiB of model and optimizer")
    slowest = max(out, back)
    if size >= LARGE:
        report.at_least("  GB/s, the slower way", size / slowest / 1e9, LEAST_RATE, "{:.1f}")
    elif size <= SMALL:
        report.at_most("  ms, the slower way", 1e3 * slowest, MOST_MS, "{:.1f}")
    report.judge("  bits, and goes on", f"{'equal' if cell['equal'] else 'differ'}, "
                 f"{cell['steps_afterwards']} steps", "equal",
                 cell["equal"] and cell["steps_afterwards"] > 0)
