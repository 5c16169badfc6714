"""FastMCP's client; MODE is the era where the version knows eras."""

import asyncio
import os

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    era = {"mode": os.environ["MODE"]} if "MODE" in os.environ else {}
    async with Client(StreamableHttpTransport(URL, headers=HEADERS), timeout=60, **era) as client:

        async def call():
            return (await client.call_tool(NAME, ARGUMENTS)).content

        async def tools():
            return [tool.name for tool in await client.list_tools()]

        await play(call, tools)


asyncio.run(main())
