"""The monitor's socket: one JSON request after the other, framed as include/switchyard/wire.h says.

For what is timed or repeated so often that a program's start would count; all else uses the CLI.

Threading: one thread.
"""

import json
import socket
import struct

MAGIC = 0x31445753
HEADER = struct.Struct("<4I")


class Refused(RuntimeError):
    pass


class Monitor:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.id = 0

    def send(self, **request):
        self.id += 1
        body = json.dumps(request).encode()
        self.socket.sendall(HEADER.pack(MAGIC, HEADER.size, len(body), self.id) + body)

    def receive(self):
        head = self.socket.recv(HEADER.size, socket.MSG_WAITALL)
        answer = json.loads(self.socket.recv(HEADER.unpack(head)[2], socket.MSG_WAITALL))
        if not answer["ok"]:
            raise Refused(answer["error"])
        return answer

    def ask(self, **request):
        self.send(**request)
        return self.receive()
