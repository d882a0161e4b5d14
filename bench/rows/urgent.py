"""FSDP2 as it is, with `--urgent-collectives` and without, and with the script's change instead:
the same losses in fewer milliseconds?

Two ranks train a GPT over a slow network (NCCL's sockets over loopback), and over what links their
GPUs. Variants take turns, in processes of their own. Over those links two processes of one variant
differ by more than the option could change. So two warm ones of each take turns there as well
(rig/warm_ranks.py).

`--ddp` asks instead whether slices, or later buckets that overtake, help DDP. Nothing below the
framework could do more, because the optimizer waits for all of them. With one GPU both ranks use
it, over sockets alone; then no bound is judged, for the ranks take turns on the GPU.
"""

import json

from checks.rank_setup import free_port
from rig import warm_ranks
from rig.process import BENCH, python
from rig.ranks import RANKS, SOCKETS
from rig.report import Report, interval, median
from rig.residency import nvml
from rig.rig import RigError

TITLE = "Reduce-scatters on a communicator of their own"
# name: (mode of the script, whether the option is on)
FSDP = {"off": ("fsdp", False), "on": ("fsdp", True), "script": ("fsdp-two", False)}
DDP = {"stock": ("ddp", False), "sliced": ("ddp-sliced", False), "ahead": ("ddp-ahead", False)}
LEAST_GAIN, LEAST_OF_SCRIPT, LEAST_RATE = 0.12, 0.8, 0.99


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=2,
                        help="of all variants, there and back; 0: only the warm ones")
    parser.add_argument("--steps", type=int, default=40, help="of each process")
    parser.add_argument("--warm", type=int, default=10, help="of these, that are not counted")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024,
                        help="24 layers of 1024: 370 million parameters; of 2048: 1.3 billion")
    parser.add_argument("--nets", default="sockets,links", help="only these")
    parser.add_argument("--variants", help="only these, such as off,on")
    parser.add_argument("--ddp", action="store_true", help="slices and overtaking buckets of DDP")
    parser.add_argument("--turns", type=int, default=40, help="of the warm ones, over links; 0: none")
    parser.add_argument("--turn-steps", type=int, default=5,
                        help="of a turn; a host's CPUs change their pace within seconds")
    parser.add_argument("--batch", type=int, default=4,
                        help="of a rank of the warm ones; 4 is bound by launches, 16 by the GPU")
    parser.add_argument("--processes", type=int, default=2, help="warm ones of each variant")
    parser.add_argument("--sockets", type=int, help="of each NCCL channel; NCCL's default is 1")


def gpus():
    for count in range(RANKS, 0, -1):
        try:
            nvml(count - 1)
            return count
        except RigError:
            continue
    raise RigError("NVML has no GPU")


def environment(rig, net):
    if net != "sockets":
        return {}
    more = {"NCCL_SOCKET_NTHREADS": rig.options.sockets} if rig.options.sockets else {}
    return {**SOCKETS, **more}


def train(rig, name, mode, urgent, net):
    o = rig.options
    rig.say(name)
    torchrun = [python(), "-m", "torch.distributed.run", "--nproc-per-node", RANKS,
                "--master-port", free_port()]
    knobs = {"urgent_collectives": True} if urgent else {}
    process = rig.once(name, [*torchrun, BENCH / "checks" / "sharded_training.py", mode, o.steps,
                              o.layers, o.width],
                       under="switchyard", environment=environment(rig, net), **knobs)
    # Only rank 0 speaks; torchrun may say more.
    lines = rig.wait_for(name, process, timeout=600).decode().splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("{")))


def measure(rig, net, variants, runs):
    """To `runs`, which are kept also where the limit comes first: of each variant, what each of its
    runs said."""
    runs.update({variant: [] for variant in variants})
    for index in range(rig.options.rounds):
        order = list(variants) if index % 2 == 0 else list(reversed(variants))
        for variant in order:
            mode, urgent = variants[variant]
            runs[variant].append(train(rig, f"{net}-{variant}-{index}", mode, urgent, net))


def step_ms(rig, runs):
    """Of each run, the median step."""
    return [median(run["milliseconds"][rig.options.warm:]) for run in runs]


def all_equal(runs):
    losses = [run["losses"] for each in runs.values() for run in each]
    return all(each == losses[0] for each in losses)


def judge(report, net, each, judged):
    """each: of each variant, a step's milliseconds of each of its runs."""
    gains = {variant: median(each["off"]) / median(ms) - 1 for variant, ms in each.items()}
    for variant, what in (("on", "the option"), ("script", "the script's change")):
        if variant in gains:
            report.note(f"{net}: faster by {what}", f"{100 * gains[variant]:+.1f} %")
    if not judged or "on" not in gains or net != "sockets":
        return
    report.at_least(f"{net}: faster by the option", gains["on"], LEAST_GAIN)
    if "script" in gains:
        report.at_least(f"{net}: of the gain by the script's change",
                        gains["on"] / gains["script"], LEAST_OF_SCRIPT)


def compare(rig, report, net, variants, runs, judged):
    measure(rig, net, variants, runs)
    each_ms = {variant: step_ms(rig, each) for variant, each in runs.items()}
    for variant, ms in each_ms.items():
        # Runs that differ by themselves can't be compared with those of another variant.
        same = "" if rig.options.rounds < 2 else (
            "losses of its runs equal" if all_equal({variant: runs[variant]})
            else "losses of its runs differ")
        report.note(f"{net}: a step, ms, {variant}", f"{median(ms):.1f}", same)
    if not rig.options.ddp and "off" in variants:
        judge(report, net, each_ms, judged)
    report.judge(f"{net}: losses of all runs", f"{rig.options.steps} steps", "equal",
                 all_equal(runs))


def judge_rate(rig, report):
    """With the option and without it, over what links the GPUs."""
    o = rig.options
    rig.say("links: warm")
    variants = {"off": {}, "on": {"urgent_collectives": True}}
    jobs = warm_ranks.start(rig, f"fsdp{o.batch}", variants, o.processes, "--layers", o.layers,
                            "--width", o.width)
    rates = {}
    report.keep(warm_rates=rates)
    try:
        warm_ranks.measure(jobs, o.turns, o.turn_steps, rates)
    finally:
        warm_ranks.end(jobs)
    ratios = warm_ranks.ratios(rates, "on", "off")
    for name, each in rates.items():
        report.note(f"links: steps/s, warm, {name}", f"{median(each):.2f}")
    report.at_least("links: rate with the option, over that without", median(ratios), LEAST_RATE,
                    "{:.4f}")
    report.ends(interval(ratios), LEAST_RATE, form="{:.4f}")


def run(rig, report: Report):
    variants = DDP if rig.options.ddp else FSDP
    if rig.options.variants:
        variants = {name: variants[name] for name in rig.options.variants.split(",")}
    have = gpus()
    if have < RANKS:
        rig.means("none")  # a rank waits in a kernel, so a long slice would be spent on waiting
    kept = {}
    report.keep(runs=kept, gpus=have)
    for net in rig.options.nets.split(","):
        if net != "sockets" and have < RANKS:
            report.note(net, "left out", "one GPU has no link")
            continue
        if rig.options.rounds > 0:
            compare(rig, report, net, variants, kept.setdefault(net, {}), have >= RANKS)
        if net != "sockets" and rig.options.turns > 0 and not rig.options.ddp:
            judge_rate(rig, report)
