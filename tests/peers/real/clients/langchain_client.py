"""LangChain's adapters for Python, with the tools of one session."""

import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    client = MultiServerMCPClient({"headend": {"transport": "streamable_http", "url": URL, "headers": HEADERS}})
    async with client.session("headend") as session:
        loaded = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call():
            return await loaded[NAME].ainvoke(ARGUMENTS)

        async def tools():
            return [tool.name for tool in await load_mcp_tools(session)]

        await play(call, tools)


asyncio.run(main())
