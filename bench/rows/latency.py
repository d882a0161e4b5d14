"""A high-priority service beside a low-priority training: alone, default, MPS, Switchyard.

The service answers 50 requests a second (ResNet-50, batch 4, CUDA-graph replay, Poisson arrivals,
each timed from its scheduled arrival); the training is the 24-layer GPT. Default and Switchyard
run on the same warm processes, in the order alone, Switchyard, default, solo, twice.
"""

import time

from rig.process import WorkloadFailed, rate_between
from rig.report import Report, median, percentile
from rig.rig import ACTIVITY_WINDOW

TITLE = "High inference beside low training"


def arguments(parser):
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=3000, help="for alone and Switchyard each")
    parser.add_argument("--default-requests", type=int, default=1000)
    parser.add_argument("--mps-requests", type=int, default=700)
    parser.add_argument("--solo-seconds", type=float, default=9, help="each of two")
    parser.add_argument("--even", action="store_true",
                        help="evenly spaced arrivals: without the queue that Poisson's make")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--plain", action="store_true",
                        help="the default's cells in processes without the preload library")
    parser.add_argument("--high", choices=["graph", "gpt"], default="graph",
                        help="graph: ResNet-50 by graph replay; gpt: eager GPT, batch 1 x 128")
    parser.add_argument("--low", choices=["gpt", "resnet"], default="gpt",
                        help="the training: the 24-layer GPT, or ResNet-50 at batch 256")


def tiny(rig):
    """Sizes for a stand-in on the CPU."""
    return rig.options.device != "cuda"


def training_arguments(rig, batch=8):
    if tiny(rig):
        return ["--layers", 1, "--width", 32, "--heads", 2, "--vocabulary", 100, "--length", 16,
                "--batch", 1]
    return ["--batch", batch]


def service(rig, name, **how):
    if rig.options.high == "gpt":
        sizes = (training_arguments(rig) if tiny(rig) else ["--batch", 1, "--length", 128])
        return rig.start(name, "gpt.py", "--mode", "infer", *sizes, **how)
    sizes = ["--batch", 1, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch", 4]
    return rig.start(name, "networks.py", "--mode", "graph", *sizes, **how)


def beside(rig, high, low, requests, seed):
    """One cell: the training runs from before the first request until after the last."""
    low.start()
    time.sleep(min(ACTIVITY_WINDOW, rig.scaled(ACTIVITY_WINDOW)))
    served = high.serve(rig.options.rate, requests, seed=seed, even=rig.options.even)
    trained = low.stop()
    served["training_steps_per_second"] = rate_between(trained, served["begun"], served["ended"])
    return served


def training(rig, name, **how):
    if rig.options.low == "resnet":
        sizes = ["--batch", 2, "--size", 32, "--warm", 2] if tiny(rig) else ["--batch", 256]
        return rig.start(name, "networks.py", "--mode", "train", *sizes, **how)
    return rig.start(name, "gpt.py", *training_arguments(rig), **how)


def mps_cell(rig, pair, cells):
    if not rig.start_mps():
        rig.say("no MPS control daemon here: its cell is left out")
        return
    try:
        for warm in pair:
            warm.send(init=True)
        for warm in pair:
            warm.ready()
        rig.say("MPS")
        cells["mps"].append(beside(rig, *pair, rig.counted(rig.options.mps_requests), seed=31))
    except WorkloadFailed as failure:  # it is a comparison: the others' figures stand without it
        rig.say(f"MPS: {failure}")


def measure(rig, cells):
    o = rig.options
    low = training(rig, "train", priority="low")
    high = service(rig, "serve", priority="high")
    pair = (high, low)
    default = pair
    if o.plain:
        default = (service(rig, "serve-plain", under="plain"),
                   training(rig, "train-plain", under="plain"))
    mps = None
    if not o.no_mps:
        mps = (service(rig, "serve-mps", under="mps", hold=True),
               training(rig, "train-mps", under="mps", hold=True))
        for warm in mps:
            warm.ready()  # holding: the frameworks are imported, the GPU is untouched
    for warm in {*pair, *default}:
        warm.ready()
    rig.say(f"warm: {high.about} {low.about}")
    gpu_ms = high.ask(gpu_time=200)["gpu_time_ms"]
    for seed in (1, 2):
        rig.say(f"alone {seed}")
        cells["alone"].append(
            high.serve(o.rate, rig.counted(o.requests / 2), seed=seed, even=o.even))
        rig.say(f"switchyard {seed}")
        cells["switchyard"].append(beside(rig, *pair, rig.counted(o.requests / 2), seed))
        cells["jobs"].append(rig.listing("ps")["jobs"])
        rig.say(f"default {seed}")
        rig.means("none")
        cells["default"].append(
            beside(rig, *default, rig.counted(o.default_requests / 2), seed))
        rig.say(f"solo {seed}")
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        cells["solo"].append(low.run(rig.scaled(o.solo_seconds)))
        rig.means("auto")
    if mps:
        mps_cell(rig, mps, cells)
    return gpu_ms


def latencies(cells):
    return [value for cell in cells for value in cell["latencies_ms"]]


def run(rig, report: Report):
    cells = {key: [] for key in ("alone", "switchyard", "default", "mps", "solo", "jobs")}
    report.keep(cells=cells)
    gpu_ms = measure(rig, cells)
    solo = median([cell["steps_per_second"] for cell in cells["solo"]])
    alone = latencies(cells["alone"])
    report.keep(gpu_time_ms=gpu_ms)
    report.note("GPU time of a request, alone", f"{gpu_ms:.3f} ms")
    report.note("training alone", f"{solo:.3f} steps/s",
                " ".join(f"{cell['steps_per_second']:.3f}" for cell in cells["solo"]))
    report.note("alone: p50 / p99", f"{median(alone):.3f} / {percentile(alone, 0.99):.3f} ms",
                f"{len(alone)} requests")
    trained = {}
    for key in ("default", "mps", "switchyard"):
        if not cells[key]:
            report.note(f"{key}: p50 / p99", "not run")
            continue
        values = latencies(cells[key])
        trained[key] = median([c["training_steps_per_second"] for c in cells[key]]) / solo
        report.note(f"{key}: p50 / p99",
                    f"{median(values):.3f} / {percentile(values, 0.99):.3f} ms",
                    f"{percentile(values, 0.99) / percentile(alone, 0.99):.2f} x alone, "
                    f"{len(values)} requests, training {100 * trained[key]:.1f} % of solo")
    p99 = percentile(latencies(cells["switchyard"]), 0.99) / percentile(alone, 0.99)
    report.at_most("switchyard: p99 over p99 alone", p99, 1.10)
    left = 1 - rig.options.rate * gpu_ms / 1e3
    report.at_least("switchyard: training over solo", trained["switchyard"], 0.99 * left)
