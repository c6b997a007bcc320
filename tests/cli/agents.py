"""Agents that talk to `interp mcp`, in this process and as a client of another one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import interp
from interp.model.loading import Loading

pytest.importorskip("mcp", reason="interp[mcp] is not installed")

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from interp.cli.mcp.server import agent_server
from interp.cli.mcp.session import AgentSession

MODEL = "planted:induction"  # its head L1H0 is one


def repeated_texts(folder: Path, n: int = 120) -> Path:
    """Write documents for a model without a tokenizer: random tokens, each text repeated once."""
    texts = interp.repeats(interp.load(MODEL), n=n, max_length=32, seed=1).ids
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": [int(i) for i in x]}) + "\n" for x in texts))
    return path


def session_in(folder: Path, *models: str, **options) -> AgentSession:
    return AgentSession(models or (MODEL,), Loading(), folder, **options)


def talk(server, conversation, **options):
    """Return what a conversation with a server returns; `server` is a session or a command."""
    if isinstance(server, AgentSession):
        server = agent_server(server)

    async def whole():
        async with Client(server, **options) as client:
            return await conversation(client)

    return asyncio.run(asyncio.wait_for(whole(), 120))


def call(server, tool, **given):
    """Return whether a tool failed, and what it said."""

    async def conversation(client):
        return await client.call_tool(tool, given)

    result = talk(server, conversation)
    return result.is_error, result.content[0].text


def command_of(*args, cwd=None) -> StdioServerParameters:
    """Return `interp mcp ARGS` as a client starts it."""
    words = ["-m", "interp", "mcp", *map(str, args)]
    return StdioServerParameters(command=sys.executable, args=words, env={**os.environ}, cwd=cwd)
