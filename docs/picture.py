"""Pictures of pages, taken in a browser: docs/report.png and docs/design_parts.png.

    python docs/picture.py      needs Chromium on the path

report.png, for the README, is the page that the command there writes, with the card of a head;
design_parts.png is the page of docs/design_page.py, light and dark. Each picture holds a hash of
what draws its page, so that a test can say when it is older than the page.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, PngImagePlugin

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # its neighbours, however it is called

import design_page  # noqa: E402 - after the line above

HEAD = "bundled-stories/L3H4"
BESIDE = """<body style="margin:0"><iframe src="parts.html" style="color-scheme:light"></iframe>
<iframe src="parts.html" style="color-scheme:dark"></iframe>
<style>iframe {width: 49.5%; height: 1990px; border: 0}</style>"""


def main() -> None:
    """Write both pages and take their pictures."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/picture.py needs chromium; the pictures stay as they are")
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = shlex.split(command())[1:]
        subprocess.run([sys.executable, "-m", "interp", *words], cwd=folder, check=True)
        take(browser, f"{folder}/page.html#{HEAD}", (1280, 860), "report")
        (folder / "parts.html").write_bytes(design_page.parts())
        (folder / "both.html").write_text(BESIDE)
        take(browser, f"{folder}/both.html", (1360, 2000), "design_parts")


def command() -> str:
    """Return the command that the README states for its picture."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    [stated] = re.findall(r"The page above is what `([^`]+)` writes", text)
    return stated


def drawn_by(name: str) -> str:
    """Return a hash of what a picture is drawn by: the assets of an atlas, or the page itself."""
    if name == "design_parts":
        return hashlib.sha256(design_page.parts()).hexdigest()
    templates = HERE.parent / "interp/draw/templates"
    assets = [templates / "style.css", *sorted(templates.glob("atlas*"))]
    return hashlib.sha256(command().encode() + b"".join(p.read_bytes() for p in assets)).hexdigest()


def take(browser: str, address: str, size: tuple[int, int], name: str) -> None:
    """Take the picture of a page in a window of this size, in pixels."""
    path = HERE / f"{name}.png"
    look = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        f"--window-size={size[0]},{size[1]}",
        "--virtual-time-budget=4000",
        f"--screenshot={path}",
        f"file://{address}",
    ]
    subprocess.run(look, check=True, capture_output=True)
    notes = PngImagePlugin.PngInfo()
    notes.add_text("drawn by", drawn_by(name))
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(48, dither=Image.Dither.NONE).save(
            path, pnginfo=notes, optimize=True
        )
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def stored_in(name: str) -> str:
    """Return the hash of what drew a picture when it was taken."""
    with Image.open(HERE / f"{name}.png") as picture:
        return str(picture.info.get("drawn by", ""))


if __name__ == "__main__":
    main()
