"""Deaths and faults in an island, and a plain job outside that does not feel them.

Faults of three kinds take turns: kill -9 of a member, an illegal address in a member, kill -9 of
the MPS server. Members and the job outside check each result. With `--churn SECONDS` members of two
islands begin and end at random beside two plain jobs. They are killed, paused and changed, and the
monitor is killed. No framework is needed; the simulated GPU will do.
"""

import os
import random
import signal
import time

from rig.islands import Events, Island, Xids, ends_by_itself, results, servers_of
from rig.monitor import Refused
from rig.process import WorkloadFailed, longest_gap
from rig.report import Report
from rig.rig import RigError

TITLE = "Faults in an island"
KINDS = ("kill a member", "illegal address", "kill the server")
MOST_GAP = 1.0       # seconds without a step outside
BACK_WITHIN = 5.0    # seconds until a new member works
GIVEN_UP_AFTER = 60  # the same, if none does
SETTLE = 0.3         # seconds for which a new member must work to count
REJOINS_WITHIN = 5.0  # seconds until a member that lost its monitor has the next one
GONE_WITHIN = 40.0   # seconds until no server is left: 10 s after the last member, and its end
PLANTED_XIDS = {13, 31}  # of the illegal address


def arguments(parser):
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--churn", type=float, default=0, help="seconds of it; needs a longer "
                        "--limit")
    parser.add_argument("--pace", type=float, default=2, help="events of the churn a second")
    parser.add_argument("--seed", type=int, default=0, help="0: a new one, which is printed")


class Faults:
    def __init__(self, rig):
        self.rig = rig
        self.island = Island(rig)
        self.events = Events(rig)
        self.cells = []
        self.wrong = 0

    def kill_a_member(self):
        victim = self.island.members.pop(0)
        back = self.newcomer_after(lambda: victim.process.send_signal(signal.SIGKILL))
        # Told before it is waited for: only until then the monitor sees how it ended.
        told = self.events.of([victim.name], "job ends")
        victim.process.wait(timeout=30)
        # The others went on meanwhile, with right results.
        others = [job for job in self.island.members if job is not back[1]]
        failed = sum(not self.goes_on(job) for job in others)
        return {"back": back[0], "failed": [victim.name], "told": told, "others_failed": failed}

    def goes_on(self, job):
        try:
            seen = results(job)
            self.wrong += seen["wrong"]
            job.start()
            return True
        except WorkloadFailed:
            self.island.members.remove(job)
            return False

    def illegal_address(self):
        victim = self.island.members[0]
        self.wrong += results(victim)["wrong"]
        cell = self.all_fail(lambda: victim.send(do="fault"), "island fault")
        suspects = [name for name, text in cell["told"].items() if text.endswith("a suspect")]
        return {**cell, "suspects": suspects, "named": victim.name in suspects}

    def kill_the_server(self):
        server = self.island.server()
        if server is None:
            raise RigError("ps lists no server of the island")
        return self.all_fail(lambda: os.kill(server, signal.SIGKILL), "island ended")

    def all_fail(self, act, kind):
        failing = self.island.members.copy()
        back, _ = self.newcomer_after(act)
        self.island.members = [job for job in self.island.members if job not in failing]
        told = self.events.of([job.name for job in failing], kind)
        alive = sum(not ends_by_itself(job, 30) for job in failing)
        return {"back": back, "failed": [job.name for job in failing], "told": told,
                "others_failed": alive}

    def newcomer_after(self, act):
        """Seconds until a member that begins right after it works, and that one. One that came
        before the fault was through fails with the others, and the next one is tried."""
        begun = time.monotonic()
        act()
        while True:
            job = self.island.begin()
            try:
                job.ready(60)
                took = time.monotonic() - begun
                job.start()
                time.sleep(SETTLE)
                self.wrong += results(job)["wrong"]
                job.start()
                return took, job
            except WorkloadFailed:
                self.island.members.remove(job)
                job.end(0)
                if time.monotonic() - begun > GIVEN_UP_AFTER:
                    raise

    def one(self, number):
        kind = KINDS[number % len(KINDS)]
        self.island.fill()
        time.sleep(self.rig.scaled(0.5))
        begun = time.monotonic()
        cell = (self.kill_a_member, self.illegal_address, self.kill_the_server)[
            number % len(KINDS)]()
        self.cells.append({"kind": kind, "begun": begun, **cell})
        self.rig.say(f"{number + 1}: {kind}, back after {cell['back']:.2f} s, told of "
                     f"{len(cell['told'])} of {len(cell['failed'])}")


def plain(rig, name):
    job = rig.start(name, "words.py")
    job.ready(60)
    job.start()
    return job


def judge_outside(report, stamps, prefix):
    gap = longest_gap(stamps["completions"], stamps["begun"], stamps["ended"])
    report.judge(f"{prefix}: wrong results", str(stamps["wrong"]),
                 f"0 of {stamps['checked']}", stamps["wrong"] == 0)
    report.at_most(f"{prefix}: longest without a step, s", gap, MOST_GAP)


def judge_xids(report, xids, planted):
    seen = xids.seen()
    if seen is None:
        return report.note("Xids", "not known", "the kernel's log cannot be read here")
    others = [number for number in seen if not planted or number not in PLANTED_XIDS]
    return report.judge("Xids but those planted", " ".join(map(str, others)) or "none",
                        f"none; {len(seen) - len(others)} planted", not others)


def faults(rig, report):
    outside = plain(rig, "outside")
    row = Faults(rig)
    report.keep(faults=row.cells)
    for number in range(rig.options.faults):
        row.one(number)
    for job in row.island.members:
        row.wrong += results(job)["wrong"]
        job.end()
    stamps = results(outside)
    outside.end()
    judge_outside(report, stamps, "outside")
    cells = row.cells
    lacking = [f"{cell['kind']}: {name}" for cell in cells for name in cell["failed"]
               if name not in cell["told"]]
    by_signal = sum("signal 9" in text for cell in cells for text in cell["told"].values())
    report.judge("members that failed and are told", str(len(lacking)) + " are not",
                 f"all of {sum(len(cell['failed']) for cell in cells)}; "
                 f"{by_signal} by their signal", not lacking)
    report.judge("illegal addresses whose job is a suspect",
                 str(sum(cell.get("named", False) for cell in cells)),
                 f"all of {sum('named' in cell for cell in cells)}",
                 all(cell.get("named", True) for cell in cells))
    report.judge("members that did not do what they must", str(sum(
        cell["others_failed"] for cell in cells)),
        "0: after a member's death the others go on, else all end",
        not any(cell["others_failed"] for cell in cells))
    report.judge("inside: wrong results", str(row.wrong), "0", row.wrong == 0)
    for kind in KINDS:
        back = [cell["back"] for cell in cells if cell["kind"] == kind]
        if back:
            report.at_most(f"{kind}: a new member works after, s at most", max(back), BACK_WITHIN)


class Churn:
    """Two islands and two plain jobs. Members that this does not kill must end as they are told."""

    CHOICES = {"begin": 4, "finish": 2, "kill": 2, "pause": 2, "resume": 3, "set": 5, "monitor": 0.2}

    def __init__(self, rig, rng):
        self.rig = rig
        self.rng = rng
        self.islands = [Island(rig, name) for name in ("red", "blue")]
        self.plain = [plain(rig, f"plain-{i}") for i in (1, 2)]
        self.counts = dict.fromkeys(self.CHOICES, 0)
        self.paused = set()
        self.failures = []
        self.checked = self.wrong = 0

    def members(self):
        return [(island, job) for island in self.islands for job in island.members]

    def ask(self, **request):
        """False: the job has not joined the monitor, or the monitor does not take it just now."""
        try:
            self.rig.connect().ask(**request)
            return True
        except (Refused, OSError):
            return False

    def begin(self):
        island = min(self.islands, key=lambda each: len(each.members))
        if len(island.members) >= self.rig.options.members:
            return False
        job = island.begin(memory="6%")
        try:
            job.ready(60)
            job.start()
        except WorkloadFailed as failure:
            self.failed(island, job, failure)
        return True

    def failed(self, island, job, failure):
        island.members.remove(job)
        self.failures.append(str(failure)[:400])
        job.process.kill()

    def finish(self):
        if not self.members():
            return False
        island, job = self.rng.choice(self.members())
        self.let_go(job)
        self.see_off(island, job)
        return True

    def let_go(self, job):
        """None stays paused. One that lost its monitor may not have found the next one."""
        until = time.monotonic() + REJOINS_WITHIN
        while not self.ask(op="resume", target=job.name) and time.monotonic() < until:
            time.sleep(0.1)
        self.paused.discard(job.name)

    def see_off(self, island, job):
        try:
            seen = results(job)
            self.checked += seen["checked"]
            self.wrong += seen["wrong"]
            job.end()
            island.members.remove(job)
        except WorkloadFailed as failure:
            self.failed(island, job, failure)

    def kill(self):
        if not self.members():
            return False
        island, job = self.rng.choice(self.members())
        island.members.remove(job)
        self.paused.discard(job.name)
        job.process.kill()
        job.process.wait(timeout=30)
        return True

    def pause(self):
        if not self.members():
            return False
        _, job = self.rng.choice(self.members())
        if self.ask(op="pause", target=job.name):
            self.paused.add(job.name)
        return True

    def resume(self):
        if not self.paused:
            return False
        name = self.rng.choice(sorted(self.paused))
        if self.ask(op="resume", target=name):
            self.paused.discard(name)
        return True

    def set(self):
        jobs = [*self.plain, *(job for _, job in self.members())]
        knob, value = self.rng.choice((("share", self.rng.choice(("0.5", "1", "4"))),
                                       ("limit", self.rng.choice(("30%", "100%"))),
                                       ("memory", self.rng.choice(("6%", "8%", "10%")))))
        job = self.rng.choice(jobs)
        return self.ask(op="set", target=job.name, **{knob: value})

    def monitor(self):
        self.rig.monitor.kill()
        self.rig.monitor.wait(timeout=10)
        time.sleep(self.rng.uniform(0, 3))
        self.rig.start_monitor()
        return True

    def one(self):
        kind = self.rng.choices(list(self.CHOICES), list(self.CHOICES.values()))[0]
        if getattr(self, kind)():
            self.counts[kind] += 1

    def end(self):
        """Ends all; the answers of the plain jobs."""
        for island, job in self.members():
            self.let_go(job)
            self.see_off(island, job)
        stamps = [results(job) for job in self.plain]
        for job in self.plain:
            job.end()
        return stamps


def churn(rig, report):
    o = rig.options
    seed = o.seed or random.SystemRandom().randrange(1, 1 << 30)
    rig.say(f"churn, seed {seed}")
    crowd = Churn(rig, random.Random(seed))
    begun = time.monotonic()
    done = 0
    while time.monotonic() - begun < rig.scaled(o.churn):
        crowd.one()
        done += 1
        time.sleep(max(0.0, begun + done / o.pace - time.monotonic()))
        if done % 100 == 0:
            rig.say(f"churn: {crowd.counts}, {len(crowd.failures)} failures")
    stamps = crowd.end()
    until = time.monotonic() + GONE_WITHIN
    while (left := servers_of(rig.scratch)) and time.monotonic() < until:
        time.sleep(0.2)
    report.keep(churn={"seed": seed, "counts": crowd.counts, "failures": crowd.failures})
    report.note("churn", f"{sum(crowd.counts.values())} events",
                ", ".join(f"{count} {kind}" for kind, count in crowd.counts.items())
                + f"; seed {seed}")
    for number, each in enumerate(stamps, 1):
        report.judge(f"churn, plain {number}: wrong results", str(each["wrong"]),
                     f"0 of {each['checked']}", each["wrong"] == 0)
        gap = longest_gap(each["completions"], each["begun"], each["ended"])
        report.note("  longest without a step", f"{gap:.2f} s")
    report.judge("churn, members: wrong results", str(crowd.wrong), f"0 of {crowd.checked}",
                 crowd.wrong == 0)
    report.judge("churn: members that failed unasked", str(len(crowd.failures)), "0",
                 not crowd.failures)
    report.judge("churn: daemons and servers left", str(len(left)), "0", not left)


def run(rig, report: Report):
    o = rig.options
    xids = Xids()
    if o.faults:
        faults(rig, report)
        judge_xids(report, xids, planted=True)
    if o.churn:
        churn(rig, report)
        judge_xids(report, xids, planted=False)
