"""`ps`, `status`, a scrape of the metrics and the events, beside 300 jobs at work. And `report` of 90
days in which 10,000 jobs ran.

The jobs are connections of one program that launch as jobs do; no GPU, the simulated one will do.
Those of the 90 days are written into the monitor's history. A figure is what a person waits for:
the whole command, its start included.
"""

import json
import sqlite3
import subprocess
import time
import urllib.request

from rig.monitor import Refused
from rig.report import Report, median
from rig.rig import RigError

TITLE = "Listings and metrics of 300 jobs"
DAYS, LIVED_HOURS, USERS = 90, 6, 20  # of the jobs in the history


def arguments(parser):
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--times", type=int, default=40, help="that each is asked")
    parser.add_argument("--metrics", default="127.0.0.1:19835", help="where the monitor serves them")
    parser.add_argument("--past-jobs", type=int, default=10000, help="of the last 90 days")
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


def fill_history(rig, count):
    """Jobs that have ended, each with hours of work, of waits and of idle time."""
    file = next((rig.scratch / "state").rglob("history.db"))
    database = sqlite3.connect(file, timeout=30)
    now = int(time.time()) // 3600
    gpu = database.execute("SELECT min(key) FROM gpus").fetchone()[0]
    with database:
        for i in range(count):
            begun = now - 24 * DAYS + 1 + i * (24 * DAYS - LIVED_HOURS) // count
            ended, uid = (begun + LIVED_HOURS) * 3600 - 1, 1000 + i % USERS
            job = database.execute(
                "INSERT INTO jobs(id, uid, user, name, command, started, seen, ended, exit, session,"
                " lived) VALUES(?, ?, ?, ?, 'python train.py', ?, ?, ?, 'exit code 0', 1, ?)",
                (f"past-{i:05}", uid, f"user{uid}", f"train-{i}", begun * 3600, ended, ended,
                 3600 * LIVED_HOURS)).lastrowid
            for hour in range(begun, begun + LIVED_HOURS):
                database.execute("INSERT INTO bills VALUES(?, ?, ?, 1000.5, 3.25, 3e13, 1e12, 8e9,"
                                 " 1e9, 0, 1e6, 0)", (hour, job, gpu))
                database.executemany("INSERT INTO times VALUES(?, ?, ?, ?, 0, 1200.25)",
                                     [(hour, job, gpu, state) for state in (1, 2, 4)])
    database.close()


def measure_reports(rig, report):
    o = rig.options
    fill_history(rig, o.past_jobs)
    since = f"{DAYS}d"
    asked = {"report": ("report",), "report --gpu": ("report", "--gpu", 0),
             "report --by user": ("report", "--by", "user"),
             "report --by day": ("report", "--by", "day"),
             "report NAME": ("report", "train-99*")}
    times = {name: [] for name in asked}
    for _ in range(max(3, o.times // 8)):
        for name, words in asked.items():
            times[name].append(took(lambda words=words: rig.cli(*words, "--since", since)))
    report.keep(report_times=times)
    for name, each in times.items():
        report.at_most(f"{name} of {DAYS} days, ms", median(each), 1000, "{:.0f}")


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
        measure_reports(rig, report)
        seconds, events, told, lost = follow_events(rig, o.events)
        report.at_least("events a second", events / seconds, 1000, "{:.0f}")
        report.judge("events that were read, or said to be lost", f"{told} + {lost}",
                     f"{events}", told + lost >= events)
    finally:
        jobs.stdin.close()
        jobs.wait(timeout=60)
