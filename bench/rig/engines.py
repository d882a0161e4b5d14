"""Engines of language models as processes of a row: their start, their questions, and their end.

An engine has processes of its own below the one that the row started. `Family` knows them by their
parents, so that a row can tell whether any outlives its engine, and can end those that do.

Threading: one thread; `moving` has one of its own.
"""

import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from rig.process import WorkloadFailed

START_SECONDS = 150
END_SECONDS = 30
LOG_LINES = 40


def parents():
    """{process: its parent} of all that can be read."""
    known = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        known[int(stat.parent.name)] = (int(after[1]), after[19])  # with the time of its start
    return known


class Family:
    """All processes below one, noted while they live: an orphan's parent says nothing any more."""

    def __init__(self, root):
        self.root = root
        self.members = {}

    def note(self):
        known = parents()
        found = {self.root}
        while True:
            more = {pid for pid, (parent, _) in known.items() if parent in found} - found
            if not more:
                break
            found |= more
        self.members.update({pid: known[pid][1] for pid in found - {self.root} if pid in known})

    def alive(self):
        known = parents()
        return [pid for pid, begun in self.members.items() if known.get(pid, (0, ""))[1] == begun]

    def kill(self):
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def environment(rig, invariant=True):
    """Compiled kernels are shared by all engines of a row: the first one pays for them."""
    return {"VLLM_CACHE_ROOT": rig.scratch / "vllm", "VLLM_CONFIG_ROOT": rig.scratch / "vllm",
            "TRITON_CACHE_DIR": rig.scratch / "triton",
            "TORCHINDUCTOR_CACHE_DIR": rig.scratch / "inductor",
            "VLLM_BATCH_INVARIANT": int(invariant)}


def part_of_gpu(rig, part):
    """A size for --memory."""
    return f"{int(part * rig.listing('status')['gpus'][0]['memory_total_bytes']) >> 20}MiB"


class Engine:
    """One engine. Each call may raise WorkloadFailed. `more`: variables of its environment."""

    def __init__(self, rig, name, *arguments, script="vllm_engine.py", under="switchyard",
                 invariant=True, more=(), **knobs):
        self.name = name
        self.warm = rig.start(name, script, *arguments, under=under,
                              environment={**environment(rig, invariant), **dict(more)}, **knobs)
        self.family = Family(self.warm.process.pid)

    def ready(self):
        about = self.warm.ready(START_SECONDS).about
        self.family.note()
        return about

    def ask(self, timeout=60, **how):
        return self.warm.ask(timeout, ask=how)

    def tell(self, timeout=60, **command):
        return self.warm.ask(timeout, **command)

    def end(self):
        """How it ended: "clean", or what was amiss."""
        process = self.warm.process
        self.family.note()
        self.warm.end(END_SECONDS)
        time.sleep(0.2)
        left = self.family.alive()
        self.family.kill()
        if process.returncode:
            return f"ended {process.returncode}"
        return f"left {len(left)} processes" if left else "clean"

    def abandon(self):
        """Nothing of it stays, whatever it did."""
        self.family.note()
        if self.warm.process.poll() is None:
            self.warm.process.kill()
            self.warm.process.wait(timeout=10)
        self.family.kill()


def attempt(rig, what, act):
    """(what `act` answers, ""), or (None, why it failed): other engines of the row go on."""
    try:
        return act(), ""
    except WorkloadFailed as failure:
        rig.say(f"{what}: {failure}")
        return None, failure.why


def keep_log(rig, name):
    """The end of a failed engine's log, beside the row's figures."""
    try:
        lines = (rig.scratch / f"{name}.log").read_text(errors="replace").splitlines()
    except OSError:
        return
    (rig.out / f"{rig.row}-{name}.txt").write_text("\n".join(lines[-LOG_LINES:]) + "\n")


@contextmanager
def none_stays(rig, started):
    """None of `started`, which may grow meanwhile, outlives the block. If it fails, their logs do."""
    try:
        yield
    except WorkloadFailed:
        for engine in started:
            keep_log(rig, engine.name)
        raise
    finally:
        for engine in started:
            engine.abandon()


@contextmanager
def moving(rig, name, moves):
    """While the block runs, a job is swapped out and in so many times. Yields what each order said:
    [(order, exit status, seconds, words)]. Raises WorkloadFailed when one failed."""
    done = []

    def out_and_in():
        for _ in range(moves):
            time.sleep(rig.scaled(1.0))
            for command in ("swap-out", "swap-in"):
                begun = time.monotonic()
                ended = rig.cli(command, name, check=False, timeout=60)
                done.append((command, ended.returncode, time.monotonic() - begun,
                             ended.stderr.strip()[:200]))

    mover = threading.Thread(target=out_and_in)
    mover.start()
    try:
        yield done
    finally:
        mover.join()
    failed = [each for each in done if each[1]]
    if failed or len(done) < 2 * moves:
        raise WorkloadFailed(name, f"{failed[0][0]}: {failed[0][3]}" if failed
                             else f"{len(done)} of {2 * moves} orders were answered")
