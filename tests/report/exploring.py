"""An explorer in this process, and what a person does on its page."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from report.asking import TOKEN

from interp.report.explore.app import application
from interp.report.explore.page import explore_page
from interp.report.explore.server import listening


@contextmanager
def serving(results, session):
    """The address of a running server of some results, a model, or both."""
    import uvicorn

    page, atlas = explore_page(results, session)
    opened = listening(0)
    port = opened.getsockname()[1]
    app = application(page, session, TOKEN, port, atlas)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/?token={TOKEN}"
    server.should_exit = True
    thread.join(20)
    opened.close()


def prompt(browser, text):
    browser.run("document.querySelector('#live-text').value = arguments[0]", text)
    browser.click("#live form button")
    browser.wait("return document.querySelector('.status').textContent.includes('tokens in')", 60)


def head(browser, h):
    browser.run(
        "document.querySelector(`rect.pick[data-at='0,${arguments[0]}']`)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        h,
    )


def settled(browser):
    level = "document.querySelector('.panel .level')"
    browser.wait(f"return {level} && {level}.dataset.missing === '0'", 60)
    return browser.run("return Number(document.querySelector('.panel .level').dataset.block)")


def named(browser, begin):
    browser.wait(f"return document.querySelector('.named').textContent.startsWith('{begin}')")


def corner(browser, h):
    browser.run(
        "document.querySelector(`rect.pick[data-at='0,${arguments[0]}'] + .cut`)"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        h,
    )
