"""A plugin of pytest under which every loaded model is moved to the stand-in device first."""

from __future__ import annotations

from typing import Any

from device import stand_in

DEVICE = stand_in.install()


def pytest_configure() -> None:
    from interp.model import load

    adopt = load._adopt

    def moved(module: Any, *args: Any) -> Any:
        return adopt(module.to(DEVICE), *args)

    load._adopt = moved
