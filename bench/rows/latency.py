"""A high-priority service beside a low-priority training: alone, default, bare slices, Switchyard.

The service answers 50 requests a second: ResNet-50, batch 4, CUDA-graph replay, Poisson arrivals,
each timed from its scheduled arrival. The training is the 24-layer GPT. Default and Switchyard run
on the same warm processes. So do bare slices: 10 ms for the service, 20 us for the training, and
nothing else. They are the bound for all that is built on slices. A round has all cells. First the
service is alone. Then comes one run of the training: by itself, under the default, by bare slices
and under Switchyard. The last two change places in each round. In a round all but the default serve the same
arrivals, and the training is compared with itself a few seconds before. A p99 is that of the
requests of all rounds (rig/report.py: tail), and its ratio is drawn anew from pairs of stretches.
MPS has a cell as well.
"""

import time

from rig import bare
from rig.process import WorkloadFailed, rate_between
from rig.report import Report, interval, median, percentile, stretches, tail, tail_ratio
from rig.rig import ACTIVITY_WINDOW

TITLE = "High inference beside low training"
MOST_OVER_BARE_MS, LEAST_OF_BARE = 0.05, 0.99


def pair_arguments(parser, requests, default_requests):
    """Of the service and the training, for other rows as well."""
    parser.add_argument("--rate", type=float, default=50, help="requests per second")
    parser.add_argument("--requests", type=int, default=requests,
                        help="for alone, bare slices and Switchyard each")
    parser.add_argument("--default-requests", type=int, default=default_requests)
    parser.add_argument("--even", action="store_true",
                        help="evenly spaced arrivals: without the queue that Poisson's make")
    parser.add_argument("--high", choices=["graph", "gpt"], default="graph",
                        help="graph: ResNet-50 by graph replay; gpt: eager GPT, batch 1 x 128")
    parser.add_argument("--low", choices=["gpt", "resnet"], default="gpt",
                        help="the training: the 24-layer GPT, or ResNet-50 at batch 256")


def arguments(parser):
    pair_arguments(parser, requests=2400, default_requests=480)
    parser.add_argument("--rounds", type=int, default=4,
                        help="which share the requests: 33 s each at 2400")
    parser.add_argument("--mps-requests", type=int, default=700)
    parser.add_argument("--solo-seconds", type=float, default=4, help="of each round")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--plain", action="store_true",
                        help="the default's cells in processes without the preload library")


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


def training_run(rig, pair, requests, seed, default_requests, cells):
    """One run of the training: by itself, beside the default's service, beside that by bare slices,
    beside Switchyard's. Without `default_requests` the default has no cell here."""
    o = rig.options
    high, low = pair
    rig.means("none")
    low.start()
    time.sleep(rig.scaled(ACTIVITY_WINDOW))
    begin = time.monotonic()
    time.sleep(rig.scaled(o.solo_seconds))
    end = time.monotonic()
    served = []
    if default_requests:
        rig.say(f"default {seed}")
        served.append(high.serve(o.rate, default_requests, seed=seed, even=o.even))
        cells["default"] += served

    def bare_cell():
        rig.say(f"bare slices {seed}")
        with rig.bare_slices({high.name: bare.HIGH_US, low.name: bare.LOW_US}):
            served.append(high.serve(o.rate, requests, seed=seed, even=o.even))
        cells["bare"].append(served[-1])

    def switchyard_cell():
        rig.means("auto")
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        rig.say(f"switchyard {seed}")
        served.append(high.serve(o.rate, requests, seed=seed, even=o.even))
        cells["switchyard"].append(served[-1])
        cells["jobs"].append(rig.listing("ps")["jobs"])

    for part in (bare_cell, switchyard_cell) if seed % 2 else (switchyard_cell, bare_cell):
        part()
    trained = low.stop()
    solo = rate_between(trained, begin, end)
    for cell in served:
        cell["solo_steps_per_second"] = solo
        cell["training_steps_per_second"] = rate_between(trained, cell["begun"], cell["ended"])


def one_round(rig, pair, plain, seed, cells):
    o = rig.options
    requests = rig.counted(o.requests / o.rounds)
    default_requests = rig.counted(o.default_requests / o.rounds)

    def alone():
        rig.say(f"alone {seed}")
        time.sleep(rig.scaled(ACTIVITY_WINDOW))
        cells["alone"].append(pair[0].serve(o.rate, requests, seed=seed, even=o.even))

    def trained():
        rig.say(f"solo {seed}")
        training_run(rig, pair, requests, seed, 0 if plain else default_requests, cells)

    for part in (alone, trained) if seed % 2 else (trained, alone):
        part()
    if plain:
        rig.say(f"default {seed}")
        cells["default"].append(beside(rig, *plain, default_requests, seed))
        cells["default"][-1]["solo_steps_per_second"] = cells["switchyard"][-1][
            "solo_steps_per_second"]


def measure(rig, cells):
    o = rig.options
    low = training(rig, "train", priority="low", with_bare=True)
    high = service(rig, "serve", priority="high", with_bare=True)
    pair = (high, low)
    plain = ()
    if o.plain:
        plain = (service(rig, "serve-plain", under="plain"),
                 training(rig, "train-plain", under="plain"))
    mps = ()
    if not o.no_mps:
        mps = (service(rig, "serve-mps", under="mps", hold=True),
               training(rig, "train-mps", under="mps", hold=True))
    for warm in (*mps, *pair, *plain):
        warm.ready()  # MPS's hold: the frameworks are imported, the GPU is untouched
    rig.say(f"warm: {high.about} {low.about}")
    gpu_ms = high.ask(gpu_time=200)["gpu_time_ms"]
    for number in range(o.rounds):
        one_round(rig, pair, plain, number + 1, cells)
    if mps:
        mps_cell(rig, mps, cells)
    return gpu_ms


def latencies(cells):
    return [value for cell in cells for value in cell["latencies_ms"]]


def over_solo(cells):
    """Of each cell of the training that has a neighbour by itself."""
    return [cell["training_steps_per_second"] / cell["solo_steps_per_second"] for cell in cells]


def run(rig, report: Report):
    cells = {key: [] for key in ("alone", "bare", "switchyard", "default", "mps", "jobs")}
    report.keep(cells=cells)
    gpu_ms = measure(rig, cells)
    report.keep(gpu_time_ms=gpu_ms)
    solos = [cell["solo_steps_per_second"] for cell in cells["switchyard"]]
    for cell in cells["mps"]:
        cell["solo_steps_per_second"] = median(solos)
    report.note("GPU time of a request, alone", f"{gpu_ms:.3f} ms")
    report.note("training alone", f"{median(solos):.3f} steps/s",
                " ".join(f"{rate:.3f}" for rate in solos))
    alone = latencies(cells["alone"])
    report.note("alone: p50 / p99", f"{median(alone):.3f} / {tail(alone):.3f} ms",
                f"{len(alone)} requests, the single p99 {percentile(alone, 0.99):.3f} ms")
    for key in ("default", "mps", "bare", "switchyard"):
        if not cells[key]:
            report.note(f"{key}: p50 / p99", "not run")
            continue
        values = latencies(cells[key])
        report.note(f"{key}: p50 / p99", f"{median(values):.3f} / {tail(values):.3f} ms",
                    f"{tail(values) / tail(alone):.2f} x alone, {len(values)} requests, "
                    f"training {100 * median(over_solo(cells[key])):.1f} % of solo")
        kept = kept_cpu(cells[key])
        report.note("  of requests whose thread kept its CPU",
                    f"{median(kept):.3f} / {tail(kept):.3f} ms", f"{len(kept)}")
    judge(report, cells, 0.99 * (1 - rig.options.rate * gpu_ms / 1e3))


def judge(report, cells, left):
    """`left`: of the training's rate."""
    pairs = [stretch for alone, beside in zip(cells["alone"], cells["switchyard"])
             for stretch in stretches(alone["latencies_ms"], beside["latencies_ms"])]
    report.at_most("switchyard: p99 over p99 alone", tail_ratio(pairs), 1.10)
    report.ends(interval(pairs, tail_ratio, draws=1000), 1.10, f"{len(pairs)} stretches")
    trained = over_solo(cells["switchyard"])
    report.at_least("switchyard: training over solo", median(trained), left)
    report.ends(interval(trained), left, " ".join(f"{ratio:.3f}" for ratio in trained))
    judge_bare(report, latencies(cells["bare"]), latencies(cells["switchyard"]))
    over_bare = [ours / theirs for ours, theirs in zip(trained, over_solo(cells["bare"]))]
    report.at_least("switchyard: training over that of bare slices", median(over_bare),
                    LEAST_OF_BARE)


def kept_cpu(cells):
    """The latencies of the requests whose thread kept its CPU."""
    return [value for cell in cells
            for index, value in enumerate(cell["latencies_ms"]) if index not in cell["lost_cpu"]]


def judge_bare(report, bare_ms, ours_ms):
    """The figures of the mechanism alone bound those of all that is built on it."""
    for name, figure in (("p50", median), ("p99", tail)):
        report.at_most(f"switchyard: {name} over that of bare slices, ms",
                       figure(ours_ms) - figure(bare_ms), MOST_OVER_BARE_MS)
