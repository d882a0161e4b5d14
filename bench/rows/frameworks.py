"""Unmodified frameworks finish with the same results with the preload library as without.

Each check of bench/checks runs three times, in any order beside others: with the library, with
memory that could be swapped, and without. Each run prints digests of its results. "identical" is
bit by bit; "close" is within one part in 10,000, for a framework that isn't deterministic by
itself. It counts as a miss unless two runs without the library differ too.
"""

import json
import math
import time

from rig.process import BENCH, python, tail
from rig.report import Report

TITLE = "Frameworks, with and without the library"
SIDES = ("with", "swappable", "without")

CHECKS = {
    "PyTorch, DataLoader workers by fork": ["torch_loader.py", "fork"],
    "PyTorch, DataLoader workers by spawn": ["torch_loader.py", "spawn"],
    "PyTorch, tensors of another process": ["torch_shared.py"],
    "torch.compile": ["torch_compile.py"],
    "JAX": ["jax_training.py"],
    "CuPy": ["cupy_work.py"],
    "Triton": ["triton_launch.py"],
    "NCCL, one GPU": ["nccl_one_gpu.py"],
    "transformers generate, CUDA graphs": ["transformers_generate.py"],
}


def arguments(parser):
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="checks whose name holds this")
    parser.add_argument("--at-once", type=int, default=6, help="processes at a time")
    parser.add_argument("--check-seconds", type=float, default=150, help="limit of one check")


class Run:
    """One run of one check."""

    def __init__(self, rig, what, command, side):
        self.what, self.command, self.side = what, command, side
        self.rig = rig
        self.process = None
        self.begun = 0.0
        self.failure = ""
        self.answer = None

    def start(self):
        name = f"{self.command[0].removesuffix('.py')}-{'-'.join(self.command[1:])}-{self.side}"
        name = name.replace("--", "-")
        # Caches of their own: a run that finds the other's kernels would compile nothing.
        cache = self.rig.scratch / f"cache-{name}"
        environment = {"TORCHINDUCTOR_CACHE_DIR": cache / "inductor",
                       "TRITON_CACHE_DIR": cache / "triton", "CUPY_CACHE_DIR": cache / "cupy"}
        under = "plain" if self.side == "without" else "switchyard"
        # JAX takes three quarters of what it sees; the quota leaves room for the others.
        knobs = {"memory": "16GiB"} if under == "switchyard" else {}
        if self.side == "swappable":
            knobs["swappable"] = True
        if under == "plain":
            environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.1"
        self.process = self.rig.once(name, [python(), BENCH / "checks" / self.command[0],
                                            *self.command[1:]], under=under,
                                     environment=environment, **knobs)
        self.process.stdin.close()
        self.begun = time.monotonic()

    def poll(self):
        """True when it is over."""
        if self.process.poll() is None:
            if time.monotonic() - self.begun < self.rig.options.check_seconds:
                return False
            self.process.kill()
            self.process.wait()
            self.failure = f"not done after {self.rig.options.check_seconds:.0f} s"
            return True
        output = self.process.stdout.read().decode(errors="replace").strip()
        if self.process.returncode != 0:
            self.failure = f"ended {self.process.returncode}: {tail(self.process.log, 8)}"
        else:
            try:
                self.answer = json.loads(output.splitlines()[-1])
            except (IndexError, ValueError):
                self.failure = f"said no result: {output[-300:]}"
        return True


def run_all(rig, runs):
    waiting, going = list(runs), []
    try:
        while waiting or going:
            while waiting and len(going) < rig.options.at_once:
                run = waiting.pop(0)
                run.start()
                going.append(run)
            for run in [run for run in going if run.poll()]:
                going.remove(run)
                rig.say(f"{run.what}, {run.side}: {run.failure or 'done'} "
                        f"({time.monotonic() - run.begun:.0f} s)")
            time.sleep(0.05)
    finally:
        for run in going:
            run.process.kill()
            run.process.wait()


def close(a, b):
    """Equal but for rounding; digests, being texts, must be equal or stand beside numbers."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6)
    return isinstance(a, str) or a == b


def compare(with_it, without):
    if with_it.failure or without.failure:
        side = with_it.side if with_it.failure else "without"
        return f"failed {side}", False
    a, b = with_it.answer["values"], without.answer["values"]
    if a == b:
        return "identical", True
    return ("close", False) if close(a, b) else ("different", False)


def run(rig, report: Report):
    some = {what: command for what, command in CHECKS.items()
            if not rig.options.only or any(text.lower() in what.lower()
                                           for text in rig.options.only)}
    runs = {what: {side: Run(rig, what, command, side) for side in SIDES}
            for what, command in some.items()}
    # The longest first, so that they don't stand alone at the end.
    order = sorted(runs, key=lambda what: "generate" not in what and "compile" not in what)
    run_all(rig, [run for what in order for run in runs[what].values()])
    # What differs is run once more without the library: does it agree with itself?
    again = {what: Run(rig, what, CHECKS[what], "without") for what, sides in runs.items()
             if any(compare(sides[side], sides["without"])[0] in ("close", "different")
                    for side in SIDES[:2])}
    run_all(rig, again.values())
    for what, sides in runs.items():
        without = sides["without"]
        for side, name in zip(SIDES, (what, "  with --swappable")):
            verdict, passed = compare(sides[side], without)
            if what in again and compare(again[what], without)[0] == verdict:
                verdict, passed = f"{verdict}, as two runs without", verdict == "close"
            report.judge(name, verdict, "the same as without", passed)
        report.keep(**{what: {side: run.failure or run.answer for side, run in sides.items()}})
        for side, run in sides.items():
            if run.failure:
                rig.say(f"{what}, {side}: {run.failure}")
