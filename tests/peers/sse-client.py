"""Client on the HTTP+SSE transport of the official Python SDK. `structured` of a call holds how much progress was heard."""

import asyncio

from mcp.client import Client
from mcp.client.sse import sse_client

from job import JOB, TARGET, report, text_of


async def main() -> None:
    headers = {"Authorization": f"Bearer {TARGET['token']}"}
    async with Client(sse_client(TARGET["url"], headers=headers), mode="legacy") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        calls = []
        for call in JOB["calls"]:
            heard = []

            async def progress(now, total, message):
                heard.append(now)

            result = await client.call_tool(call["name"], call["arguments"], progress_callback=progress)
            calls.append(
                {
                    "name": call["name"],
                    "isError": bool(result.is_error),
                    "text": text_of(result.content),
                    "structured": {"notices": len(heard)},
                }
            )
        protocol = client.protocol_version
    report("sse-python", protocol, tools, calls)


asyncio.run(main())
