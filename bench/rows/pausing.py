"""A training that is paused and resumed at random moments computes what it computes undisturbed.

Two undisturbed runs first: without equal losses there the comparison would say nothing.
"""

import json
import random
import time

from rig.process import BENCH, python
from rig.report import Report
from rig.rig import RigError

TITLE = "Training paused and resumed at random"


def arguments(parser):
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--pauses", type=int, default=200)


def start(rig, name, steps):
    process = rig.once(name, [python(), BENCH / "checks" / "paused_training.py", steps],
                       under="switchyard")
    if not process.stdout.readline():
        raise RigError(f"{name} ended: {process.log.read_text()}")
    return process


def finish(process, name):
    line = process.stdout.readline()
    if process.wait(timeout=60) != 0 or not line:
        raise RigError(f"{name} ended {process.returncode}: {process.log.read_text()}")
    return json.loads(line)


def run(rig, report: Report):
    steps = max(30, int(rig.options.steps * rig.options.scale))
    pauses = max(3, int(rig.options.pauses * rig.options.scale))
    undisturbed = []
    for index in range(2):
        rig.say(f"undisturbed {index + 1}")
        undisturbed.append(finish(start(rig, f"plain-{index}", steps), f"plain-{index}"))
    rig.say("disturbed")
    random.seed(5)
    process = start(rig, "disturbed", steps)
    done = 0
    while done < pauses and process.poll() is None:
        time.sleep(random.uniform(0.0, 0.05))
        paused = rig.cli("pause", "disturbed", check=False)
        time.sleep(random.uniform(0.0, 0.05))
        resumed = rig.cli("resume", "disturbed", check=False)
        done += paused.returncode == 0 and resumed.returncode == 0
    disturbed = finish(process, "disturbed")
    report.keep(undisturbed=undisturbed, disturbed=disturbed, pauses=done)
    report.judge("two undisturbed runs", undisturbed[0]["losses"][:12], "equal losses",
                 undisturbed[0]["losses"] == undisturbed[1]["losses"])
    report.judge("pauses that fell into the run", str(done), f"at least {pauses}", done >= pauses)
    report.judge("disturbed", disturbed["losses"][:12], "equal losses",
                 disturbed["losses"] == undisturbed[0]["losses"])
    report.note("seconds undisturbed, disturbed",
                f"{undisturbed[0]['seconds']:.1f}, {disturbed['seconds']:.1f}")
