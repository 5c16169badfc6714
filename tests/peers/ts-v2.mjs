// Client on the TypeScript SDK 2.x, which speaks both eras; the job names one.
import { environment, headers, job, peers, run } from "./job.mjs";

const { Client, StreamableHTTPClientTransport } = peers("@modelcontextprotocol/client");
const { StdioClientTransport } = peers("@modelcontextprotocol/client/stdio");

const transport = job.target.url
  ? new StreamableHTTPClientTransport(new URL(job.target.url), { requestInit: { headers: headers() } })
  : new StdioClientTransport({
      command: job.target.command[0],
      args: job.target.command.slice(1),
      env: environment(),
      stderr: "inherit",
    });
const mode = job.era === "modern" ? { pin: "2026-07-28" } : job.era;
const client = new Client({ name: "peer-ts-v2", version: "1.0.0" }, { capabilities: {}, versionNegotiation: { mode } });
await client.connect(transport);
await run("ts-v2", client, client.getNegotiatedProtocolVersion() ?? null, (call) => client.callTool(call));
