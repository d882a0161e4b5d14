#!/usr/bin/python3
"""Plays systemd for the installed units of Switchyard, where no process 1 is systemd.

    played_systemd.py                  plays, until it is ended
    systemctl VERB UNIT...             a link to this file by that name asks the one that plays

It reads switchyardd.socket and switchyardd.service with their drop-ins as they are installed. It
listens, starts the service at the first connection or when told to, passes the socket on, and waits
for READY=1. Of the sandbox it does nothing. scripts/check_upgrade.sh uses it, in a mount namespace.
"""
import grp
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

ASKED = "/run/played-systemd"
SOCKET, SERVICE = "switchyardd.socket", "switchyardd.service"
LIMIT = 90  # seconds, as systemd's for a start and a stop


def unit(name):
    """Its settings by name; of several lines, a list."""
    found = {}
    files = [next(place / name for place in map(Path, ("/etc/systemd/system", "/lib/systemd/system"))
                  if (place / name).exists())]
    files += sorted(Path(f"/etc/systemd/system/{name}.d").glob("*.conf"))
    for line in "\n".join(file.read_text() for file in files).split("\n"):
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            found.setdefault(key, []).append(value)
    return found


def link(name):
    """What enables it."""
    return Path("/etc/systemd/system", unit(name)["WantedBy"][0] + ".wants", name)


class Played:
    def __init__(self):
        self.listener = None
        self.service = None
        self.ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ready.bind(ASKED + ".ready")
        self.ready.settimeout(LIMIT)

    def active(self, name):
        if name == SOCKET:
            return self.listener is not None
        return self.service is not None and self.service.poll() is None

    def start(self, name):
        if self.active(name):
            return
        if name == SOCKET:
            path = unit(SOCKET)["ListenStream"][0]
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            Path(path).unlink(missing_ok=True)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            os.chmod(path, int(unit(SOCKET)["SocketMode"][0], 8))
            self.listener.listen(512)
            return
        self.start(SOCKET)  # Wants=
        settings = unit(SERVICE)
        state = "/var/lib/" + settings["StateDirectory"][0]
        os.makedirs(state, 0o700, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "STATE_DIRECTORY": state,
                       "NOTIFY_SOCKET": ASKED + ".ready", "LISTEN_FDS": "1"}
        for line in settings.get("Environment", []):
            environment.update(word.split("=", 1) for word in line.split())
        group = grp.getgrnam(settings["Group"][0]).gr_gid

        def becomes():
            os.dup2(self.listener.fileno(), 3)
            os.setgid(group)

        # The shell's process becomes the monitor, so it is the one that LISTEN_PID has to name.
        self.service = subprocess.Popen(
            ["/bin/sh", "-c", "export LISTEN_PID=$$; exec " + settings["ExecStart"][0]],
            env=environment, preexec_fn=becomes, pass_fds=(3,), stdin=subprocess.DEVNULL)
        while b"READY=1" not in self.ready.recv(4096):
            pass

    def stop(self, name):
        if not self.active(name):
            return
        if name == SOCKET:
            self.listener.close()
            self.listener = None
            Path(unit(SOCKET)["ListenStream"][0]).unlink(missing_ok=True)  # RemoveOnStop=
            return
        self.service.terminate()
        self.service.wait(LIMIT)

    def do(self, words):
        """The answer to systemctl: its status, and what it prints."""
        verb, *names = [word for word in words if not word.startswith("-")] or [""]
        for name in names:
            if verb in ("start", "stop"):
                getattr(self, verb)(name)
            elif verb == "restart" or (verb == "try-restart" and self.active(name)):
                self.stop(name)
                self.start(name)
            elif verb == "is-active" and not self.active(name):
                return 3, ""
            elif verb == "preset":  # at the first installation: it enables
                link(name).parent.mkdir(parents=True, exist_ok=True)
                link(name).symlink_to("/lib/systemd/system/" + name)
            elif verb == "is-enabled":
                return (0, "enabled\n") if link(name).is_symlink() else (1, "disabled\n")
        return 0, ""

    def play(self):
        asks = socket.socket(socket.AF_UNIX)
        asks.bind(ASKED)
        asks.listen(16)
        os.makedirs("/run/systemd/system")  # the mark of a machine that runs systemd
        while True:
            # A connection waits in the socket until the service accepts it.
            waits = self.listener is not None and not self.active(SERVICE)
            found, _, _ = select.select([asks] + ([self.listener] if waits else []), [], [], 0.1)
            if asks in found:
                peer, _ = asks.accept()
                with peer:
                    status, said = self.do(peer.recv(4096).decode().split("\0"))
                    peer.sendall(f"{status}\n{said}".encode())
            elif found:
                self.start(SERVICE)


def systemctl(words):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(ASKED)
        peer.sendall("\0".join(words).encode())
        peer.shutdown(socket.SHUT_WR)
        status, _, said = peer.makefile().read().partition("\n")
    sys.stdout.write(said)
    return int(status)


if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "systemctl":
        sys.exit(systemctl(sys.argv[1:]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Played().play()
