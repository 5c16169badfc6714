// The client of a conformance run in which the suite plays the server: suite's server <- relay <- gateway <- this program.
//
// The suite starts it for each scenario, appends the URL of its server and names the scenario in MCP_CONFORMANCE_SCENARIO
// and its data in MCP_CONFORMANCE_CONTEXT. Our variables are:
//   GATEWAY     a line for sh that starts the gateway on stdin and stdout; "$1" is the URL of its upstream
//   RELAY       the URL of the relay; `/PORT/path` after it leads to `/path` at that port
//   CLIENT_ERA  legacy or modern
//   PEERS_NODE  the folder that holds the installed `node_modules`
import { createRequire } from "node:module";
import { join } from "node:path";

const peers = createRequire(join(process.env.PEERS_NODE, "package.json"));
const { Client } = peers("@modelcontextprotocol/client");
const { StdioClientTransport } = peers("@modelcontextprotocol/client/stdio");

/** A call that a server never answers must not hold the run up. */
const PATIENCE = { timeout: 5000 };

const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || "{}");
const server = new URL(process.argv.at(-1));
const upstream = `${process.env.RELAY}/${server.port}${server.pathname}`;

const mode = process.env.CLIENT_ERA === "modern" ? { pin: "2026-07-28" } : "legacy";
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
const client = new Client({ name: "conformance-driver", version: "1.0.0" }, { capabilities, versionNegotiation: { mode } });

/** Accepts every form: with its defaults, else with something of the right type. */
client.setRequestHandler("elicitation/create", ({ params }) => {
  const made = { boolean: true, string: "x" };
  const fields = Object.entries(params.requestedSchema?.properties ?? {});
  const content = Object.fromEntries(fields.map(([name, field]) => [name, field.default ?? made[field.type] ?? 1]));
  return { action: "accept", content };
});

await client.connect(
  new StdioClientTransport({
    command: "sh",
    args: ["-c", process.env.GATEWAY, "sh", upstream],
    env: process.env,
    stderr: "inherit",
  }),
);

let { tools } = await client.listTools();
// On a busy machine the gateway lists no tools at first, and announces them later.
const calls = !["initialize", "request-metadata", "json-schema-ref-no-deref"].includes(scenario);
for (let tries = 0; calls && tools.length === 0 && tries < 200; tries++) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  ({ tools } = await client.listTools());
}
const call = (name, args = {}) => client.callTool({ name, arguments: args }, PATIENCE);
/** Where the scenario wants the call to be tried, however it ends. */
const attempt = (name, args) => call(name, args).catch((error) => console.error(`${name}: ${error.message}`));
const listed = (name) => tools.find((tool) => tool.name === name);

const steps = {
  // These scenarios only connect and list.
  initialize: async () => {},
  "request-metadata": async () => {},
  "json-schema-ref-no-deref": async () => {},

  tools_call: () => call("add_numbers", { a: 5, b: 3 }),
  "elicitation-sep1034-client-defaults": () => call("test_client_elicitation_defaults"),
  "sse-retry": () => call("test_reconnection"),
  "json-schema-2020-12-preservation": () =>
    call("json_schema_echo", { schema: listed("json_schema_2020_12_tool").inputSchema }),
  "http-custom-headers": async () => {
    for (const { name, arguments: args } of context.toolCalls) await call(name, args);
  },
  // Tools with bad definitions must not be listed; all listed ones are called.
  "http-invalid-tool-headers": async () => {
    for (const tool of tools) await attempt(tool.name, { region: "us-west1" });
  },
  "http-standard-headers": async () => {
    for (const tool of tools) await call(tool.name);
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  "sep-2322-client-request-state": async () => {
    for (const tool of ["echo_state", "unrelated", "no_state", "no_result_type"]) await attempt(`test_mrtr_${tool}`);
  },
};

const step = steps[scenario];
if (!step) throw new Error(`no step for the scenario ${scenario}`);
await step();
await client.close();
process.exit(0);
