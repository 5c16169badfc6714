// LangChain's adapters for JavaScript.
import { args, headers, name, play, url } from "./steps.mjs";

const { MultiServerMCPClient } = await import("@langchain/mcp-adapters");
const client = new MultiServerMCPClient({ mcpServers: { headend: { transport: "http", url, headers } } });
const tool = (await client.getTools()).find((found) => found.name === name);
await play(
  () => tool.invoke(args),
  async () => (await (await client.getClient("headend")).listTools()).tools.map((found) => found.name),
);
