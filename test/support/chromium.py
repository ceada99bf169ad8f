# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Headless Chromium, driven through its debugging pipe: nothing is installed for it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

TIMEOUT_S = 60


class Browser:
    """A browser with one page open; `errors` are those of its console and its scripts."""

    def __init__(self, url: str, folder: Path, width: int = 1400, height: int = 1000) -> None:
        assert BROWSER is not None
        self.errors: list[str] = []
        self._loaded: set[str] = set()
        self._numbers = itertools.count(1)
        self._buffer = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Chromium reads from 3 and writes to 4.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", BROWSER]
        command += ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"]
        # Its sandbox needs rights that a container has not; the page is our own.
        command += ["--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={folder}"]
        command += [f"--window-size={width},{height}", "--hide-scrollbars", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)
        self.open(url)

    def open(self, url: str) -> None:
        """Load a page, and what it loads."""
        loader = self.send("Page.navigate", url=url)["loaderId"]
        while loader not in self._loaded:
            self._note(self._read())

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def run(self, script: str) -> Any:
        """Evaluate JavaScript and return its value; a promise is awaited."""
        done = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"]))
        return done["result"].get("value")

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true, looked at whenever the page changes."""
        return self.run(
            f"""new Promise((resolve, reject) => {{
              const look = () => {{
                const value = {condition};
                if (value) {{ watch.disconnect(); resolve(value); }}
              }};
              const watch = new MutationObserver(look);
              watch.observe(document, {{ subtree: true, childList: true, attributes: true,
                                         characterData: true }});
              setTimeout(() => reject(new Error("not true: " + {json.dumps(condition)} + " in "
                + document.body.innerText)), {TIMEOUT_S * 1000});
              look();
            }})"""
        )

    def picture(self, file: Path) -> None:
        """Save what the page looks like as PNG."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.send("Browser.close")
        self._process.wait(TIMEOUT_S)
        os.close(self._out)
        os.close(self._in)

    def _read(self) -> Any:
        while b"\0" not in self._buffer:
            chunk = os.read(self._in, 1 << 16)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self._loaded.add(parameters["loaderId"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.errors.append(json.dumps(parameters["args"]))
