"""The common part of every workload process: it warms up once, then obeys its driver.

Concept. A workload is a process that stays warm over many measurements. It says one line,
{"ready": true, ...}, and from then on answers each line on stdin with exactly one JSON line:

    {"init"}                                   only after --hold: touch the GPU now, then "ready"
    {"run": seconds}                           steps for so long, then a final synchronize
    {"steps": n}                               n steps, then a final synchronize
    {"start": true}                            begin to step; answers at once, goes on by itself
    {"stop": true}                             end that; answers with what was done since start
    {"serve": {"rate": r, "requests": n, "seed": s, "warm": w, "even": bool}}
                                               requests with Poisson arrivals, timed from the
                                               moment each was *scheduled* to arrive
    {"converse": {"seconds": s, "think": t, "seed": n, "settle": w}}
                                               requests one after the other, each a random pause
                                               of t seconds on average after the answer to the
                                               last; those of the first w seconds don't count
    {"gpu_time": n}                            median GPU milliseconds of one step or request
    {"info": true}                             what the workload says of itself
    {"do": what}                               what only this workload knows to do
    {"quit": true}

A step is one unit of work (a training step, a batch, a copy). The CPU runs ahead of the GPU by at
most `ahead` steps. Each completed step is stamped with CLOCK_MONOTONIC, which all processes of a
machine share. So the driver can compute the rates of several jobs over one common window.

stdout belongs to this protocol alone: whatever a library prints goes to stderr.

Threading: one thread; the commands are polled between steps.
"""

import argparse
import gc
import json
import os
import random
import resource
import select
import sys
import time


class Workload:
    """One kind of work. Subclasses fill in what is below; `Torch` does most of it for PyTorch."""

    name = "workload"
    units_per_step = 1  # tokens, images or bytes in one step
    unit = "steps"
    ahead = 2

    def prepare(self):
        """Touch the GPU, build, warm up."""

    def step(self):
        """Enqueue one step; returns a ticket for `wait`."""
        raise NotImplementedError

    def wait(self, ticket):
        """Wait until the step of this ticket is complete."""

    def synchronize(self):
        """Wait until everything is complete."""

    def request(self):
        """One request, from arrival to its result on the CPU."""
        self.wait(self.step())

    def request_number(self, index, scheduled):
        """Request `index` of a conversation, which was to begin at `scheduled` (perf_counter)."""
        self.request()

    def count_from_here(self):
        """The requests from here on belong to figures()."""

    def figures(self):
        """What they add to the answer of a conversation."""
        return {}

    def gpu_time_ms(self, count):
        """Median GPU time of one step, nothing else running in this process."""
        raise NotImplementedError

    def info(self):
        return {}

    def do(self, what):
        """Something of its own; what there is to say of it."""
        return {"error": f"{self.name} knows nothing of {what}"}


class Protocol:
    """Lines in, lines out. `out` is the process' first stdout; fd 1 is stderr from here on."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self.buffer = b""

    def say(self, **values):
        self.out.write(json.dumps(values) + "\n")

    def pending(self):
        """True when a command waits; costs one system call."""
        if b"\n" in self.buffer:
            return True
        return bool(select.select([0], [], [], 0)[0])

    def next(self):
        """The next command; None when the driver has gone."""
        while b"\n" not in self.buffer:
            data = os.read(0, 65536)
            if not data:
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line) if line.strip() else self.next()


def percentile(values, fraction):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


class Stepper:
    """Runs steps with a bounded distance between CPU and GPU, and stamps each completion."""

    def __init__(self, work):
        self.work = work
        self.tickets = []
        self.stamps = []
        self.spaced = 0  # of them: those that came while steps were still begun
        self.begun = 0.0

    def begin(self):
        self.work.synchronize()
        self.tickets, self.stamps = [], []
        self.begun = time.monotonic()

    def one(self):
        self.tickets.append(self.work.step())
        if len(self.tickets) > self.work.ahead:
            self.retire()

    def retire(self):
        self.work.wait(self.tickets.pop(0))
        self.stamps.append(time.monotonic())

    def fast_rate(self, elapsed):
        """Steps per second of the quickest fifth of the steps. A host that takes its CPUs away for
        a while only ever makes a step longer, so this is the program's own rate. The last steps,
        which are only awaited, come at once where the GPU was done with them. A turn of few steps
        has no others: then it is the rate of all."""
        stamps = self.stamps[:self.spaced]
        gaps = [later - earlier for earlier, later in zip(stamps, stamps[1:])]
        return 1 / percentile(gaps, 0.2) if len(gaps) >= 5 else len(self.stamps) / elapsed

    def end(self, stamps):
        self.spaced = len(self.stamps)
        while self.tickets:
            self.retire()
        self.work.synchronize()
        ended = time.monotonic()
        elapsed = ended - self.begun
        steps = len(self.stamps)
        figures = {
            "steps": steps,
            "elapsed_seconds": elapsed,
            "steps_per_second": steps / elapsed,
            "units_per_second": steps * self.work.units_per_step / elapsed,
            "unit": self.work.unit,
            "fast_steps_per_second": self.fast_rate(elapsed),
            "begun": self.begun,
            "ended": ended,
        }
        if stamps:
            figures["completions"] = [round(stamp, 6) for stamp in self.stamps]
        return figures


def run_for(work, seconds):
    stepper = Stepper(work)
    stepper.begin()
    until = stepper.begun + seconds
    while time.monotonic() < until:
        stepper.one()
    return stepper.end(stamps=False)


def run_steps(work, count):
    stepper = Stepper(work)
    stepper.begin()
    for _ in range(count):
        stepper.one()
    return stepper.end(stamps=False)


def run_until_told(work, protocol):
    stepper = Stepper(work)
    stepper.begin()
    protocol.say(started=stepper.begun)
    while not protocol.pending():
        stepper.one()
    # The command that ends it is answered here; anything but "stop" is a mistake of the driver.
    command = protocol.next()
    figures = stepper.end(stamps=True)
    if command is not None:
        if "stop" not in command:
            figures = {"error": f"expected stop, got {command}"}
        protocol.say(**figures)
    return command is not None


def sleep_until(moment):
    """Sleeps, then spins for the last millisecond, so that wake-up jitter isn't measured."""
    while True:
        left = moment - time.perf_counter()
        if left <= 0:
            return
        if left > 0.0015:
            time.sleep(left - 0.001)


def involuntary_switches():
    """How often this thread had to give its CPU to another one."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def serve(work, rate, requests, seed=1, warm=50, even=False):
    """Open loop: a late answer doesn't postpone the next arrival. Poisson, or evenly spaced.
    `lost_cpu`: the numbers of the requests in which this thread lost its CPU."""
    rng = random.Random(seed)
    arrivals, at = [], 0.05
    for _ in range(requests + warm):
        at += 1 / rate if even else rng.expovariate(rate)
        arrivals.append(at)
    latencies, lost_cpu = [], []
    zero = time.perf_counter()
    window_begun = time.monotonic()
    for index, arrival in enumerate(arrivals):
        if index == warm:
            window_begun = time.monotonic()
        scheduled = zero + arrival
        sleep_until(scheduled)
        lost_before = involuntary_switches()
        work.request()
        if index >= warm:
            latencies.append((time.perf_counter() - scheduled) * 1e3)
            if involuntary_switches() != lost_before:
                lost_cpu.append(index - warm)
    return {
        "requests": requests,
        "rate": rate,
        "p50_ms": percentile(latencies, 0.50),
        "p90_ms": percentile(latencies, 0.90),
        "p99_ms": percentile(latencies, 0.99),
        "max_ms": max(latencies),
        "latencies_ms": [round(value, 4) for value in latencies],
        "lost_cpu": lost_cpu,
        "begun": window_begun,
        "ended": time.monotonic(),
    }


def converse(work, seconds, think, seed=1, settle=0.0):
    """Closed loop: a slow answer postpones the next request, so no queue builds up."""
    rng = random.Random(seed)
    begun = time.perf_counter()
    latencies, window_begun, index = [], None, 0
    while True:
        scheduled = time.perf_counter() + (rng.expovariate(1 / think) if think else 0)
        if scheduled > begun + settle + seconds:
            break
        if window_begun is None and scheduled >= begun + settle:
            window_begun = time.monotonic()
            work.count_from_here()
        sleep_until(scheduled)
        work.request_number(index, scheduled)
        index += 1
        if window_begun is not None:
            latencies.append((time.perf_counter() - scheduled) * 1e3)
    ended = time.monotonic()
    return {
        "requests": len(latencies),
        "latencies_ms": [round(value, 4) for value in latencies],
        "begun": window_begun or ended,
        "ended": ended,
        **work.figures(),
    }


def obey(work, protocol, command):
    """Answers one command; False ends the process."""
    gc.collect()
    gc.disable()  # a collection in the middle of a request would be measured as the GPU's latency
    try:
        if "run" in command:
            protocol.say(**run_for(work, command["run"]))
        elif "steps" in command:
            protocol.say(**run_steps(work, command["steps"]))
        elif "start" in command:
            return run_until_told(work, protocol)
        elif "stop" in command:
            protocol.say(error="stop without start")
        elif "serve" in command:
            protocol.say(**serve(work, **command["serve"]))
        elif "converse" in command:
            protocol.say(**converse(work, **command["converse"]))
        elif "gpu_time" in command:
            protocol.say(gpu_time_ms=work.gpu_time_ms(command["gpu_time"]))
        elif "info" in command:
            protocol.say(name=work.name, pid=os.getpid(), **work.info())
        elif "do" in command:
            protocol.say(**work.do(command["do"]))
        elif "quit" in command:
            protocol.say(bye=True)
            return False
        else:
            protocol.say(error=f"unknown command {command}")
    finally:
        gc.enable()
    return True


def main(make, arguments):
    """`make(options)` builds the Workload; `arguments(parser)` adds its own options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hold", action="store_true", help="wait for init before using the GPU")
    parser.add_argument("--device", default="cuda", help="cuda; cpu is a stand-in without figures")
    parser.add_argument("--pin", default="", help="CPUs to stay on, such as 2,3,4,5")
    arguments(parser)
    options = parser.parse_args()
    protocol = Protocol()
    if options.pin:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.pin.split(",")})
    work = make(options)
    if options.hold:
        protocol.say(holding=True, pid=os.getpid())
        if protocol.next() is None:
            return
    begun = time.monotonic()
    try:
        work.prepare()
        work.synchronize()
    except Exception as error:  # the driver shows it; a traceback goes to stderr below
        protocol.say(error=f"{type(error).__name__}: {error}")
        raise
    gc.collect()
    gc.freeze()
    protocol.say(ready=True, name=work.name, pid=os.getpid(),
                 warm_up_seconds=time.monotonic() - begun, **work.info())
    while True:
        command = protocol.next()
        if command is None or not obey(work, protocol, command):
            break
    protocol.out.flush()
    # Interpreter teardown of frameworks can take seconds and measures nothing.
    sys.stderr.flush()
    os._exit(0)
