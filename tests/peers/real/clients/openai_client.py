"""The MCP client of the OpenAI Agents SDK."""

import asyncio

from agents.mcp import MCPServerStreamableHttp

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    params = {"url": URL, "headers": HEADERS, "timeout": 30}
    async with MCPServerStreamableHttp(params=params, client_session_timeout_seconds=60) as server:

        async def call():
            return (await server.call_tool(NAME, ARGUMENTS)).content

        async def tools():
            return [tool.name for tool in await server.list_tools()]

        await play(call, tools)


asyncio.run(main())
