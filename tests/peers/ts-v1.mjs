// Client on the TypeScript SDK 1.x, which speaks the `initialize` era only.
import { environment, headers, job, peers, run } from "./job.mjs";

const { Client } = peers("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = peers("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = peers("@modelcontextprotocol/sdk/client/streamableHttp.js");

const transport = job.target.url
  ? new StreamableHTTPClientTransport(new URL(job.target.url), { requestInit: { headers: headers() } })
  : new StdioClientTransport({
      command: job.target.command[0],
      args: job.target.command.slice(1),
      env: environment(),
      stderr: "inherit",
    });
const client = new Client({ name: "peer-ts-v1", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport);
await run("ts-v1", client, transport.protocolVersion ?? null, (call) => client.callTool(call));
