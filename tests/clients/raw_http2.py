"""A client of raw HTTP/2 frames, for what no gRPC library lets a client do."""

import socket
import struct

SETTINGS, HEADERS, DATA, PING = 4, 1, 0, 6
ACK = END_STREAM = 1
END_HEADERS = 4


def frame(kind, flags, stream, payload):
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header field without indexing or Huffman code (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class DeafClient:
    """Sends one unary call and never opens a window for its answer; it answers pings."""

    def __init__(self, address, path, message):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        headers = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"x"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
        body = message.SerializeToString()
        no_window = struct.pack(">HI", 4, 0)
        self._socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(SETTINGS, 0, 0, no_window)
            + frame(HEADERS, END_HEADERS, 1, b"".join(literal(*h) for h in headers))
            + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(body)) + body)
        )
        self._buffer = b""

    def serve_pings(self, seconds):
        """Reads what comes for so long; answers settings and pings."""
        self._socket.settimeout(seconds)
        try:
            self._buffer += self._socket.recv(65536)
        except TimeoutError:
            return
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            if kind == PING and not flags & ACK:
                self._socket.sendall(frame(PING, ACK, 0, payload))
            if kind == SETTINGS and not flags & ACK:
                self._socket.sendall(frame(SETTINGS, ACK, 0, b""))

    def close(self):
        self._socket.close()
