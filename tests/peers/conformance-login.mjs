// The client of a conformance run about authorization, in which the suite plays the server and the authorization server:
// suite's servers <- gateway <- this program. The person and the browser are stand-ins: `headend login up --paste` prints the
// address of the login page, a GET follows it up to the redirect back, and that address is pasted.
//
// The suite starts it for each scenario, appends the URL of its server and names the scenario in MCP_CONFORMANCE_SCENARIO and its
// data in MCP_CONFORMANCE_CONTEXT. Our variables are:
//   HEADEND     the gateway's program
//   CLIENT_ERA  legacy or modern
//   PEERS_NODE  the folder that holds the installed `node_modules`
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const peers = createRequire(join(process.env.PEERS_NODE, "package.json"));
const { Client } = peers("@modelcontextprotocol/client");
const { StdioClientTransport } = peers("@modelcontextprotocol/client/stdio");

const scenario = (process.env.MCP_CONFORMANCE_SCENARIO ?? "").replace(/^auth\//, "");
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || "{}");
const headend = process.env.HEADEND;
const folder = mkdtempSync(join(process.cwd(), "login-"));

const secret = (name, text) => {
  const file = join(folder, name);
  writeFileSync(file, text, { mode: 0o600 });
  return `{ file = ${JSON.stringify(file)} }`;
};

/** The table `[upstreams.up.auth]` of the scenario. */
const auth = [];
if (scenario.startsWith("client-credentials")) auth.push(`type = "client-credentials"`);
if (scenario.startsWith("wif")) {
  auth.push(`type = "workload"`, secret("assertion", context.valid_jwt).replace(/^\{ file = (.*) \}$/, "assertion-file = $1"));
}
if (scenario === "basic-cimd") {
  auth.push(`client-metadata-url = "https://conformance-test.local/client-metadata.json"`);
}
if (context.client_id) auth.push(`client-id = ${JSON.stringify(context.client_id)}`);
if (context.client_secret) auth.push(`client-secret = ${secret("secret", context.client_secret)}`);
if (context.private_key_pem) auth.push(`private-key = ${secret("key", context.private_key_pem)}`);

/** The authorization server of the suite, which an operator reads where the credential comes from. */
async function issuer() {
  const url = new URL(process.argv.at(-1));
  const known = "/.well-known/oauth-protected-resource";
  for (const path of [known + url.pathname, known]) {
    const answer = await fetch(new URL(path, url));
    if (answer.ok) return (await answer.json()).authorization_servers[0];
  }
  return url.origin;
}
if (auth.some((line) => /^(client-secret|private-key|assertion-file)/.test(line))) {
  auth.push(`issuers = ${JSON.stringify([await issuer()])}`);
}
const byItself = auth.some((line) => line.startsWith("type"));

const config = join(folder, "headend.toml");
writeFileSync(
  config,
  `[server]
listen = ["127.0.0.1:0"]

[server.auth]
mode = "none"

[metrics]
listen = "127.0.0.1:0"

[console]
listen = "127.0.0.1:0"

[policy]
default = "allow"

[upstreams.up]
url = ${JSON.stringify(process.argv.at(-1))}
${auth.length > 0 ? `\n[upstreams.up.auth]\n${auth.join("\n")}\n` : ""}`,
  { mode: 0o600 },
);
const base = { ...process.env, HEADEND_CONFIG: config };
const started = (args, stdio) => spawn(headend, args, { env: base, stdio });

const daemon = started(["serve"], ["ignore", "pipe", "pipe"]);
const listening = new Promise((resolve) => {
  for (const stream of [daemon.stdout, daemon.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      console.error(`serve: ${line}`);
      if (line.includes("listening")) resolve();
    });
  }
});
const ended = new Promise((_, reject) => daemon.on("exit", (code) => reject(new Error(`headend serve ended: ${code}`))));
ended.catch(() => {});
await Promise.race([listening, ended]);

/** Names an issuer that headend does not take by itself, as an operator does who trusts it. */
async function trust(issuers) {
  const text = readFileSync(config, "utf8");
  const table = text.includes("[upstreams.up.auth]") ? "" : "\n[upstreams.up.auth]\n";
  writeFileSync(config, `${text}${table}${issuers}\n`, { mode: 0o600 });
  const child = started(["reload"], ["ignore", "inherit", "inherit"]);
  await new Promise((resolve) => child.on("exit", resolve));
}

/** One login; true when headend says that it worked, also where the server takes it back at once. */
async function login() {
  const child = started(["login", "up", "--paste"], ["pipe", "pipe", "pipe"]);
  const exit = new Promise((resolve) => child.on("exit", resolve));
  child.stdin.on("error", () => {});
  let worked = false;
  let issuers;
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on("line", async (line) => {
      console.error(`login: ${line}`);
      worked ||= line.includes("Logged in to up");
      issuers ??= line.match(/issuers = \["[^"]+"\]/)?.[0];
      const address = line.match(/https?:\/\/\S+code_challenge=\S+/)?.[0];
      if (!address) return;
      const page = await fetch(address, { redirect: "manual" });
      console.error(`browser: ${page.status} ${page.headers.get("location")}`);
      child.stdin.write(`${page.headers.get("location")}\n`);
      child.stdin.end();
    });
  }
  if ((await exit) === 0 || worked) return true;
  // Written once: the second refusal has another reason.
  if (!issuers || readFileSync(config, "utf8").includes("issuers =")) return false;
  await trust(issuers);
  return login();
}

/** Whether `headend status` says that a person has to log in. */
async function wantsLogin() {
  const child = started(["status", "up"], ["ignore", "pipe", "inherit"]);
  let text = "";
  child.stdout.on("data", (chunk) => (text += chunk));
  await new Promise((resolve) => child.on("close", resolve));
  console.error(`status: ${text}`);
  return text.includes("headend login");
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** One call: "done", "login" when a person is needed, "failed" otherwise. */
async function call() {
  const mode = process.env.CLIENT_ERA === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client({ name: "conformance-login", version: "1.0.0" }, { versionNegotiation: { mode } });
  const params = { command: headend, args: ["stdio"], env: base, stderr: "inherit" };
  await client.connect(new StdioClientTransport(params));
  try {
    let tool;
    for (let tries = 0; !tool && tries < 50; tries++) {
      tool = (await client.listTools()).tools.find(({ name }) => name.endsWith("test-tool"));
      if (!tool) await pause(100);
    }
    if (!tool) return (await wantsLogin()) ? "login" : "failed";
    const result = await client.callTool({ name: tool.name, arguments: {} }, { timeout: 8000 });
    const text = JSON.stringify(result);
    console.error(`call: ${text}`);
    if (!result.isError) return "done";
    return text.includes("headend login") ? "login" : "failed";
  } catch (error) {
    console.error(`call: ${error.message}`);
    return error.message.includes("headend login") ? "login" : "failed";
  } finally {
    await client.close();
  }
}

// The server has said what it wants when the first login begins.
for (let tries = 0; !byItself && tries < 50 && !(await wantsLogin()); tries++) await pause(100);
let outcome = "login";
// As many as a person would have the patience for; the gateway itself has to ask less often.
for (let logins = 0; outcome === "login" && logins < 4; logins++) {
  if (!byItself && !(await login())) {
    outcome = "refused";
    break;
  }
  outcome = await call();
}
daemon.kill();
console.error(`outcome: ${outcome}`);
process.exit(outcome === "done" ? 0 : 1);
