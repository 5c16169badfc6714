// The MCP client of the AI SDK.
import { args, headers, name, play, url } from "./steps.mjs";

const sdk = await import("@ai-sdk/mcp");
const create = sdk.createMCPClient ?? sdk.experimental_createMCPClient;
const client = await create({ transport: { type: "http", url, headers } });
const tools = await client.tools();
await play(
  () => tools[name].execute(args, { toolCallId: "1", messages: [] }),
  async () => Object.keys(await client.tools()),
);
