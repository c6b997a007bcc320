"""Chromium through chromedriver, for pages opened from a file."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs chromium and chromedriver (apt-get install chromium chromium-driver)",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key the WebDriver standard names
ENTER, ESCAPE, DOWN, RIGHT = "\ue007", "\ue00c", "\ue015", "\ue014"


class Browser:
    def __init__(self, address, scripts=True):
        self.address = address
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu"]}
        self.scripts = scripts
        if not scripts:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        logs = {"performance": "ALL", "browser": "ALL"}
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": logs}
        started = self.call("POST", "", {"capabilities": {"alwaysMatch": asked}})
        self.address += f"/{started['sessionId']}"
        self.process = started["capabilities"]["goog:processID"]

    def call(self, method, path, content=None):
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            told = json.load(error)["value"]["message"]
            raise RuntimeError(f"{method} {path}: {told}") from error

    def open(self, path):
        self.log("performance"), self.log("browser")  # of the page before
        self.call("POST", "/url", {"url": path.as_uri()})

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def fetched(self):
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        urls = {event["params"]["request"]["url"] for event in sent}
        return {url for url in urls if not url.startswith(("data:", "blob:"))}

    def run(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}")

    def find(self, selector):
        asked = {"using": "css selector", "value": selector}
        return f"/element/{self.call('POST', '/element', asked)[ELEMENT]}"

    def click(self, selector, seconds=10):
        """Click on an element as soon as nothing lies above it: pages move while they are drawn."""
        end = time.monotonic() + seconds
        # in the middle of the window, not below what stays on its upper edge
        centre = "document.querySelector(arguments[0]).scrollIntoView({block: 'center'})"
        while True:
            self.run(centre, selector)
            try:
                return self.call("POST", f"{self.find(selector)}/click", {})
            except RuntimeError as error:
                moved = "intercepted" in str(error) or "stale element" in str(error)
                if not moved or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def type(self, selector, keys):
        self.call("POST", f"{self.find(selector)}/value", {"text": keys})

    def press(self, key):
        """Press a key where the focus is."""
        actions = [{"type": way, "value": key} for way in ("keyDown", "keyUp")]
        keys = {"type": "key", "id": "keys", "actions": actions}
        self.call("POST", "/actions", {"actions": [keys]})

    def touch(self, on):
        """A screen for fingers, or a mouse again."""
        asked = {"cmd": "Emulation.setTouchEmulationEnabled", "params": {"enabled": on}}
        self.call("POST", "/goog/cdp/execute", asked)

    def tap(self, x, y):
        """Put a finger down at a place of the window, and lift it."""
        where = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
        actions = [where, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        finger = {"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}}
        self.call("POST", "/actions", {"actions": [finger | {"actions": actions}]})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def emulate(self, theme, width, height=900):
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        for name, asked in (("setEmulatedMedia", media), ("setDeviceMetricsOverride", size)):
            self.call("POST", "/goog/cdp/execute", {"cmd": f"Emulation.{name}", "params": asked})

    def screenshot(self):
        # a page just opened on a busy machine has no picture yet: two frames have to be drawn
        drawn = "const done = arguments[0];"
        drawn += "requestAnimationFrame(() => requestAnimationFrame(() => done(1)))"
        if self.scripts:  # without them no frame answers
            self.call("POST", "/execute/async", {"script": drawn, "args": []})
        asked = {"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": True}}
        return base64.b64decode(self.call("POST", "/goog/cdp/execute", asked)["data"])


@contextmanager
def started(scripts: bool = True) -> Iterator[Browser]:
    """A browser that runs the scripts of pages or does not, gone after the block."""
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True
    ) as driver:
        try:
            line = next(line for line in driver.stdout if "successfully on port" in line)
            port = line.rstrip(".\n").rpartition(" ")[2]
            opened = Browser(f"http://127.0.0.1:{port}/session", scripts)
            yield opened
            opened.call("DELETE", "")
        finally:
            driver.terminate()
