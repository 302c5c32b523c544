"""A headless Chromium, driven by its DevTools protocol.

The program is RENGA_CHROMIUM, else the first of chromium, chromium-browser and google-chrome
on the PATH; find() is None without one.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

from websockets.sync.client import connect

PATIENCE = 60.0  # Seconds for anything that must happen; only a hang reaches it.


def find():
    given = os.environ.get("RENGA_CHROMIUM")
    names = [given] if given else ["chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One browser with one tab; `width` and `height` are of the page, in CSS pixels."""

    def __init__(self, width=1280, height=860, dark=False, phone=False):
        self._profile = tempfile.TemporaryDirectory(
            prefix="renga_chromium_", ignore_cleanup_errors=True
        )
        command = [
            find(),
            "--headless=new",
            "--no-sandbox",  # Containers run tests as root.
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._profile.name}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.console = []  # Errors and warnings of the page.
        self._last_id = 0
        self._socket = None
        self._open = contextlib.ExitStack()
        try:
            connection = connect(self._page_url(), max_size=None)
            self._socket = self._open.enter_context(connection)
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
            self.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=2 if phone else 1,
                mobile=phone,
            )
            features = {
                "prefers-color-scheme": "dark" if dark else "light",
                "prefers-reduced-motion": "reduce",  # Clicks find things at rest.
            }
            self.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": k, "value": v} for k, v in features.items()],
            )
        except BaseException:
            self.close()
            raise

    def _page_url(self):
        port_file = pathlib.Path(self._profile.name) / "DevToolsActivePort"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if port_file.exists() and port_file.read_text().count("\n") >= 1:
                port = port_file.read_text().split("\n")[0]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                    tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
                if tabs:
                    return tabs[0]["webSocketDebuggerUrl"]
            time.sleep(0.05)
        raise AssertionError("Chromium did not start")

    def call(self, method, **params):
        self._last_id += 1
        self._socket.send(
            json.dumps({"id": self._last_id, "method": method, "params": params})
        )
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            self._note(message)
            if message.get("id") == self._last_id:
                assert "error" not in message, message
                return message["result"]

    def _note(self, message):
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            if params["entry"]["level"] in ("error", "warning"):
                self.console.append(params["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            assert time.monotonic() < end, f"never: {expression}"
            time.sleep(0.02)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code, modifiers=0):
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
            )

    def click(self, selector):
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    def screenshot(self, path):
        image = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(image))

    def close(self):
        """Asks it to end, so that its helpers leave the profile first."""
        try:
            if self._socket:
                self._last_id += 1
                self._socket.send(
                    json.dumps({"id": self._last_id, "method": "Browser.close"})
                )
            else:
                self._process.terminate()
            self._process.wait(timeout=PATIENCE)
        finally:
            self._open.close()
            self._process.kill()
            self._process.wait()
            self._profile.cleanup()
