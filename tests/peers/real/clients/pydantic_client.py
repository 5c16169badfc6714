"""The MCP client of Pydantic AI."""

import asyncio

from pydantic_ai.mcp import MCPToolset

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    async with MCPToolset(URL, headers=HEADERS) as server:

        async def call():
            return await server.direct_call_tool(NAME, ARGUMENTS)

        async def tools():
            return [tool.name for tool in await server.list_tools()]

        await play(call, tools)


asyncio.run(main())
