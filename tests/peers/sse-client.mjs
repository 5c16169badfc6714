// Client on the HTTP+SSE transport of the TypeScript SDK 1.x. `structured` of a call has the number of progress notices.
import { headers, job, peers, run } from "./job.mjs";

const { Client } = peers("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = peers("@modelcontextprotocol/sdk/client/sse.js");

const transport = new SSEClientTransport(new URL(job.target.url), { requestInit: { headers: headers() } });
const client = new Client({ name: "peer-sse-ts", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport);
await run("sse-ts", client, null, async (call) => {
  let notices = 0;
  const result = await client.callTool(call, undefined, { onprogress: () => notices++ });
  return { ...result, structuredContent: { notices } };
});
