#!/usr/bin/env python3
"""Measures Switchyard on a real GPU: one subcommand for each row of docs/measurements.md.

    python3 bench/run.py latency --out results

Each takes at most four minutes, prints a short table last (PASS or MISS where there is a bound)
and writes OUT/ROW.json. Exit status: 0 all bounds kept, 1 a miss, 2 usage, 3 it could not measure.
bench/README.md says what each answers and how to read it.
"""

import argparse
import importlib
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rig.process import BENCH, WorkloadFailed  # noqa: E402
from rig.report import Report  # noqa: E402
from rig.rig import Rig, RigError  # noqa: E402

ONE_GPU = ("cost", "latency", "shares", "set", "uploads", "coverage", "quota", "frameworks",
           "crowd", "eight", "limit", "pause", "pausing", "gates", "armed", "held", "deadline",
           "clients", "figure6", "figure10", "joins", "release", "swappable", "state", "together",
           "idle", "arrival", "alternate", "ablation", "serving", "mixes", "regimes", "slowpath",
           "contexts", "iterations", "guard", "provision", "bills", "seen")
TWO_GPUS = ("gang", "gangs", "born", "spread", "migrate", "parking", "stalls", "urgent", "noise",
            "ddp", "ddp_shares", "ddp_service", "ddp_cost")
MANY_GPUS = ("machine",)  # four or more; the simulated ones will do
ENGINES = ("engines", "engine_cost", "engine_starts", "engine_beside", "engine_pair",
           "engine_parallel", "engine_grpo")  # vLLM, which `all` does not expect
LONG = ("island", "figure7")  # of one GPU, beyond the four minutes that `all` has for each
NO_GPU = ("strangers", "listings", "island_faults")  # the simulated one will do
ROWS = (*ONE_GPU, *TWO_GPUS, *MANY_GPUS, *ENGINES, *LONG, *NO_GPU)
MODULES = {"set": "changes"}  # a module named set would hide the builtin


def load(row):
    return importlib.import_module(f"rows.{MODULES.get(row, row)}")


def parse():
    row = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in ROWS else "all"
    about = (load(row) if row != "all" else sys.modules[__name__]).__doc__
    full = argparse.ArgumentParser(description=about,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    full.add_argument("row", choices=[*ROWS, "all"], help="what to measure")
    full.add_argument("--out", default=str(BENCH.parent / "build" / "bench-results"),
                      help="folder for ROW.json and logs")
    full.add_argument("--build", default=str(BENCH.parent / "build"), help="the build folder")
    full.add_argument("--limit", type=float, default=285, help="give up after so many seconds")
    full.add_argument("--scale", type=float, default=1,
                      help="shorten every duration, to try the bench itself")
    full.add_argument("--device", default="cuda", help="cpu: PyTorch workloads in tiny, no figures")
    full.add_argument("--keep-logs", action="store_true", help="copy the processes' logs to --out")
    full.add_argument("--shim-log", default="", help="SWITCHYARD_LOG of the jobs, such as info")
    if row != "all":
        load(row).arguments(full)
    return full


def measure(row, options):
    module = load(row)
    report = Report(row, module.TITLE, options)
    try:
        with Rig(options, row) as rig:
            module.run(rig, report)
        report.warned(rig.warnings)
    except (RigError, WorkloadFailed) as error:
        print(f"bench: {row}: {error}", file=sys.stderr)
        report.save(failure=str(error))
        return 3
    except Exception as error:
        traceback.print_exc()
        report.save(failure=repr(error))
        return 3
    return 1 if report.finish() else 0


def main():
    full = parse()
    options = full.parse_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    if options.row != "all":
        return measure(options.row, options)
    worst = 0
    for row in ONE_GPU:
        own = argparse.ArgumentParser()
        load(row).arguments(own)
        combined = argparse.Namespace(**{**vars(own.parse_args([])), **vars(options)})
        worst = max(worst, measure(row, combined))
    return worst


if __name__ == "__main__":
    sys.exit(main())
