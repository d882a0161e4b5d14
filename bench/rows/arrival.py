"""PipeSwitch's Figure 5: a request arrives at a warm service beside a training.

ResNet-152, Inception-v3 and BERT-base at batch 8, by graph replay. Each is timed ready on the idle
GPU. Then it is timed as a high job beside a low GPT training, resident and swapped out. With
`--idle-release` its memory has left by itself, so the request finds it out and brings it back. (A
job that `swap-out` moved out stays out until a person moves it in.) The GPU has room for all: the
training gives nothing. A model that isn't installed is left out.
"""

from rig.process import WorkloadFailed
from rig.report import Report, median
from rig.residency import on_gpu, wait_for_pool, wait_until_out
from rows.latency import tiny, training_arguments

TITLE = "PipeSwitch's Figure 5: a request at a service beside a training"
MODELS = ("resnet152", "inceptionv3", "bert")
RESIDENT_MS = 2.0  # that a resident service may take more than when ready
SWAPPED_MS = 3.0   # and a swapped one, beside its bytes at LINK
LINK = 45e9        # bytes per second


def arguments(parser):
    parser.add_argument("--only", choices=MODELS, action="append")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--requests", type=int, default=30, help="ready and resident, each")
    parser.add_argument("--arrivals", type=int, default=12, help="that find the service out")
    # A request every 0.1 s must keep it there.
    parser.add_argument("--idle-release", default="0.5s", help="of the services")


def start_service(rig, model, mode, **knobs):
    sizes = (["--batch", 1, "--size", 32, "--warm", 2] if tiny(rig)
             else ["--batch", rig.options.batch])
    return rig.start(f"{model}-{mode}", "networks.py", "--mode", mode, "--model", model, *sizes,
                     **knobs)


def services(rig, report, models, **knobs):
    """{model: service}, warm, all started at once. A model that can't be captured as a graph
    launches its kernels one by one. One that does not run at all is left out."""
    started = {model: start_service(rig, model, "graph", **knobs) for model in models}
    ready = {}
    for model, service in started.items():
        try:
            ready[model] = service.ready(90)
        except WorkloadFailed as failure:
            rig.say(str(failure))
            service.end()  # it may only have been silent
            try:
                ready[model] = start_service(rig, model, "eager", **knobs).ready(60)
                report.note(f"{model}: not captured as a graph", "eager")
            except WorkloadFailed as again:
                report.note(model, "left out", again.why)
    return ready


def settle(rig, service):
    """Leaves on the GPU what the service uses, and pins the host's part of it."""
    service.run(rig.scaled(0.5))
    kept = service.ask(do="empty_cache")
    service.run(rig.scaled(0.5))  # what it takes anew each time stays again
    if not tiny(rig):
        wait_for_pool(rig, service.name, kept["reserved_bytes"], 60)


def latencies(rig, service, seed):
    """Evenly spaced; the first ones, not counted, bring it back where it has left."""
    return service.serve(10, rig.counted(rig.options.requests), seed=seed, warm=10,
                         even=True)["latencies_ms"]


def arrival(rig, service):
    """One request that finds the service out."""
    wait_until_out(rig, service.name)
    out = on_gpu(rig, service.name)["memory_resident_bytes"]
    latency = service.serve(5, 1, warm=0, even=True)["latencies_ms"][0]
    back = on_gpu(rig, service.name)["memory_resident_bytes"]
    return {"ms": latency, "resident_before": out, "resident_after": back, "bytes": back - out}


def beside(rig, service, cell):
    """The training is at work."""
    cell["resident_ms"] = latencies(rig, service, seed=2)
    if tiny(rig):
        return  # the CPU's memory does not move
    arrival(rig, service)  # the first move loads what moving needs
    for _ in range(max(3, int(rig.options.arrivals * rig.options.scale))):
        cell["arrivals"].append(arrival(rig, service))


def run(rig, report: Report):
    cells = {}
    report.keep(cells=cells)
    training = rig.start("training", "gpt.py", *training_arguments(rig), priority="low")
    ready = services(rig, report, rig.options.only or MODELS, priority="high",
                     idle_release=rig.options.idle_release)
    training.ready(90)
    for model, service in ready.items():
        cell = cells[model] = {"arrivals": [], "made_of": service.about.get("made_of", "")}
        rig.say(model)
        try:
            settle(rig, service)
            cell["ready_ms"] = latencies(rig, service, seed=1)
            training.start()
            try:
                beside(rig, service, cell)
            finally:
                cell["training_steps_per_second"] = training.stop()["steps_per_second"]
            judge(rig, report, model, cell)
        except WorkloadFailed as failure:  # the others' figures stand without it
            cell["failure"] = str(failure)
            rig.say(f"{model}: {failure}")
            report.judge(model, "failed", failure.why[:70], False)
        service.end()
    report.judge("services measured", str(len(cells)), "at least 1", bool(cells))


def judge(rig, report, model, cell):
    ready = median(cell["ready_ms"])
    report.note(f"{model}: ready, alone", f"{ready:.2f} ms",
                " ".join([cell["made_of"], f"beside it {cell['training_steps_per_second']:.2f} "
                          "training steps/s"]).strip())
    report.at_most("  resident beside the training", median(cell["resident_ms"]),
                   ready + RESIDENT_MS, "{:.2f} ms")
    if tiny(rig):
        return
    size = median([one["bytes"] for one in cell["arrivals"]])
    report.at_most("  swapped out beside the training",
                   median([one["ms"] for one in cell["arrivals"]]),
                   ready + 1e3 * size / LINK + SWAPPED_MS, "{:.2f} ms")
    report.note("    that came back for it", f"{size / (1 << 20):.0f} MiB",
                f"{len(cell['arrivals'])} arrivals, "
                f"{min(one['ms'] for one in cell['arrivals']):.2f} to "
                f"{max(one['ms'] for one in cell['arrivals']):.2f} ms")
