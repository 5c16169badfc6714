// A client that takes orders line by line, its calls and its person's answers, on the TypeScript SDK 1.x (legacy) or 2.x (modern).
//
// job:    {"sdk":"v1"|"v2", "target":{"url","token"} | {"command":[..],"env":{..}}, "capabilities":{..}, "rounds":n}
// stdin:  {"do":"call","call":n,"name","arguments","answers":[..],"timeout":ms?}   calls; answers are given one a question
//         {"do":"answer","answer":".."}                              the person's answer to the question that was left to "wait"
//         {"do":"respond","id":..,"answer":".."}                     a response of its own accord (v1)
//         {"do":"resume","call":n,"name","arguments","state":".."}   continues a call that may be another client's (v2)
// stdout: {"protocol"}, {"asked":{..},"call":n}, {"responded":".."}, {"complete":id}, {"done":n,"isError","text","refusal"} or {"done":n,"failed"}
//
// An answer is a decision of the form (once, session, deny), an action (accept, decline, cancel), "wait", or "all": accept every
// question.
import { createInterface } from "node:readline";
import { environment, headers, job, peers } from "./job.mjs";

const old = job.sdk === "v1";
const sdk = old ? "@modelcontextprotocol/sdk/client/" : "@modelcontextprotocol/client";
const { Client } = peers(old ? `${sdk}index.js` : sdk);
const { StreamableHTTPClientTransport } = peers(old ? `${sdk}streamableHttp.js` : sdk);
const { StdioClientTransport } = peers(old ? `${sdk}stdio.js` : `${sdk}/stdio`);
const types = old ? peers("@modelcontextprotocol/sdk/types.js") : {};

const transport = job.target.url
  ? new StreamableHTTPClientTransport(new URL(job.target.url), { requestInit: { headers: headers() } })
  : new StdioClientTransport({
      command: job.target.command[0],
      args: job.target.command.slice(1),
      env: environment(),
      stderr: "inherit",
    });
const { capabilities } = job;
const modern = { versionNegotiation: { mode: { pin: "2026-07-28" } }, inputRequired: { maxRounds: job.rounds ?? 10 } };
const client = new Client({ name: `consent-${job.sdk}`, version: "1.0.0" }, old ? { capabilities } : { capabilities, ...modern });

const say = (line) => console.log(JSON.stringify(line));
let current = 0;
let plan = [];
let decide;

function response(answer, params) {
  if (answer === "all") return response(params.mode === "url" ? "accept" : "session", params);
  if (["accept", "decline", "cancel"].includes(answer)) return { action: answer };
  return { action: "accept", content: { decision: answer } };
}

/** The person: answers as planned, or when the test says what. Without a plan it closes the question. */
async function person({ params }, extra) {
  const next = plan[0] === "all" ? "all" : plan.shift();
  say({ asked: { ...params, id: extra?.requestId, unplanned: next === undefined }, call: current });
  const answer = next === "wait" ? await new Promise((resolve) => (decide = resolve)) : next;
  // A person takes longer than the 300 ms within which headend takes an answer for that of a program.
  if (!["once", "session", "deny", "accept", "all"].includes(answer)) await new Promise((resolve) => setTimeout(resolve, 400));
  return response(answer ?? "cancel", params);
}

if (capabilities.elicitation) {
  client.setRequestHandler(old ? types.ElicitRequestSchema : "elicitation/create", person);
}
if (old) {
  client.setNotificationHandler(types.ElicitationCompleteNotificationSchema, ({ params }) => say({ complete: params.elicitationId }));
}

async function report(call, result) {
  try {
    const { isError, content, _meta } = await result;
    const text = (content ?? []).map((part) => part.text ?? "").join("\n");
    say({ done: call, isError: isError ?? false, text, refusal: _meta?.["headend/refusal"] ?? null });
  } catch (error) {
    say({ done: call, failed: String(error), code: error.code ?? null });
  }
}

function callTool(params, timeout) {
  const options = timeout ? { timeout } : undefined;
  return old ? client.callTool(params, undefined, options) : client.callTool(params, options);
}

function obey(command) {
  const { name, arguments: args } = command;
  switch (command.do) {
    case "call":
      current = command.call;
      plan = [...command.answers];
      return report(command.call, callTool({ name, arguments: args }, command.timeout));
    case "answer":
      return decide(command.answer);
    case "respond":
      return transport.send({ jsonrpc: "2.0", id: command.id, result: response(command.answer, {}) });
    case "resume": {
      const inputResponses = { "gw.consent": response(command.answer, {}) };
      const params = { name, arguments: args, requestState: command.state, inputResponses };
      return report(command.call, client.request({ method: "tools/call", params }));
    }
  }
}

await client.connect(transport);
say({ protocol: (old ? transport.protocolVersion : client.getNegotiatedProtocolVersion()) ?? null });
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const obeyed = obey(command);
  // The next order must come after the response.
  if (command.do === "respond") say({ responded: await obeyed.then(() => "accepted", String) });
}
// Ends the session if there is one, without waiting for an undecided person.
if (job.target.url && old) await transport.terminateSession();
process.exit(0);
