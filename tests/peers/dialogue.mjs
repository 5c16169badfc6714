// A client of the reference server `everything` with its questions and notifications, on the TypeScript SDK 1.x (legacy) or 2.x
// (modern), as the job says. Reports the questions, updates, log messages and tool results that it got.
import { environment, headers, job, peers } from "./job.mjs";

const old = job.sdk === "v1";
const sdk = old ? "@modelcontextprotocol/sdk/client/" : "@modelcontextprotocol/client";
const { Client } = peers(old ? `${sdk}index.js` : sdk);
const { StreamableHTTPClientTransport } = peers(old ? `${sdk}streamableHttp.js` : sdk);
const { StdioClientTransport } = peers(old ? `${sdk}stdio.js` : `${sdk}/stdio`);

const transport = job.target.url
  ? new StreamableHTTPClientTransport(new URL(job.target.url), { requestInit: { headers: headers() } })
  : new StdioClientTransport({
      command: job.target.command[0],
      args: job.target.command.slice(1),
      env: environment(),
      stderr: "inherit",
    });
const capabilities = { elicitation: { form: {} }, sampling: {} };
const options = old ? { capabilities } : { capabilities, versionNegotiation: { mode: { pin: "2026-07-28" } } };
const client = new Client({ name: `dialogue-${job.sdk}`, version: "1.0.0" }, options);

// The old SDK identifies methods by their schemas.
const types = old ? peers("@modelcontextprotocol/sdk/types.js") : {};
const names = {
  "elicitation/create": types.ElicitRequestSchema,
  "sampling/createMessage": types.CreateMessageRequestSchema,
  "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
  "notifications/message": types.LoggingMessageNotificationSchema,
};
const answer = (method, handler) => client.setRequestHandler(names[method] ?? method, handler);
const hear = (method, handler) => client.setNotificationHandler(names[method] ?? method, handler);

const report = { asked: [], updated: [], logged: 0, said: [] };
answer("elicitation/create", ({ params }) => {
  report.asked.push(params.message);
  return { action: "accept", content: { name: "Ada", check: true } };
});
answer("sampling/createMessage", ({ params }) => {
  report.asked.push(params.messages[0].content.text);
  return { role: "assistant", model: "none", content: { type: "text", text: "sampled here" } };
});
hear("notifications/resources/updated", ({ params }) => void report.updated.push(params.uri));
hear("notifications/message", ({ params }) => void (report.logged += params.logger?.startsWith("every") ? 1 : 0));

/** Waits for something that comes by itself. */
async function until(what, done) {
  for (let n = 0; n < 200 && !done(); n++) await new Promise((resolve) => setTimeout(resolve, 50));
  if (!done()) report.missing = [...(report.missing ?? []), what];
}

async function call(name, args = {}) {
  const meta = old ? {} : { _meta: { "io.modelcontextprotocol/logLevel": "debug" } };
  const call = { name: `every__${name}`, arguments: args, ...meta };
  let result = await client.callTool(call);
  // The server makes some of its tools a moment after the handshake; a busy machine is slower than that.
  for (let tries = 0; result.isError && / not found/.test(JSON.stringify(result.content)) && tries < 100; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    result = await client.callTool(call);
  }
  report.said.push({ name, isError: result.isError ?? false, text: result.content.map((part) => part.text ?? "").join("\n") });
}

await client.connect(transport);
const listed = (await client.listTools()).tools.map((tool) => tool.name);
report.listed = listed.includes("every__trigger-elicitation-request") && listed.includes("every__trigger-sampling-request");
await call("trigger-elicitation-request");
const all = await client.listResources();
const [{ uri }] = all.resources;
await call("trigger-sampling-request", { prompt: "a question", maxTokens: 10 });
report.uri = uri;
if (old) await client.subscribeResource({ uri });
else await client.listen({ resourceSubscriptions: [uri] });
await call("toggle-subscriber-updates");
await until("an update", () => report.updated.length > 0);
if (old) await client.setLoggingLevel("debug");
await call("toggle-simulated-logging");
// A modern client gets messages of a call only, and the next one comes within five seconds.
if (!old && !report.logged) await call("trigger-long-running-operation", { duration: 7, steps: 2 });
await until("a log message", () => report.logged > 0);
// Both are switched off again for other clients of the server.
await call("toggle-simulated-logging");
await call("toggle-subscriber-updates");
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
