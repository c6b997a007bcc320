"""Picture of an atlas in the README: docs/report.png.

    python docs/picture.py      needs Chromium on the path

It shows, in a browser, the page that the commands in this file write, with the card of a head.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

OUT = Path(__file__).parent / "report.png"
HEAD = "#bundled-induction/L1H0"
SIZE = "1280,860"  # pixels


def main() -> None:
    """Score, profile, write the atlas and take the picture."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("docs/picture.py needs chromium; the picture stays as it is")
    interp = [sys.executable, "-m", "interp"]
    with TemporaryDirectory() as folder:
        score = ["score", "bundled:induction", "-o", "results"]
        profile = ["profile", "bundled:induction", "-o", "results"]
        atlas = ["atlas", "results", "bundled:induction", "-o", "page.html"]
        for words in (score, profile, atlas):
            subprocess.run([*interp, *words], cwd=folder, check=True, capture_output=True)
        look = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={SIZE}", "--virtual-time-budget=4000", f"--screenshot={OUT}",
            f"file://{folder}/page.html{HEAD}",
        ]  # fmt: skip
        subprocess.run(look, check=True, capture_output=True)
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
