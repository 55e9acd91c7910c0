"""A small client of the gateway's WebSocket, with the standard library alone."""

import base64
import json
import os
import socket
import struct


class Refused(Exception):
    """The gateway answered that it does not do this."""


class Gateway:
    """A connection. Any failure raises OSError, and the connection is then of no more use."""

    def __init__(self, port, token, within=10, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), within)
        self.number = 0
        key = base64.b64encode(os.urandom(16)).decode()
        head = ("GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (port, key))
        self.socket.sendall(head.encode())
        self.input = self.socket.makefile("rb")
        if b" 101 " not in self.input.readline():
            raise OSError("no WebSocket")
        while self.input.readline().strip():
            pass
        client = {"id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend"}
        self.call("connect", {"minProtocol": 4, "maxProtocol": 4, "client": client, "role": "operator",
                              "scopes": ["operator.admin", "operator.read", "operator.write"], "caps": [],
                              "auth": {"token": token}})

    def close(self):
        self.input.close()
        self.socket.close()

    def send(self, opcode, payload):
        length = len(payload)
        size = struct.pack("!B", 0x80 | length) if length < 126 else (
            struct.pack("!BH", 0xFE, length) if length < 65536 else struct.pack("!BQ", 0xFF, length))
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        self.socket.sendall(struct.pack("!B", 0x80 | opcode) + size + mask + masked)

    def exactly(self, count):
        data = self.input.read(count)
        if len(data) != count:
            raise OSError("the gateway hung up")
        return data

    def message(self):
        text = b""
        while True:
            first, length = self.exactly(2)
            if length == 126:
                length = struct.unpack("!H", self.exactly(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self.exactly(8))[0]
            data, opcode = self.exactly(length), first & 15
            if opcode == 8:
                raise OSError("closed: " + data[2:].decode(errors="replace"))
            if opcode == 9:
                self.send(10, data)
            elif opcode in (0, 1):
                text += data
                if first & 0x80:
                    return json.loads(text)

    def call(self, method, params):
        self.number += 1
        frame = {"type": "req", "id": str(self.number), "method": method, "params": params}
        self.send(1, json.dumps(frame).encode())
        while True:
            message = self.message()
            if message.get("type") == "res" and message.get("id") == str(self.number):
                if not message.get("ok"):
                    raise Refused(json.dumps(message.get("error")))
                return message.get("payload")
