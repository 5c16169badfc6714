// Six clients that call tools which ask, and plain ones, all at once, round after round. Half of them are on the TypeScript SDK 1.x
// (legacy), half on 2.x (modern). Each call carries the mark of its client and round, and so does each answer to a question.
import { Client as Old } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { Client as New, StreamableHTTPClientTransport as NewHttp } from "@modelcontextprotocol/client";

const { url, token, rounds } = JSON.parse(process.argv[2]);
const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const schemas = {
  "elicitation/create": ElicitRequestSchema,
  "sampling/createMessage": CreateMessageRequestSchema,
  "roots/list": ListRootsRequestSchema,
};
const strays = [];

async function connect(n) {
  const old = n % 2 === 0;
  const options = old ? { capabilities } : { capabilities, versionNegotiation: { mode: { pin: "2026-07-28" } } };
  const client = new (old ? Old : New)({ name: `asked-${n}`, version: "1.0.0" }, options);
  const me = { n, client, mark: "", asked: 0, roots: 0 };
  const answer = (method, handler) => client.setRequestHandler(old ? schemas[method] : method, handler);
  // A form has no room for a mark: it shows in the tool's result whose answer it got.
  answer("elicitation/create", ({ params }) => {
    me.asked++;
    if (params.mode === "url" && !params.url.endsWith(me.mark)) strays.push(`${me.mark} was asked to open ${params.url}`);
    return params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: me.mark, check: true } };
  });
  answer("sampling/createMessage", ({ params }) => {
    me.asked++;
    const text = params.messages[0].content.text;
    if (!text.includes(me.mark)) strays.push(`${me.mark} was asked ${text}`);
    return { role: "assistant", model: "none", content: { type: "text", text: `sampled by ${me.mark}.` } };
  });
  answer("roots/list", () => {
    me.roots++;
    return { roots: [{ uri: `file:///asked-${n}`, name: `asked-${n}` }] };
  });
  const Http = old ? OldHttp : NewHttp;
  await client.connect(new Http(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
  return me;
}

let asking = [
  (me) => ["trigger-elicitation-request", {}, `"name": "${me.mark}"`],
  (me) => ["trigger-sampling-request", { prompt: me.mark, maxTokens: 10 }, `sampled by ${me.mark}.`],
  (me) => ["trigger-url-elicitation", { url: `https://example.com/${me.mark}`, message: "open" }, `example.com/${me.mark}`],
  (me) => ["get-roots-list", {}, "file:///"],
];
const plain = [
  (me) => ["echo", { message: me.mark }, me.mark],
  (me) => ["get-sum", { a: me.n, b: 1000 }, String(me.n + 1000)],
  () => ["trigger-long-running-operation", { duration: 0.1, steps: 1 }, "completed"],
];

/** One call: `ok`, or what came instead. A result with the mark of another client is worse than none. */
async function call(me, [tool, args, wanted]) {
  try {
    const result = await me.client.callTool({ name: `every__${tool}`, arguments: args }, ...(me.n % 2 ? [] : [undefined]));
    const text = result.content.map((part) => part.text ?? "").join("\n");
    const foreign = text.match(/mark-\d+-\d+-/g)?.find((mark) => mark !== me.mark);
    if (foreign) strays.push(`${me.mark} got the answer of ${foreign} from ${tool}`);
    return !result.isError && text.includes(wanted) && !text.includes("declined") ? "ok" : `${tool}: ${text.slice(0, 160)}`;
  } catch (error) {
    return `${tool}: ${error.message.slice(0, 160)}`;
  }
}

const clients = await Promise.all([0, 1, 2, 3, 4, 5].map(connect));
// A shared process is not told that clients can open pages, so its server has no tool for that.
const listed = (await clients[0].client.listTools()).tools.map((tool) => tool.name);
asking = asking.filter((make) => listed.includes(`every__${make(clients[0])[0]}`));
console.error(`tools that ask: ${asking.map((make) => make(clients[0])[0]).join(", ")}`);
const report = { first: 0, later: {}, plain: {}, calls: 0, asked: 0, roots: 0, slowest: 0, strays };
for (let round = 0; round < rounds; round++) {
  const begun = Date.now();
  const calls = clients.flatMap((me) => {
    me.mark = `mark-${me.n}-${round}-`;
    // In the first round each tool asks; `get-roots-list` tells what its server learned from the configuration.
    const asks = round === 0 ? asking : [asking[(me.n + round) % asking.length]];
    return [...asks.map((make) => [make, report.later]), ...plain.map((make) => [make, report.plain])].map(async ([make, kind]) => {
      const said = await call(me, make(me));
      report.calls++;
      if (said === "ok") return;
      if (round === 0 && kind === report.later) report.first++;
      else kind[said.replace(/mark-\d+-\d+-/g, "mark")] = (kind[said.replace(/mark-\d+-\d+-/g, "mark")] ?? 0) + 1;
      if (round === 0) (report.examples ??= []).push(said);
    });
  });
  await Promise.all(calls);
  report.slowest = Math.max(report.slowest, Date.now() - begun);
  if (round % 100 === 99) console.error(`round ${round + 1}: ${JSON.stringify({ ...report, strays: strays.length })}`);
}
for (const me of clients) {
  report.asked += me.asked;
  report.roots += me.roots;
}
console.log(JSON.stringify(report));
process.exit(0);
