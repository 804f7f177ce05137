"""Debian's Chromium without a window, driven through the pipe that --remote-debugging-pipe opens."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

import rig as rigs

CHROMIUM = shutil.which("chromium")
_AXE = importlib.util.find_spec("axe_core_python")
AXE = pathlib.Path(_AXE.origin).parent / "axe.min.js" if _AXE else None  # axe-core, which checks accessibility


class Browser:
    """One tab. Messages are JSON with a NUL behind, as the DevTools protocol has them."""

    def __init__(self, process: subprocess.Popen, into: int, out: int) -> None:
        self.process = process
        self.problems: list[str] = []  # what the page has reported as wrong
        self._into, self._out = into, out
        self._number = 0
        self._bytes = b""
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters) -> dict:
        """Asks the browser, and returns its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _receive(self) -> dict:
        until = time.monotonic() + rigs.DEADLINE_S
        while b"\0" not in self._bytes:
            assert select.select([self._out], [], [], max(0.0, until - time.monotonic()))[0], "Chromium is silent"
            more = os.read(self._out, 1 << 20)
            assert more, "Chromium has ended"
            self._bytes += more
        text, _, self._bytes = self._bytes.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])
        return message

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window, and which colours its user prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Opens a page in place of the one before."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=url)

    def run(self, script: str):
        """The value of an expression of the page."""
        done = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, script: str, what: str) -> None:
        """Waits until the expression is true."""
        tried = f"(() => {{ try {{ return Boolean({script}); }} catch {{ return false; }} }})()"
        rigs.wait_until(lambda: self.run(tried), what=what)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard, down and up."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text=text if kind == "keyDown" else "")

    def accessible(self) -> list[tuple[str, str]]:
        """(role, name) of everything that a screen reader gets."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
                for node in nodes if not node.get("ignored")]

    def broken_rules(self) -> list[str]:
        """What axe-core finds on the page as it is: rules of WCAG 2.1, levels A and AA, and good practice."""
        self.run(f"'axe' in window || (() => {{ {AXE.read_text()} }})()")
        where = "rule.nodes.map((node) => `${node.target} ${node.failureSummary}`).join('; ')"
        return self.run("axe.run(document).then((found) => found.violations.map("
                        f"(rule) => `${{rule.id}}: ${{rule.help}}: ` + {where}))")  # fmt: skip

    def picture(self, path: pathlib.Path, kind: str = "webp") -> None:
        """A picture of the whole page."""
        taken = self.send("Page.captureScreenshot", format=kind, captureBeyondViewport=True,
                          **({"quality": 60} if kind == "webp" else {}))
        path.write_bytes(base64.b64decode(taken["data"]))


@contextlib.contextmanager
def browser():
    """A browser with a profile of its own."""
    to_read, into = os.pipe()
    out, to_write = os.pipe()

    def take_pipes() -> None:  # descriptors 3 and 4 are Chromium's side
        high_read, high_write = os.dup(to_read), os.dup(to_write)
        os.dup2(high_read, 3)
        os.dup2(high_write, 4)

    with tempfile.TemporaryDirectory(prefix="gradbus-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=take_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        try:
            yield Browser(process, into, out)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(into)
            os.close(out)
