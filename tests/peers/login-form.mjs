// A person at the real login form of Canaille, in a headless browser.
//
// argument: {"browser","url","back","user","password"}; stdout: the address, beginning with "back", to which the browser was sent
import { job, peers } from "./job.mjs";

const { chromium } = peers("playwright-core");
const browser = await chromium.launch({ executablePath: job.browser, args: ["--no-sandbox"] });
const page = await (await browser.newContext()).newPage();
const sent = new Promise((resolve) =>
  page.on("request", (request) => {
    if (request.url().startsWith(job.back)) resolve(request.url());
  }),
);
await page.goto(job.url);

/** Fills what the page asks for, until it asks for nothing more. */
async function answer() {
  for (let steps = 0; steps < 6; steps++) {
    const filled = [];
    for (const [name, text] of [["login", job.user], ["password", job.password]]) {
      const field = page.locator(`input[name="${name}"]:visible`);
      if ((await field.count()) > 0) filled.push(field.first().fill(text));
    }
    await Promise.all(filled);
    const agree = page.locator('button[name="answer"][value="accept"]:visible');
    const button = (await agree.count()) > 0 ? agree : page.locator('button[type="submit"]:visible').first();
    if ((await button.count()) === 0) return;
    // The next page, and not what is left of this one: on a busy machine it takes its time.
    const next = page.waitForEvent("load");
    await Promise.all([Promise.race([next, sent]), button.click()]);
  }
}

const stuck = answer().then(async () => {
  await page.waitForTimeout(5000);
  throw new Error(`stuck at ${page.url()}: ${await page.locator("body").innerText()}`);
});
console.log(await Promise.race([sent, stuck]));
await browser.close();
process.exit(0);
