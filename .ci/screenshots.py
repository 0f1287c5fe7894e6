"""Photograph the built pages in headless Chromium, wide, narrow and dark, and check them there.

``make screenshots`` writes docs/_build/screenshots and fails where a page scrolls sideways, where
code is cut off, or where markup is left in the text. On a narrow screen the tables that a run
printed may scroll in their own box. Without internet formulas stay TeX, unless ``--packages`` names
the ``node_modules`` of an npm that has installed MathJax.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import mimetypes
import os
import re
import shutil
import sys
import tempfile

from pathlib import Path
from typing import Any

BUILT = Path(__file__).parents[1] / "docs" / "_build"
NAMES = "chromium", "chromium-browser", "google-chrome", "chrome"
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--allow-file-access-from-files", "--remote-debugging-pipe",
)  # fmt: skip
WIDE, NARROW = 1300, 400
HIGHEST = 12_000
CDN = "https://cdn.jsdelivr.net/npm/"

# What is wrong with a page, as a list of words
CHECK = r"""(() => {
  const found = [], boxes = document.querySelectorAll("html, .bd-article-container");
  for (const box of boxes) if (box.scrollWidth > box.clientWidth)
    found.push(`scrolls sideways: ${box.scrollWidth} of ${box.clientWidth} pixels`);
  for (const pre of document.querySelectorAll(".highlight pre"))
    if (pre.scrollWidth > pre.clientWidth && (innerWidth >= WIDE || !pre.closest(".cell_output")))
      found.push(`cuts code: ${pre.innerText.slice(0, 60)}`);
  const article = document.querySelector("article").cloneNode(true);
  article.querySelectorAll("pre, code, script, .math, dt").forEach((node) => node.remove());
  for (const raw of article.textContent.matchAll(/.{0,30}(\*\*|\{[\w:-]+\}`|:::|```|\]\().{0,30}/g))
    found.push(`leaves markup: ${raw[0].trim()}`);
  return found;
})()""".replace("WIDE", str(WIDE))
# Waits for what a page loads late. MathJax says that it is done only after much else
READY = r"""(async () => {
  document.querySelectorAll("img").forEach((image) => (image.loading = "eager"));
  await document.fonts.ready;
  const raw = () =>
    [...document.querySelectorAll(".math")].some((x) => !x.querySelector("mjx-container"));
  for (let k = 0; k < 200 && window.MathJax?.startup && raw(); k++)
    await new Promise((done) => setTimeout(done, 100));
})()"""


class Browser:
    """Chromium, told what to do over a pipe."""

    def __init__(self, path: str, profile: str, packages: Path | None) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Copies, because a pipe may have the numbers that the browser wants
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        duplicates = [(os.POSIX_SPAWN_DUP2, end, k) for k, end in enumerate(ends, start=3)]
        null = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        command = [path, *OPTIONS, f"--user-data-dir={profile}"]
        self._process = os.posix_spawn(path, command, os.environ, file_actions=null + duplicates)
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self._number, self._rest, self._session = 0, b"", None
        self._packages, self._loaded = packages, False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        if packages is not None:
            self.call("Fetch.enable", patterns=[{"urlPattern": "https://*"}])

    def _send(self, method: str, arguments: dict[str, Any]) -> int:
        """Send a command and return its number."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._out, text) :]
        return self._number

    def _read(self) -> dict[str, Any]:
        """Read a message, and see to what the page asks."""
        while b"\0" not in self._rest:
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended")
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Fetch.requestPaused":
            self._serve(message["params"])
        self._loaded |= message.get("method") == "Page.loadEventFired"
        return message

    def _serve(self, request: dict[str, Any]) -> None:
        """Answer the page from the folder of packages, or not at all."""
        name = re.sub(r"@\d[^/]*", "", request["request"]["url"].removeprefix(CDN))
        path, about = self._packages / name, {"requestId": request["requestId"]}
        if not path.is_file():
            self._send("Fetch.failRequest", {**about, "errorReason": "Failed"})
            return
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        headers = {"Content-Type": kind, "Access-Control-Allow-Origin": "*"}
        about["responseHeaders"] = [{"name": k, "value": v} for k, v in headers.items()]
        about["body"] = base64.b64encode(path.read_bytes()).decode()
        self._send("Fetch.fulfillRequest", {**about, "responseCode": 200})

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        number = self._send(method, arguments)
        while True:
            message = self._read()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def run(self, script: str) -> Any:
        """Return the value of a script of the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def open(self, page: Path, width: int) -> None:
        """Open a page at a width, and wait until all of it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self._loaded = False
        self.call("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._read()
        self.run(READY)

    def photograph(self, path: Path, width: int) -> None:
        """Write a picture of the whole page."""
        height = min(self.run("document.documentElement.scrollHeight"), HIGHEST)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End Chromium."""
        self._session = None
        self.call("Browser.close")
        os.waitpid(self._process, 0)


def look(browser: Browser, page: Path, name: str, folder: Path) -> list[str]:
    """Photograph and check one page."""
    found = []
    for width in (NARROW, WIDE):
        browser.open(page, width)
        found += [f"{name} at {width}: {wrong}" for wrong in browser.run(CHECK)]
        browser.photograph(folder / str(width) / f"{name}.png", width)
    browser.run("document.documentElement.dataset.theme = 'dark'")
    browser.photograph(folder / "dark" / f"{name}.png", WIDE)
    return found


def main() -> None:
    """Look at all pages, or at those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="such as index or _notebooks/quickstart")
    parser.add_argument("--packages", type=Path)
    arguments = parser.parse_args()
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        sys.exit(f"Screenshots need Chromium: none of {', '.join(NAMES)} is on the path.")
    html = BUILT / "html"
    # The sources of modules and the index have no text of ours
    pages = sorted(
        page for page in html.rglob("*.html")
        if "_modules" not in page.parts and "_static" not in page.parts
        and page.stem not in ("genindex", "py-modindex", "search")
    )  # fmt: skip
    if not pages:
        sys.exit("There are no pages. Run `make docs` first.")
    found, taken = [], 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile, arguments.packages)
        for page in pages:
            name = page.relative_to(html).with_suffix("").as_posix()
            if not arguments.pages or name in arguments.pages:
                found += look(browser, page, name, BUILT / "screenshots")
                taken += 1
        browser.close()
    print("\n".join(found))
    print(f"{taken} pages, {len(found)} faults")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
