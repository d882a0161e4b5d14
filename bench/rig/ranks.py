"""Jobs of two ranks or more by torchrun, one on each GPU, or all on one.

With --one-gpu a machine of one GPU can try what ranks need (checks/rank_setup.py).

Threading: one thread.
"""

import json

from checks.rank_setup import free_port
from rig.process import BENCH, python, rate_between
from rig.residency import nvml
from rig.rig import RigError

RANKS = 2  # of a job, unless --ranks says more
# Arguments of checks/ddp_training.py: 370 million parameters.
GPT = ("--gpt", "--layers", 24, "--width", 1024, "--batch", 4)
# A slow network between ranks on one host.
SOCKETS = {"NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1, "NCCL_NET": "Socket",
           "NCCL_SOCKET_IFNAME": "lo"}


def arguments(parser):
    parser.add_argument("--one-gpu", action="store_true",
                        help="all ranks on GPU 0, connected by sockets, as if on several hosts")


def number_argument(parser):
    parser.add_argument("--ranks", type=int, default=RANKS, help="of each job")


def number(rig):
    """Of a job's ranks."""
    return getattr(rig.options, "ranks", RANKS)


def one_gpu_each(count=RANKS):
    """For rows whose ranks have a GPU each."""
    nvml(count - 1)  # says so if there is none


def prepare(rig):
    if not rig.options.one_gpu:
        one_gpu_each(number(rig))
        return
    nvml()
    rig.means("none")  # a rank waits in a kernel, so a long slice would be spent on waiting


def start(rig, name, check, *arguments, under="switchyard", **knobs):
    """Starts one of checks/ that says what rank_run.py says; ready() waits until all ranks work."""
    torchrun = [python(), "-m", "torch.distributed.run", "--nproc-per-node", number(rig),
                "--master-port", free_port()]
    one_gpu = ["--one-gpu"] if rig.options.one_gpu else []
    process = rig.once(name, [*torchrun, BENCH / "checks" / check, *arguments, *one_gpu],
                       under=under, **(knobs if under == "switchyard" else {}))
    process.name = name
    return process


def ready(process):
    if not process.stdout.readline():
        raise RigError(f"{process.name} ended: {process.log.read_text()}")
    return process


def finish(rig, process, timeout=300):
    return json.loads(rig.wait_for(process.name, process, timeout))


def whole_run(rig, name, check, *arguments, **how):
    rig.say(name)
    return finish(rig, ready(start(rig, name, check, *arguments, **how)))


def batch_argument(parser):
    parser.add_argument("--batch", type=int, default=96,
                        help="of a rank; 16 is bound by launches, 96 by the GPU")


def counting(rig, name, mode, *arguments, **how):
    """Starts a training without end that counts its steps (checks/counted_training.py)."""
    command = [python(), BENCH / "checks" / "counted_training.py", mode, *arguments]
    return rig.start_program(name, command, **how)


def step_rates(job, spans):
    """Steps per second of such a training in each of the spans."""
    said = job.ask(ask=True)
    every = said["waits_every"]
    # Before each of these the CPU had waited for the GPU: all earlier steps were complete.
    waited = said["moments"][::every]
    return [every * rate_of_whole(waited, *span) for span in spans]


def rate_of_whole(stamps, begin, end):
    """Stretches per second, by those that lie wholly between `begin` and `end`. A stretch that goes
    on after the end does not tell how much of it was done before."""
    inside = [stamp for stamp in stamps if begin <= stamp <= end]
    if len(inside) < 2:
        return rate_between({"completions": stamps, "begun": stamps[0]}, begin, end)
    return (len(inside) - 1) / (inside[-1] - inside[0])
