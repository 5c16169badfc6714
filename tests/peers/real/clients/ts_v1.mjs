// The official TypeScript SDK 1.x; SDK is the folder of the version.
import { args, headers, name, play, url } from "./steps.mjs";

const { Client } = await import(`${process.env.SDK}/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${process.env.SDK}/client/streamableHttp.js`);

const client = new Client({ name: "restart", version: "1.0.0" }, { capabilities: {} });
client.onerror = (error) => console.error(error);
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
await play(
  () => client.callTool({ name, arguments: args }),
  async () => (await client.listTools()).tools.map((tool) => tool.name),
);
