"""The pinned versions install on every Python that the package supports."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def test_every_pinned_version_accepts_the_oldest_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = re.search(r"\d+\.\d+", project["requires-python"])
    assert oldest is not None
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    seen, refused = 0, []
    for name, version in pins.items():
        try:
            found = metadata(name)
        except PackageNotFoundError:  # an extra that is not installed here
            continue
        if found["Version"].partition("+")[0] != version.partition("+")[0]:
            continue  # this environment has another version
        seen += 1
        needs = found["Requires-Python"]
        if needs and f"{oldest[0]}.0" not in SpecifierSet(needs):
            refused.append(f"{name} {version}: {needs}")
    assert seen > 50, "the environment has the pinned versions"
    assert not refused
