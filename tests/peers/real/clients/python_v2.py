"""The official Python SDK 2.x."""

import asyncio
import os

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    transport = streamable_http_client(URL, http_client=httpx2.AsyncClient(headers=HEADERS, timeout=60))
    async with Client(transport, mode=os.environ["MODE"]) as client:

        async def call():
            return (await client.call_tool(NAME, ARGUMENTS)).content

        async def tools():
            return [tool.name for tool in (await client.list_tools()).tools]

        await play(call, tools)


asyncio.run(main())
