// The operator at the console, in a real browser.
//
// job:    {"browser": path, "token"}
// stdin:  {"url","answer"}: follows the address and presses "once", "session" or "deny", or "leave"s without an answer
// stdout: {"ready"}, then for each line {"heading","after"}: the page's subject, and its text after the answer
import { createInterface } from "node:readline";
import { job, peers } from "./job.mjs";

const { chromium } = peers("playwright-core");
const browser = await chromium.launch({ executablePath: job.browser, args: ["--no-sandbox"] });
const context = await browser.newContext();
const say = (line) => console.log(JSON.stringify(line));

/** An address from a client leads to the door until somebody has signed in. */
async function enter(page, url) {
  await page.goto(url);
  if (!page.url().includes("/sign-in")) return;
  await page.getByLabel("Operator's token").fill(job.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL((at) => !at.pathname.startsWith("/sign-in"));
  if (page.url() !== url) await page.goto(url);
}

async function answer({ url, answer }) {
  const page = await context.newPage();
  await enter(page, url);
  const heading = await page.getByRole("heading", { level: 1 }).textContent();
  const buttons = { once: /^Allow once/, session: "For this session", deny: /^Deny/ };
  try {
    if (answer === "session") await page.getByText("Allow for longer").click();
    if (buttons[answer]) {
      await page.getByRole("button", { name: buttons[answer] }).click();
      await page.getByText(/^(Allowed|Denied)/).first().waitFor();
    }
  } catch (error) {
    throw new Error(`${error} on ${page.url()}: ${await page.locator("body").innerText()}`);
  }
  const after = await page.locator("main").innerText();
  await page.close();
  return { heading, after };
}

say({ ready: browser.version() });
for await (const line of createInterface({ input: process.stdin })) {
  say(await answer(JSON.parse(line)).catch((error) => ({ failed: String(error) })));
}
await browser.close();
