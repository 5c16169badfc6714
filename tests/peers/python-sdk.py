"""Client on the official Python SDK 2.x, which speaks both eras."""

import asyncio

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from job import JOB, MODE, TARGET, environment, report, text_of


def transport():
    """A transport to the job's target."""
    if "url" in TARGET:
        headers = {"Authorization": f"Bearer {TARGET['token']}"} if TARGET.get("token") else {}
        return streamable_http_client(TARGET["url"], http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    command, *args = TARGET["command"]
    return stdio_client(StdioServerParameters(command=command, args=args, env=environment()))


async def main() -> None:
    async with Client(transport(), mode=MODE) as client:
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        lists = []
        if JOB.get("lists"):
            lists.append(len((await client.list_prompts()).prompts))
            lists.append(len((await client.list_resources()).resources))
            lists.append(len((await client.list_resource_templates()).resource_templates))
        calls = []
        for call in JOB["calls"]:
            result = await client.call_tool(call["name"], call["arguments"])
            calls.append(
                {
                    "name": call["name"],
                    "isError": bool(result.is_error),
                    "text": text_of(result.content),
                    "structured": result.structured_content,
                }
            )
        protocol = client.protocol_version
    report("python-sdk", protocol, tools, calls, lists)


asyncio.run(main())
