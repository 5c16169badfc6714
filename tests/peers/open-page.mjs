// Pages of the console that stay open in a real browser: one in the background learns of questions, and of the end of the daemon.
//
// job:    {"browser": path, "base": address, "token"}
// stdin:  one command a line, see `commands`
// stdout: {"ready"}, then one answer for each command
import { createInterface } from "node:readline";
import { job, peers } from "./job.mjs";

const { chromium } = peers("playwright-core");
const browser = await chromium.launch({ executablePath: job.browser, args: ["--no-sandbox"] });
const context = await browser.newContext({ permissions: ["notifications"] });
// The notifications that the pages show, since a browser without a screen shows none.
await context.addInitScript(() => {
  window.shown = [];
  window.Notification = class {
    static permission = "granted";
    static requestPermission = async () => "granted";
    constructor(title, options) { window.shown.push({ title, ...options }); }
    close() {}
  };
  const Stream = window.EventSource;
  window.EventSource = class extends Stream {
    constructor(...given) {
      super(...given);
      this.addEventListener("waiting", () => { window.told = true; });
    }
  };
  // A browser without a screen says of every page that it can be seen, whichever is at the front; newer ones say that it has the focus.
  let hidden = false;
  const focused = document.hasFocus.bind(document);
  document.hasFocus = () => !hidden && focused();
  Object.defineProperty(document, "hidden", { get: () => hidden });
  Object.defineProperty(document, "visibilityState", { get: () => (hidden ? "hidden" : "visible") });
  window.conceal = (on) => {
    hidden = on;
    document.dispatchEvent(new Event("visibilitychange"));
  };
});
const say = (line) => console.log(JSON.stringify(line));
const pressed = [];
let page;
let front;

// Playwright tells every page that it has the focus; these pages are to know the truth.
async function truthful(page) {
  const session = await context.newCDPSession(page);
  await session.send("Emulation.setFocusEmulationEnabled", { enabled: false });
}

const seen = () => page.evaluate(() => ({
  hidden: document.hidden,
  title: document.title,
  icon: document.querySelector('link[rel="icon"]').getAttribute("href"),
  shown: window.shown,
  gone: !document.querySelector("[data-gone]").hidden,
  resting: [...document.querySelectorAll("form button")].map((button) => button.getAttribute("aria-disabled") === "true"),
  questions: document.querySelectorAll("details.question").length,
}));

const commands = {
  /** Signs in, switches the notifications on, and leaves the page in the background. */
  async background() {
    page = await context.newPage();
    await page.goto(`${job.base}/sign-in`);
    await page.getByLabel("Operator's token").fill(job.token);
    await page.keyboard.press("Enter");
    await page.waitForURL(`${job.base}/`);
    // A page notifies of what comes after its stream has begun.
    await page.waitForFunction(() => window.told, null, { timeout: 30000, polling: 100 });
    const before = await page.evaluate(() => window.shown.length);
    await page.getByRole("button", { name: "Notify me" }).click();
    await page.getByRole("button", { name: "Stop the notifications" }).waitFor();
    front = await context.newPage();
    await truthful(page);
    await truthful(front);
    await front.bringToFront();
    await page.evaluate(() => conceal(true));
    await page.waitForFunction(() => !document.hasFocus(), null, { timeout: 10000, polling: 100 });
    return { before, ...await seen() };
  },
  /** Waits for a title and for so many notifications, and says what else there is then. */
  async title({ title, shown = 0 }) {
    const isThere = ({ title, shown }) => document.title.startsWith(title) && window.shown.length >= shown;
    await page.waitForFunction(isThere, { title, shown }, { timeout: 30000, polling: 100 });
    return seen();
  },
  /** Looks at the page, and waits until it shows a question. */
  async front() {
    await page.bringToFront();
    await page.evaluate(() => conceal(false));
    await page.waitForFunction(() => document.querySelector("details.question"), null, { timeout: 30000, polling: 100 });
    return seen();
  },
  async gone() {
    await page.waitForFunction(() => !document.querySelector("[data-gone]").hidden, null, { timeout: 30000 });
    const before = page.url();
    await page.locator("form.answers button.deny").first().click({ force: true });
    await page.keyboard.press("d");
    const text = await page.locator("[data-gone]").innerText();
    return { text, stays: page.url() === before, ...await seen() };
  },
  async back() {
    await page.waitForFunction(() => document.querySelector("[data-gone]").hidden, null, { timeout: 60000 });
    return seen();
  },
  /** Answers so many questions by keys: the first by `a`, the next by `d`, and so on. Says all that were answered so far. */
  async keys({ most }) {
    const number = () => page.evaluate(() => document.querySelectorAll("details.question").length);
    if (pressed.length === 0) {
      await page.reload();
      await page.keyboard.press("j");
    }
    // The question that has the focus and is open, once it is another one than that.
    const next = (last) => page.waitForFunction((last) => {
      const question = document.activeElement.closest("details.question");
      return question?.open && question.id !== last && question.id;
    }, last, { timeout: 30000, polling: 50 });
    const before = await number();
    for (let left = before; left > before - most; left = await number()) {
      const id = await (await next(pressed.at(-1)?.[0])).jsonValue();
      const key = pressed.length % 2 === 0 ? "a" : "d";
      const focused = () => page.evaluate(() => document.activeElement.closest("details.question")?.id);
      // The list may be drawn anew while the question is looked at, and then it has to be looked at again, as by a person.
      for (let looks = 0; await number() >= left; looks += 1) {
        if (looks === 60) throw new Error(`${key} does not answer ${id}`);
        // Longer than a question has to be on the screen.
        await page.waitForTimeout(450);
        if (await focused() === id) await page.keyboard.press(key);
      }
      pressed.push([id, key]);
    }
    return { before, pressed, ...await seen() };
  },
};

say({ ready: browser.version() });
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const failed = async (error) => ({ failed: String(error), ...await seen().catch(() => ({})) });
  say(await commands[command.do](command).catch(failed));
}
await browser.close();
