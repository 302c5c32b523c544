"""`renga chat` as a person and as a script use it: piped, on a terminal, with both servers."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from conftest import PATIENCE, Server, _binary, _clean_environment, eventually


def run(*arguments, text, check_code=0):
    """Output and complaints of a piped chat."""
    done = subprocess.run(
        [_binary(), "chat", *arguments],
        input=text,
        capture_output=True,
        timeout=PATIENCE,
        env=_clean_environment(),
    )
    assert done.returncode == check_code, done.stderr
    return done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def server(tiny_model):
    running = Server(tiny_model).wait_ready()
    yield running
    running.stop_alive()


SHORT = b"/set max_tokens 4\n/set seed 3\n"


def test_piped_each_line_gets_an_answer_and_nothing_else(server):
    out, err = run("--target", server.grpc_address, text=SHORT + b"hello\nand you?\n")
    assert err == ""
    assert "\x1b" not in out
    assert "> " not in out.splitlines()[0]
    assert out.endswith("\n")
    again, _ = run("--target", server.grpc_address, text=SHORT + b"hello\nand you?\n")
    assert again == out


def test_a_model_loaded_here_gives_the_servers_answers(server, tiny_model):
    text = SHORT + "Grüße 世界\n".encode()
    apart, _ = run("--target", server.grpc_address, text=text)
    own, err = run("--model.path", tiny_model, text=text)
    assert err == ""
    assert own == apart


def test_the_history_is_sent_and_can_be_saved_and_loaded(server, tmp_path):
    path = tmp_path / "talk.json"
    text = b"/system Be kind.\n" + SHORT + b"one\ntwo\n/save " + str(path).encode() + b"\n"
    run("--target", server.grpc_address, text=text)
    messages = json.loads(path.read_text())["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[3]["content"] == "two"
    out, _ = run("--target", server.grpc_address, text=f"/load {path}\n/show\n".encode())
    assert "[system]\nBe kind.\n[user]\none\n" in out


def test_a_message_may_go_over_several_lines(server, tmp_path):
    path = tmp_path / "talk.json"
    text = SHORT + b"one\\\ntwo\\\nthree\n/save " + str(path).encode()
    run("--target", server.grpc_address, text=text)
    assert json.loads(path.read_text())["messages"][0]["content"] == "one\ntwo\nthree"


def test_errors_are_readable_and_piped_they_set_the_exit_code(server):
    text = b"/fly\n/set temperature warm\n" + SHORT + b"hello\n"
    out, err = run("--target", server.grpc_address, text=text, check_code=1)
    assert "/fly: there is no such command" in err
    assert "'warm' is not such a number" in err
    assert out.strip()  # The message after them was answered.
    _, err = run("--target", server.grpc_address, text=b"/set top_p 7\nhi\n", check_code=1)
    assert "top_p" in err


def test_what_is_missing_or_not_there_is_said(tmp_path):
    _, err = run(text=b"", check_code=2)
    assert "--target" in err and "--model.path" in err
    _, err = run("--target", "nowhere", text=b"", check_code=2)
    assert "host:port" in err
    _, err = run("--target", "127.0.0.1:1", text=b"hi\n", check_code=1)
    assert "127.0.0.1:1" in err
    _, err = run("--model.path", str(tmp_path / "none.gguf"), text=b"", check_code=1)
    assert "model.path" in err


def test_with_keys_on_it_needs_the_file_with_one(tiny_model, tmp_path, start):
    key = "alice-key-0123456789"
    keys = tmp_path / "keys"
    keys.write_text(f"alice {key}\n")
    keys.chmod(0o600)
    mine = tmp_path / "mine"
    mine.write_text(key + "\n")
    server = start(tiny_model, "--auth.keys_file", str(keys)).wait_ready()
    _, err = run("--target", server.grpc_address, text=b"hi\n", check_code=1)
    assert "key" in err and key not in err
    flags = ("--target", server.grpc_address, "--key-file", str(mine))
    out, err = run(*flags, text=SHORT + b"hi\n")
    assert err == ""


class Terminal:
    """A chat whose standard streams are a terminal."""

    def __init__(self, *arguments):
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            environment = {**_clean_environment(), "TERM": "xterm"}
            os.execve(_binary(), [_binary(), "chat", *arguments], environment)
        self.text = ""

    def wait_for(self, pattern, after=0):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text[after:]):
            assert time.monotonic() < end, self.text
            if select.select([self.handle], [], [], 1.0)[0]:
                try:
                    self.text += os.read(self.handle, 65536).decode(errors="replace")
                except OSError:  # The other side is closed.
                    assert re.search(pattern, self.text[after:]), self.text
        return self

    def type(self, text):
        os.write(self.handle, text.encode())

    def exit_code(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.handle], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.handle, 65536).decode(errors="replace")
                except OSError:
                    pass
        raise AssertionError("it does not end")

    def stop(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.handle)


@pytest.fixture
def terminal(server):
    one = Terminal("--target", server.grpc_address)
    yield one.wait_for(r"/help.*\n.*> $")
    one.stop()


def test_on_a_terminal_there_is_a_prompt_and_a_line_of_times(terminal):
    terminal.type("/set max_tokens 4\n")
    terminal.wait_for(r"max_tokens = 4\r\n> $")
    terminal.type("hello\n")
    terminal.wait_for(r"first token \d+ ms.* tokens/s.* prompt tokens cached.*\n> $")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal, server):
    terminal.type("/set min_tokens 3000\n")
    terminal.wait_for(r"min_tokens = 3000\r\n> $")
    terminal.type("a long story\n")
    eventually(lambda: server.metric("renga_requests_running") == 1, "the answer runs")
    mark = len(terminal.text)
    terminal.type("\x03")
    terminal.wait_for(r"stopped.*\n> $", mark)
    eventually(server.idle, "the server is idle again")
    mark = len(terminal.text)
    terminal.type("\x03")  # At the prompt: nothing ends.
    terminal.wait_for(r"Ctrl-D ends.*\n> $", mark)
    terminal.type("/quit\n")
    assert terminal.exit_code() == 0


def test_no_control_character_of_the_model_reaches_the_terminal(terminal, server):
    """The tiny model's answers are random bytes, control characters among them."""
    for name in ("min", "max"):
        terminal.type(f"/set {name}_tokens 300\n")
        terminal.wait_for(rf"{name}_tokens = 300\r\n> $")
    mark = len(terminal.text)
    terminal.type("hello\n")
    terminal.wait_for(r"prompt tokens cached", mark)
    shown = re.sub("\x1b\\[[02]m", "", terminal.text[mark:])  # Our own dim and plain.
    bad = [c for c in shown if (c < " " and c not in "\r\n\t") or "\x7f" <= c < "\xa0"]
    assert bad == []
