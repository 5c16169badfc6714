"""mcp-use for Python."""

import asyncio

from mcp_use import MCPClient

from steps import ARGUMENTS, HEADERS, NAME, URL, play


async def main():
    client = MCPClient.from_dict({"mcpServers": {"headend": {"url": URL, "headers": HEADERS}}})
    session = await client.create_session("headend")

    async def call():
        return (await session.call_tool(NAME, ARGUMENTS)).content

    async def tools():
        return [tool.name for tool in await session.list_tools()]

    await play(call, tools)


asyncio.run(main())
