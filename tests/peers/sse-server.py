"""A server of the official Python SDK over HTTP+SSE on a free port. Prints its URL."""

import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("old")


@server.tool()
async def add(a: int, b: int, ctx: Context) -> str:
    """Adds, with progress."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
    return str(a + b)


listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}/sse", flush=True)
uvicorn.Server(uvicorn.Config(server.sse_app(), log_level="warning")).run(sockets=[listener])
