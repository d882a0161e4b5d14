"""The rig of one bench: a private monitor, the CLI, MPS when asked for, and all processes.

Concept. `with Rig(options, "row") as rig` starts `switchyardd --persist` on a socket of its own, so
a bench never meddles with a monitor that is in use. Leaving it ends all that it started, also after
an error. Jobs run in one of three ways:

    under="switchyard"   build/switchyard run ...: the preload library and the monitor
    under="plain"        nothing of Switchyard: the driver's true default
    under="mps"          plain, as a client of a private MPS daemon
    under="both"         switchyard run as a client of that daemon

Under Switchyard `means("none")` gives the driver's default to the same warm processes and
`means("auto")` takes it back, which is how cells alternate without a restart. So does
`bare_slices()`, for jobs started with with_bare=True: slices and nothing else (rig/bare.py).

Threading: one thread.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from rig import bare
from rig.monitor import Monitor
from rig.process import WORKLOADS, Warm, python, tail

TORCH = ("gpt.py", "networks.py", "jpeg_training.py", "language.py",
         "vllm_engine.py", "transformers_engine.py")  # these have a stand-in on the CPU

# How long the policy may look back when it decides who is active (2 s), and a little more.
ACTIVITY_WINDOW = 2.5


# A warning or an error of the library: with and without SWITCHYARD_LOG.
WARNING = re.compile(r"switchyard\[\d+\](?: warn| error)?: (.*)")


class RigError(RuntimeError):
    pass


def warnings_of(log):
    lines = log.read_text(errors="replace").splitlines()
    return [found[1] for found in map(WARNING.search, lines) if found]


class Rig:
    def __init__(self, options, row):
        self.options = options
        self.row = row
        self.build = Path(options.build).resolve()
        self.out = Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix="switchyard-bench-"))
        self.socket = self.scratch / "monitor.sock"
        self.monitor = None
        self.mps = None
        self.warm = []
        self.warnings = Counter()  # of the library in the jobs, once they have ended
        self.patience = 10  # seconds for all to end by themselves
        self.begun = time.monotonic()

    # --- start and end ---

    def __enter__(self):
        # A kill of the driver must not leave GPU processes behind.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, self.on_signal)
        signal.alarm(int(self.options.limit))
        try:
            self.start_monitor()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()
        return False

    def on_signal(self, number, _frame):
        if number == signal.SIGALRM:
            self.patience = 1  # whoever set the limit may have set one for the bench, too
            raise RigError(f"{self.row}: not done after {self.options.limit} s (--limit)")
        sys.exit(128 + number)

    def end(self):
        signal.alarm(0)
        for warm in self.warm:
            if warm.process.poll() is None:
                try:
                    warm.process.stdin.close()
                except OSError:
                    pass
        until = time.monotonic() + self.patience
        for warm in self.warm:
            warm.end(max(0, until - time.monotonic()))
        self.stop_mps()
        self.stop_islands()
        self.stop_monitor()
        for log in self.scratch.rglob("*.log"):  # MPS has folders of its own
            self.warnings.update(warnings_of(log))
            if self.options.keep_logs:
                name = "-".join(log.relative_to(self.scratch).parts)
                shutil.copy(log, self.out / f"{self.row}-{name}")
        shutil.rmtree(self.scratch, ignore_errors=True)

    def stop_monitor(self):
        if self.monitor and self.monitor.poll() is None:
            self.monitor.terminate()
            try:
                self.monitor.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.monitor.kill()
                self.monitor.wait(timeout=10)

    def start_monitor(self, *more):
        """`more`: options of the monitor beside those that a row's options stand for."""
        program = self.build / "switchyardd"
        if not program.exists():
            raise RigError(f"{program} is missing: run make first, or name a build by --build")
        log = open(self.scratch / "monitor.log", "ab")
        capacity = getattr(self.options, "capacity", None)
        host_pool = getattr(self.options, "host_pool", None)
        metrics = getattr(self.options, "metrics", None)
        # At info it says who leaves and who comes back; by itself it logs warnings alone.
        command = [program, "--persist", "--log", "info",
                   *(["--capacity", capacity] if capacity else []),
                   *(["--host-pool", host_pool] if host_pool else []),
                   *(["--metrics", metrics] if metrics else []), *more]
        self.monitor = subprocess.Popen(command, env=self.environment("switchyard"),
                                        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.monitor.poll() is not None:
                break
            if self.socket.exists() and self.cli("status", "--json", check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise RigError("the monitor does not answer; its log ends:\n"
                       + tail(self.scratch / "monitor.log"))

    # --- environment ---

    def environment(self, under, **more):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("SWITCHYARD_") and key != "LD_PRELOAD"}
        if under in ("switchyard", "both"):
            environment["SWITCHYARD_SOCKET"] = str(self.socket)
            environment["XDG_STATE_HOME"] = str(self.scratch / "state")
            if self.options.shim_log:
                environment["SWITCHYARD_LOG"] = self.options.shim_log
        if under in ("mps", "both"):
            environment.update(self.mps_environment())
        environment.update({key: str(value) for key, value in more.items()})
        return environment

    # --- the monitor's socket, and the CLI ---

    def connect(self):
        """A connection of its own for each that asks: one that says nothing for long is closed."""
        return Monitor(self.socket)

    def cli(self, *arguments, check=True, timeout=20):
        done = subprocess.run([self.build / "switchyard", *map(str, arguments)], text=True,
                              env=self.environment("switchyard"), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise RigError(f"switchyard {' '.join(map(str, arguments))} ended "
                           f"{done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def timed(self, *arguments, timeout=120):
        """Seconds that a command takes, its start with it."""
        begun = time.monotonic()
        self.cli(*arguments, timeout=timeout)
        return time.monotonic() - begun

    def listing(self, command):
        return json.loads(self.cli(command, "--json").stdout)

    def job(self, name):
        for job in self.listing("ps")["jobs"]:
            if job["name"] == name:
                return job
        raise RigError(f"ps does not list the job {name}")

    def slice(self, slice):
        """Of equal jobs: "25ms", unless it is chosen."""
        self.cli("policy", "--slice", slice)

    def means(self, means):
        self.cli("backend", means)
        time.sleep(0.5)

    @contextmanager
    def bare_slices(self, slices):
        """`slices`: {name: microseconds}. Meanwhile the jobs have these slices, and nothing else of
        Switchyard is in force."""
        self.means("none")
        bare.bring(self.scratch, slices)
        try:
            yield
        finally:
            bare.bring(self.scratch, dict.fromkeys(slices, bare.DRIVERS_OWN_US))
            self.means("auto")

    def set(self, name, **knobs):
        flat = []
        for knob, value in knobs.items():
            flat += [f"--{knob}", str(value)]
        self.cli("set", name, *flat)

    # --- processes ---

    def command(self, under, argv, name, **knobs):
        if under not in ("switchyard", "both"):
            return [str(part) for part in argv]
        wrapper = [self.build / "switchyard", "run", "--name", name]
        for knob, value in knobs.items():
            option = "--" + knob.replace("_", "-")
            if value is True:
                wrapper.append(option)
            elif value is not None:
                wrapper.append(f"{option}={value}")  # some have a value only so
        return [str(part) for part in (*wrapper, "--", *argv)]

    def start(self, name, script, *arguments, under="switchyard", hold=False, environment=None,
              **knobs):
        """Starts a workload of bench/workloads; wait for it with .ready(). `knobs` are options of
        `switchyard run`; True is one without a value."""
        argv = [python(), WORKLOADS / script, *arguments]
        if hold:
            argv.append("--hold")
        if script in TORCH and self.options.device != "cuda":
            argv += ["--device", self.options.device]
        return self.start_program(name, argv, under, environment, **knobs)

    def start_program(self, name, argv, under="switchyard", environment=None, with_bare=False,
                      **knobs):
        """Starts any program that speaks the line protocol. `with_bare`: for bare_slices()."""
        if with_bare:
            argv = bare.preloaded(self.program("libbare_slices.so"), argv)
            environment = {**(environment or {}), **bare.environment(self.scratch, name)}
        warm = Warm(name, self.command(under, argv, name, **knobs),
                    self.environment(under, **(environment or {})), self.scratch / f"{name}.log")
        self.warm.append(warm)
        return warm

    def once(self, name, argv, under="plain", environment=None, **knobs):
        """Starts a program that runs to its end by itself; the caller waits."""
        log = open(self.scratch / f"{name}.log", "wb")
        process = subprocess.Popen(self.command(under, argv, name, **knobs), stdin=subprocess.PIPE,
                                   env=self.environment(under, **(environment or {})),
                                   stdout=subprocess.PIPE, stderr=log)
        process.log = self.scratch / f"{name}.log"
        return process

    def program(self, name):
        """A C++ program of bench/."""
        path = self.build / "bench" / name
        if not path.exists():
            raise RigError(f"{path} is missing: build it by make or `ninja {name}`")
        return path

    def output_of(self, name, argv, timeout=60, **how):
        """Runs a program that ends by itself."""
        return self.wait_for(name, self.once(name, argv, **how), timeout)

    def wait_for(self, name, process, timeout=60):
        """The output of what once() has started."""
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RigError(f"{name}: not done after {timeout} s") from None
        if process.returncode != 0:
            raise RigError(f"{name} ended {process.returncode}: {tail(process.log)}")
        return output

    def run_once(self, name, argv, timeout=60, **how):
        """The same; what its one line of JSON says."""
        return json.loads(self.output_of(name, argv, timeout, **how))

    # --- MPS: a private daemon; the GPU's compute mode is left as it is ---

    def mps_environment(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.scratch / "mps"),
                "CUDA_MPS_LOG_DIRECTORY": str(self.scratch / "mps-log")}

    @staticmethod
    def mps_program():
        """The control daemon's; None: there is none."""
        program = shutil.which("nvidia-cuda-mps-control")
        if program is None:
            for folder in ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/cuda/bin"):
                if (Path(folder) / "nvidia-cuda-mps-control").exists():
                    program = f"{folder}/nvidia-cuda-mps-control"
        return program

    @staticmethod
    def path_with(program):
        """The daemon finds nvidia-cuda-mps-server beside itself or on PATH."""
        return f"{Path(program).parent}:{os.environ.get('PATH', '')}"

    def start_mps(self):
        program = self.mps_program()
        if program is None:
            return False
        for folder in self.mps_environment().values():
            Path(folder).mkdir(exist_ok=True)
        environment = self.environment("mps")
        environment["PATH"] = self.path_with(program)
        done = subprocess.run([program, "-d"], env=environment, check=False, timeout=20,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.mps = program if done.returncode == 0 else None
        if self.mps is None:
            print(f"bench: {program} -d ended {done.returncode}: {done.stderr.strip()}",
                  file=sys.stderr)
        return self.mps is not None

    def stop_mps(self):
        if self.mps:
            self.quit(self.mps, self.environment("mps"))
            self.mps = None

    @staticmethod
    def quit(program, environment):
        try:
            subprocess.run([program], input="quit -t 5\n", text=True, check=False, timeout=20,
                           env=environment, capture_output=True)
        except subprocess.TimeoutExpired:
            print("bench: an MPS daemon did not quit within 20 s", file=sys.stderr)

    # --- islands: `run --co-run` makes them below this folder ---

    def island_environment(self):
        """For members; None: there is no MPS here."""
        program = self.mps_program()
        if program is None:
            return None
        run = self.scratch / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        return {"PATH": self.path_with(program), "XDG_RUNTIME_DIR": run}

    def stop_islands(self):
        """Their daemons stay for a while after the last member. A server that is left there keeps
        slices from the GPU, whatever runs next."""
        for pipe in self.scratch.glob("run/switchyard/islands/*/pipe"):
            self.quit(self.mps_program(),
                      self.environment("plain", CUDA_MPS_PIPE_DIRECTORY=pipe))

    # --- odds and ends ---

    def scaled(self, seconds):
        """Durations shrink by --scale: to try the driver, not to measure."""
        return max(min(0.2, seconds), seconds * self.options.scale)

    def window(self, seconds, settle=0):
        """(begin, end) of a time in which nothing is changed, on the workloads' clock."""
        time.sleep(self.scaled(settle))
        begin = time.monotonic()
        time.sleep(self.scaled(seconds))
        return begin, time.monotonic()

    def counted(self, requests):
        return max(20, int(requests * self.options.scale))

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:6.1f} s] {text}", file=sys.stderr, flush=True)

