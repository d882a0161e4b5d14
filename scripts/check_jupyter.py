#!/usr/bin/env python3
"""Runs a notebook's kernel under Switchyard, as Jupyter does, on the simulated GPU.

    PYTHON scripts/check_jupyter.py BUILD

PYTHON has ipykernel and jupyter_client (tests/python/requirements.txt; scripts/bootstrap.sh
--packages makes build/python-tools). The kernel allocates by ctypes. Its memory leaves while it
idles, and is there with what was in it for the next cell. Interrupt, restart, shutdown and the death
of Jupyter are as without Switchyard. Nothing is left on this machine.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
WORK = tempfile.TemporaryDirectory(prefix="check-jupyter-")
HOME = pathlib.Path(WORK.name)
os.environ.update(
    HOME=str(HOME), JUPYTER_DATA_DIR=str(HOME / "jupyter"), JUPYTER_RUNTIME_DIR=str(HOME / "run"),
    IPYTHONDIR=str(HOME / "ipython"), FAKECUDA_STATE=str(HOME / "gpu"), LC_ALL="C.UTF-8",
    SWITCHYARD_SOCKET=str(HOME / "m.sock"), LD_LIBRARY_PATH=str(BUILD / "fakecuda"),
    VIRTUAL_ENV=sys.prefix)
for name in ("LD_PRELOAD", "SWITCHYARD_JOB", "JUPYTER_PATH"):
    os.environ.pop(name, None)
from jupyter_client.manager import KernelManager  # noqa: E402  (reads the environment)

LIMIT = 60  # seconds; only a hang reaches it
BYTES = 64 << 20

SETUP = f"""
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
def ok(status):
    assert status == 0, status
context, address = ctypes.c_void_p(), ctypes.c_uint64()
ok(cuda.cuInit(0))
ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t({BYTES})))
data = bytes(range(251)) * ({BYTES} // 251 + 1)
ok(cuda.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t({BYTES})))
"""
READ = f"""
back = ctypes.create_string_buffer({BYTES})
ok(cuda.cuMemcpyDtoH_v2(back, address, ctypes.c_size_t({BYTES})))
assert back.raw == data[:{BYTES}], "other values"
"""


def fail(text):
    log = HOME / "kernel.log"
    sys.exit(f"check_jupyter: {text}\n{log.read_text() if log.exists() else ''}")


def step(text):
    print("==", text, flush=True)


def switchyard(*words):
    return subprocess.run([BUILD / "switchyard", *words], check=True, capture_output=True,
                          text=True, timeout=LIMIT).stdout


def jobs():
    """By the pid of the process."""
    listing = json.loads(switchyard("ps", "--json"))
    return {each["pid"]: job for job in listing["jobs"] for each in job["processes"]}


def until(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            fail(f"this does not happen: {what}")
        time.sleep(0.05)


def reply_to(client, request):
    """The replies to questions whether it is ready may come before."""
    while True:
        message = client.get_shell_msg(timeout=LIMIT)
        if message["parent_header"].get("msg_id") == request:
            return message["content"]


def run(client, code):
    """An error shall not abort the next cell, which a client may send too early."""
    return reply_to(client, client.execute(code, stop_on_error=False))


def good(client, code):
    reply = run(client, code)
    if reply["status"] != "ok":
        fail(f"{code}: {reply}")


def start(log):
    manager = KernelManager(kernel_name="switchyard")
    manager.start_kernel(stdout=log, stderr=log)
    return manager, connect(manager)


def connect(manager):
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=LIMIT)
    return client


def pid_of(manager):
    return manager.provisioner.pid


def bills():
    return (HOME / "kernel.log").read_text().count(" on the GPU, waited ")


def resident(pid):
    return jobs()[pid]["memory_resident_bytes"]


def used_and_released(manager, client):
    step("a kernel's memory leaves while it idles, and comes back with its values")
    good(client, SETUP)
    pid = pid_of(manager)
    if pid not in jobs():
        fail(f"{pid} is no job: " + switchyard("ps", "--json"))
    job = jobs()[pid]
    # The kernel is the process that Jupyter started, and its spec is known by the command.
    if "ipykernel" not in job["command"]:
        fail(f"its command is {job['command']}")
    for _ in range(2):
        until("the memory leaves", lambda: "swapped" in jobs()[pid]["state"])
        good(client, READ)
    good(client, "assert os.getpid() == " + str(pid))


def interrupted(manager, client):
    step("an interrupt ends a cell, once")
    good(client, "import time; caught = 0")
    cell = client.execute("try:\n    print('begins', flush=True)\n    time.sleep(600)\n"
                          "except KeyboardInterrupt:\n    caught += 1\n    time.sleep(1)\n")
    while True:  # until the cell runs
        message = client.get_iopub_msg(timeout=LIMIT)
        if message["msg_type"] == "stream" and "begins" in message["content"]["text"]:
            break
    manager.interrupt_kernel()
    reply = reply_to(client, cell)
    if reply["status"] != "ok":
        fail(f"it was interrupted more than once: {reply}")
    good(client, "assert caught == 1, caught")
    good(client, READ)


def restarted(manager, client):
    step("a restart begins anew, and the first life has its bill")
    old = pid_of(manager)
    client.stop_channels()
    manager.restart_kernel()
    client = connect(manager)
    if run(client, "address")["status"] != "error":
        fail("a new kernel knows what the old one had")
    good(client, SETUP)
    until("the old process is no job any more", lambda: old not in jobs())
    until("a bill", lambda: bills() == 1)
    return client


def ended(manager, client, bill):
    client.stop_channels()
    manager.shutdown_kernel()
    until("no job is left", lambda: not jobs())
    until("a bill at the end", lambda: bills() == bill)


def killed(log):
    step("a kernel that is killed leaves nothing but its bill")
    manager, client = start(log)
    good(client, SETUP)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    until("no job is left", lambda: not jobs())
    until("its bill", lambda: bills() == 3)


ORPHAN = """
import sys, time
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="switchyard")
manager.start_kernel()
manager.blocking_client().start_channels()
print(manager.provisioner.pid, flush=True)
time.sleep(600)
"""


def orphaned():
    step("a kernel whose Jupyter dies ends, too")
    jupyter = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    pid = int(jupyter.stdout.readline())
    # It must have begun to look at its parent: ipykernel does so once it answers.
    until("it runs", lambda: "ipykernel" in pathlib.Path(f"/proc/{pid}/cmdline").read_text())
    jupyter.send_signal(signal.SIGKILL)
    jupyter.wait()
    until("it ends", lambda: not pathlib.Path(f"/proc/{pid}").exists())


def main():
    monitor = subprocess.Popen([BUILD / "switchyardd", "--persist"], stderr=subprocess.DEVNULL)
    try:
        until("a monitor", lambda: (HOME / "m.sock").exists())
        step("the kernel is installed")
        print(switchyard("jupyter", "install", "--idle-release", "1s", "--memory", "1GiB"), end="")
        with open(HOME / "kernel.log", "w", encoding="utf-8") as log:
            manager, client = start(log)
            used_and_released(manager, client)
            interrupted(manager, client)
            client = restarted(manager, client)
            ended(manager, client, 2)
            killed(log)
            orphaned()
    finally:
        monitor.terminate()
        monitor.wait()
        WORK.cleanup()
    print("check_jupyter: all is well")


main()
