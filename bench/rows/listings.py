"""`ps`, `status`, a scrape of the metrics and the events, beside 300 jobs at work.

The jobs are connections of one program that launch as jobs do; no GPU, the simulated one will do.
A figure is what a person waits for: the whole command, its start included.
"""

import json
import subprocess
import time
import urllib.request

from rig.monitor import Refused
from rig.report import Report, median
from rig.rig import RigError

TITLE = "Listings and metrics of 300 jobs"


def arguments(parser):
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--times", type=int, default=40, help="that each is asked")
    parser.add_argument("--metrics", default="127.0.0.1:19835", help="where the monitor serves them")
    parser.add_argument("--events", type=int, default=12000, help="pauses and refused commands")


def took(once):
    begun = time.monotonic()
    once()
    return 1e3 * (time.monotonic() - begun)


def scrape(rig):
    with urllib.request.urlopen(f"http://{rig.options.metrics}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    if page.count("switchyard_memory_used_bytes{") < rig.options.jobs:
        raise RigError("the page of metrics has not all jobs")


def play_events(monitor, count):
    """At least so many, as fast as they are answered. Those of a job at work, whose pause costs a
    look at all jobs, and four times as many of refused commands, which cost none."""
    for i in range(count // 6):
        monitor.ask(op="pause" if i % 2 == 0 else "resume", target="strange-0")  # two: its state
        for _ in range(4):
            try:
                monitor.ask(op="set", target="strange-0", share="nonsense")
            except Refused:
                pass


def follow_events(rig, count):
    """Seconds, events in them, and of these the told and the lost ones by `events --follow`."""
    log = rig.scratch / "events.json"
    with open(log, "wb") as out:
        reader = subprocess.Popen([rig.build / "switchyard", "events", "--follow", "--json"],
                                  stdout=out, env=rig.environment("switchyard"))
        try:
            time.sleep(1)
            monitor = rig.connect()
            first, begun = monitor.ask(op="events", seconds=0)["last"], time.monotonic()
            play_events(monitor, count)
            seconds, last = time.monotonic() - begun, monitor.ask(op="events", seconds=0)["last"]
            time.sleep(3)
        finally:
            reader.terminate()
            reader.wait(timeout=10)
    batches = [json.loads(line) for line in log.read_text().splitlines()]
    told = sum(1 for batch in batches for event in batch["events"]
               if first < event["number"] <= last)
    return seconds, last - first, told, sum(batch["lost"] for batch in batches)


def run(rig, report: Report):
    o = rig.options
    uuid = rig.listing("status")["gpus"][0]["uuid"]
    jobs = subprocess.Popen(
        [rig.build / "tests" / "jobs" / "job_strangers", str(rig.socket), str(o.jobs), uuid,
         "modest"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        joined = int(jobs.stdout.readline().split()[1])
        report.judge("jobs", str(joined), f"{o.jobs}", joined == o.jobs)
        time.sleep(rig.scaled(3))
        asked = {"ps": lambda: rig.cli("ps"), "ps --json": lambda: rig.cli("ps", "--json"),
                 "status": lambda: rig.cli("status"), "version": lambda: rig.cli("version"),
                 "scrape": lambda: scrape(rig)}
        times = {name: [] for name in asked}
        for _ in range(o.times):  # alternated
            for name, once in asked.items():
                times[name].append(took(once))
        report.keep(times=times)
        for name, each in times.items():
            report.note(name, f"{median(each):.1f} ms", f"most {max(each):.1f} ms of {len(each)}")
        report.at_most("ps, ms", median(times["ps"]), 50, "{:.1f}")
        report.at_most("a scrape, ms", median(times["scrape"]), 20, "{:.1f}")
        seconds, events, told, lost = follow_events(rig, o.events)
        report.at_least("events a second", events / seconds, 1000, "{:.0f}")
        report.judge("events that were read, or said to be lost", f"{told} + {lost}",
                     f"{events}", told + lost >= events)
    finally:
        jobs.stdin.close()
        jobs.wait(timeout=60)
