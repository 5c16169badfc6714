// A host of MCP Apps: an official SDK client and the official host bridge in a browser, which renders a tool's view in a frame.
//
// job:    {"browser": path, "target": {"url","token"}}
// stdin:  one command a line: {"do": "connect", "era": "legacy"|"modern"|"auto", "target"}, or another one of `apps-page.mjs`
// stdout: {"ready"}, then one answer for each command
//
// The page comes from a server of its own, which serves the packages to the browser and passes `/mcp` on to the target: so the client
// in the browser needs nothing but its own origin.
import { readFile } from "node:fs/promises";
import { readFileSync } from "node:fs";
import http from "node:http";
import { dirname, join, normalize } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { headers, job, peers } from "./job.mjs";

const modules = join(process.env.PEERS_NODE, "node_modules");
const here = dirname(fileURLToPath(import.meta.url));

// What the page and the packages import by name, and where the folder of installed packages has it for a browser.
const NAMES = [
  ["@modelcontextprotocol/client", "."],
  ["@modelcontextprotocol/client", "./_shims"],
  ["@modelcontextprotocol/core", "."],
  ["@modelcontextprotocol/core", "./internal"],
  ["@modelcontextprotocol/ext-apps", "./app-bridge"],
  ["eventsource", "."],
  ["eventsource-parser", "."],
  ["eventsource-parser", "./stream"],
  ["pkce-challenge", "."],
  ["zod", "./v4"],
];
const choose = (entry) => (typeof entry === "string" ? entry : choose(entry.browser ?? entry.import ?? entry.default));
const imports = Object.fromEntries(NAMES.map(([name, part]) => {
  const { exports } = JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8"));
  return [join(name, part), join("/modules", name, choose(exports[part]))];
}));

let target = job.target;

/** Passes a request on to the target with its token; the answer may be a stream. */
function pass(request, response) {
  const { origin, referer, ...sent } = request.headers;
  const onward = http.request(target.url + request.url.slice("/mcp".length), {
    method: request.method,
    headers: { ...sent, host: new URL(target.url).host, ...headers() },
  }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
}

const PAGE = `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script>
  <script type="module" src="/apps-page.mjs"></script><div id="views"></div>`;

/** Answers with the page, its script or a file of a package. */
async function serve(path, response) {
  const file = path === "/apps-page.mjs" ? join(here, path) : join(modules, normalize(path.slice("/modules".length)));
  const body = path === "/" ? PAGE : await readFile(file).catch(() => null);
  response.writeHead(body === null ? 404 : 200, { "content-type": path === "/" ? "text/html" : "text/javascript" });
  response.end(body);
}

const server = http.createServer((request, response) => {
  const path = new URL(request.url, "http://host").pathname;
  return path === "/mcp" || path.startsWith("/mcp/") ? pass(request, response) : serve(path, response);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));

const { chromium } = peers("playwright-core");
const browser = await chromium.launch({ executablePath: job.browser, args: ["--no-sandbox"] });
const page = await browser.newPage();
page.on("pageerror", (error) => console.error(`page: ${error}`));
page.on("console", (message) => console.error(`${message.type()}: ${message.text()}`));
await page.goto(`http://127.0.0.1:${server.address().port}/`);
await page.waitForFunction(() => window.host, null, { timeout: 60000 });

const commands = {
  /** Presses an element of the open view and waits until a text of it matches; without a pattern it says the text alone. */
  async press({ press, text, matches }) {
    const view = page.frameLocator("iframe");
    const before = await page.evaluate(() => window.host.calls().length);
    if (press) {
      await view.locator(press).first().click();
      // The text of the view's own result may match before the call of the button has ended.
      await page.waitForFunction((n) => window.host.calls().length > n, before, { timeout: 20000 }).catch(() => null);
    }
    const element = view.locator(text).first();
    const found = matches ? element.filter({ hasText: new RegExp(matches) }) : element;
    const failed = await found.waitFor({ timeout: 20000 }).then(() => null, (error) => String(error));
    return { text: await element.textContent(), failed, calls: await page.evaluate(() => window.host.calls()) };
  },
};

/** Runs a command here or in the page. */
async function run(command) {
  if (commands[command.do]) return commands[command.do](command);
  return page.evaluate((command) => window.host[command.do](command), command);
}

const say = (line) => console.log(JSON.stringify(line));
say({ ready: browser.version() });
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "connect") target = command.target ?? job.target;
  say(await run(command).catch((error) => ({ failed: String(error) })));
}
await browser.close();
process.exit(0);
