"""Servers with the HTTP gateway, in one process or apart, and small HTTP clients."""

import contextlib
import http.client
import json
import socket

import openai
from conftest import PATIENCE, Server


class HttpServer(Server):
    """`renga serve` with the gateway on a free port."""

    def __init__(self, model, *flags, **options):
        if "--gateway.address" not in flags:
            flags = ("--gateway.address", "127.0.0.1:0", *flags)
        super().__init__(model, *flags, **options)

    def wait_listening(self):
        super().wait_listening()
        self.http_address = self.wait_event("listening")["gateway"]
        return self

    def client(self, **options):
        """The official client; it does not repeat what was refused."""
        options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE, **options}
        return openai.OpenAI(base_url=f"http://{self.http_address}/v1", **options)

    def post(self, path, body, **headers):
        return request(self.http_address, "POST", path, body, headers)

    def get_http(self, path, **headers):
        return request(self.http_address, "GET", path, None, headers)


def request(address, method, path, body=None, headers=None):
    """(status, headers, body) of one request; a body that is no bytes becomes JSON."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    all_headers = {key.replace("_", "-"): value for key, value in (headers or {}).items()}
    if body is not None:
        all_headers.setdefault("Content-Type", "application/json")
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=all_headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def error_of(answer):
    """The error object of a refusal, which must be OpenAI's in full."""
    error = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def raw_connection(address, receive_buffer=None):
    """A plain socket to the address."""
    host, port = address.rsplit(":", 1)
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(PATIENCE)
    plain.connect((host, int(port)))
    return plain


def http_bytes(path, body, *headers):
    """A whole POST request as bytes."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json"]
    lines += [*headers, f"Content-Length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


def sse_data(text):
    """The data of each event."""
    return [e[6:] for e in text.split("\n\n") if e.startswith("data: ")]
