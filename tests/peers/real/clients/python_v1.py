"""The official Python SDK 1.x."""

import asyncio

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    async with streamablehttp_client(URL, headers=HEADERS) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()

        async def call():
            return (await session.call_tool(NAME, ARGUMENTS)).content

        async def tools():
            return [tool.name for tool in (await session.list_tools()).tools]

        await play(call, tools)


asyncio.run(main())
