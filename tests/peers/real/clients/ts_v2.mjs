// The official TypeScript SDK 2.x; MODE is the era.
import { args, headers, name, play, url } from "./steps.mjs";

const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");

const options = { capabilities: {}, versionNegotiation: { mode: process.env.MODE } };
const client = new Client({ name: "restart", version: "1.0.0" }, options);
client.onerror = (error) => console.error(error);
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
await play(
  () => client.callTool({ name, arguments: args }),
  async () => (await client.listTools()).tools.map((tool) => tool.name),
);
