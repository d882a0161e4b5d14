"""FSDP2 as it is, with `--urgent-collectives` and without, and with the script's change instead:
the same losses in fewer milliseconds?

Two ranks train a GPT over a slow network (NCCL's sockets over loopback), and over what links their
GPUs. Variants take turns, in processes of their own. `--ddp` asks instead whether slices, or later
buckets that overtake, help DDP; nobody below the framework could do more, for the optimizer waits
for all of them. With one GPU both ranks use it, over sockets alone; then no bound is judged, for
the ranks take turns on the GPU.
"""

import json

from checks.rank_setup import free_port
from rig.process import BENCH, python
from rig.ranks import RANKS, SOCKETS
from rig.report import Report, median
from rig.residency import nvml
from rig.rig import RigError

TITLE = "Reduce-scatters on a communicator of their own"
# name: (mode of the script, whether the option is on)
FSDP = {"off": ("fsdp", False), "on": ("fsdp", True), "script": ("fsdp-two", False)}
DDP = {"stock": ("ddp", False), "sliced": ("ddp-sliced", False), "ahead": ("ddp-ahead", False)}
LEAST_GAIN, LEAST_OF_SCRIPT, LEAST_RATE = 0.12, 0.8, 0.99


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=2, help="of all variants, there and back")
    parser.add_argument("--steps", type=int, default=40, help="of each process")
    parser.add_argument("--warm", type=int, default=10, help="of these, that are not counted")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024,
                        help="24 layers of 1024: 370 million parameters; of 2048: 1.3 billion")
    parser.add_argument("--nets", default="sockets,links", help="only these")
    parser.add_argument("--ddp", action="store_true", help="slices and overtaking buckets of DDP")
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


def measure(rig, net, variants):
    """Of each variant: what each of its runs said."""
    runs = {variant: [] for variant in variants}
    for index in range(rig.options.rounds):
        order = list(variants) if index % 2 == 0 else list(reversed(variants))
        for variant in order:
            mode, urgent = variants[variant]
            runs[variant].append(train(rig, f"{net}-{variant}-{index}", mode, urgent, net))
    return runs


def step_ms(rig, runs):
    return median([each for run in runs for each in run["milliseconds"][rig.options.warm:]])


def all_equal(runs):
    losses = [run["losses"] for each in runs.values() for run in each]
    return all(each == losses[0] for each in losses)


def judge(report, net, ms, judged):
    gain, scripts = (ms["off"] / ms[each] - 1 for each in ("on", "script"))
    if not judged:
        report.note(f"{net}: faster by the option", f"{100 * gain:+.1f} %")
        report.note(f"{net}: faster by the script's change", f"{100 * scripts:+.1f} %")
    elif net == "sockets":
        report.at_least(f"{net}: faster by the option", gain, LEAST_GAIN)
        report.at_least(f"{net}: of the gain by the script's change", gain / scripts,
                        LEAST_OF_SCRIPT)
    else:
        report.at_least(f"{net}: rate with the option, over that without", 1 + gain, LEAST_RATE)
        report.note(f"{net}: faster by the script's change", f"{100 * scripts:+.1f} %")


def run(rig, report: Report):
    variants = DDP if rig.options.ddp else FSDP
    have = gpus()
    if have < RANKS:
        rig.means("none")  # a rank waits in a kernel, so a long slice would be spent on waiting
    kept = {}
    report.keep(runs=kept, gpus=have)
    for net in rig.options.nets.split(","):
        if net != "sockets" and have < RANKS:
            report.note(net, "left out", "one GPU has no link")
            continue
        kept[net] = measure(rig, net, variants)
        ms = {variant: step_ms(rig, runs) for variant, runs in kept[net].items()}
        for variant, each in ms.items():
            # Runs that differ by themselves can't be compared with those of another variant.
            same = "" if rig.options.rounds < 2 else (
                "losses of its runs equal" if all_equal({variant: kept[net][variant]})
                else "losses of its runs differ")
            report.note(f"{net}: a step, ms, {variant}", f"{each:.1f}", same)
        if not rig.options.ddp:
            judge(report, net, ms, have >= RANKS)
        report.judge(f"{net}: losses of all runs", f"{rig.options.steps} steps", "equal",
                     all_equal(kept[net]))
