// mcp-use for JavaScript.
import { args, headers, name, play, url } from "./steps.mjs";

const { MCPClient } = await import("mcp-use");
const client = MCPClient.fromDict({ mcpServers: { headend: { url, headers } } });
const session = await client.createSession("headend");
await play(
  () => session.connector.callTool(name, args),
  async () => (await session.connector.listTools()).map((tool) => tool.name),
);
