"""Client on FastMCP, the framework that most Python hosts are written with."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from job import JOB, MODE, TARGET, environment, report, text_of


def transport():
    """A transport to the job's target."""
    if "url" in TARGET:
        headers = {"Authorization": f"Bearer {TARGET['token']}"} if TARGET.get("token") else {}
        return StreamableHttpTransport(TARGET["url"], headers=headers)
    command, *args = TARGET["command"]
    return StdioTransport(command, args, env=environment(), keep_alive=False)


async def main() -> None:
    async with Client(transport(), mode=MODE, timeout=60) as client:
        tools = [tool.name for tool in await client.list_tools()]
        calls = []
        for call in JOB["calls"]:
            result = await client.call_tool(call["name"], call["arguments"], raise_on_error=False)
            calls.append(
                {
                    "name": call["name"],
                    "isError": bool(result.is_error),
                    "text": text_of(result.content),
                    "structured": result.structured_content,
                }
            )
    report("fastmcp", None, tools, calls)


asyncio.run(main())
