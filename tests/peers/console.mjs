// The console in a real browser: every page in light and dark, wide and narrow, judged by axe; then used with the keyboard, with
// scripts and without. node console.mjs BROWSER BASE QUIET_BASE TOKEN TEXTS_BASE CROWDED_BASE; pictures go
// to HEADEND_TEST_SHOTS, if it is set.
import { readFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [browserPath, base, quiet, token, texts, crowded] = process.argv.slice(2);
const shots = process.env.HEADEND_TEST_SHOTS;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
if (shots) mkdirSync(shots, { recursive: true });

const problems = [];
const wrong = (text) => { problems.push(text); console.log(text); };
const PAGES = [
  ["overview", "/"],
  ["approval", "/approvals/k7hq9cmv2r5wjd8x"],
  ["grants", "/grants"],
  ["pins", "/pins"],
  ["upstreams", "/upstreams"],
  ["upstream", "/upstreams/files"],
  ["upstream-down", "/upstreams/legacy-crm"],
  ["upstream-login", "/upstreams/docs"],
  ["upstream-logged-in", "/upstreams/wiki"],
  ["login", "/login/Nm3yxXKpWq1uVb0sEfJ2gA"],
  ["login-address", "/login/k2VbZt0sEfJ2gANm3yxXKp"],
  ["decisions", "/decisions"],
  ["calls", "/calls"],
  ["unknown", "/approvals/gone"],
];
// Approvals with texts of many kinds, and whether something in them is suspicious.
const TEXTS = [
  ["chinese", false], ["german", false], ["emoji", false], ["arabic", false], ["file20k", false], ["edit", false], ["picture", false],
  ["bidi", true], ["filler", true],
];
// Both colours and both layouts are judged by axe, which takes most of the time; the others only by their layout.
const LOOKS = [
  ["light", "light", 1280, 900, true],
  ["dark", "dark", 1280, 900, false],
  ["phone-light", "light", 390, 844, false],
  ["phone-dark", "dark", 390, 844, true],
  ["small", "light", 360, 640, false],
];

const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });

async function open(options) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error" && !/status of 40[34]/.test(message.text())) wrong(`console: ${message.text()} at ${page.url()}`);
  });
  page.on("pageerror", (error) => wrong(`script: ${error.message} at ${page.url()}`));
  return page;
}

async function signIn(page, at = base) {
  await page.goto(`${at}/sign-in`);
  await page.getByLabel("Operator's token").fill(token);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${at}/`);
}

async function judgeByAxe(page, name) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of result.violations) {
    const nodes = violation.nodes.map((node) => `${node.html.slice(0, 160)} | ${node.failureSummary?.split("\n").slice(1, 3).join(" ")}`);
    const text = `${name}: ${violation.impact} ${violation.id}: ${violation.help}\n  ${nodes.join("\n  ")}`;
    if (violation.impact === "serious" || violation.impact === "critical") wrong(text);
    else console.log(text);
  }
}

async function judge(page, name, byAxe) {
  if (byAxe) await judgeByAxe(page, name);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) wrong(`${name}: ${wide} pixels too wide`);
  const small = await page.evaluate(() => [...document.querySelectorAll("button, summary, nav a, input:not([type=hidden])")]
    .filter((element) => element.checkVisibility() && element.getBoundingClientRect().height < 43.5)
    .map((element) => element.outerHTML.slice(0, 100)));
  if (small.length) wrong(`${name}: smaller than a finger: ${small.join(", ")}`);
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
}

async function judgeAll([look, colorScheme, width, height, byAxe]) {
  const page = await open({ colorScheme, viewport: { width, height } });
  await page.goto(`${base}/sign-in`);
  await judge(page, `sign-in-${look}`, byAxe);
  await signIn(page);
  for (const [name, path] of PAGES) {
    await page.goto(base + path);
    if (name === "approval") await page.locator("summary").first().click();
    if (name === "upstream") await page.getByText("Disable", { exact: true }).click();
    if (name === "upstream-logged-in") await page.getByText("Login", { exact: true }).last().click();
    if (name === "login-address") await page.getByText("Its whole address").click();
    await judge(page, `${name}-${look}`, byAxe);
  }
  await signIn(page, quiet);
  await judge(page, `quiet-${look}`, byAxe);
  await signIn(page, crowded);
  await judge(page, `crowded-${look}`, byAxe);
  await page.getByText("Deny all").click();
  await page.locator("#approval-q07 > summary").click();
  await judge(page, `crowded-open-${look}`, byAxe);
  // The number of what waits stands beside its word.
  const covered = await page.evaluate(() => [...document.querySelectorAll(".top nav .count")].some((count) => {
    const range = document.createRange();
    range.selectNode(count.parentElement.firstChild);
    const [word, number] = [range.getBoundingClientRect(), count.getBoundingClientRect()];
    return number.left < word.right && number.right > word.left && number.top < word.bottom && number.bottom > word.top;
  }));
  if (covered) wrong(`crowded-${look}: the number covers its word`);
  await signIn(page, texts);
  for (const [id, suspicious] of TEXTS) {
    await page.goto(`${texts}/approvals/${id}`);
    if (shots) await page.screenshot({ path: `${shots}/text-${id}-${look}-first.png` });
    const card = page.locator("article.alone");
    const parts = [
      ["who", ".lede strong"], ["the client", ".lede q"], ["what", ".name"], ["where to", ".lede .to"],
      ["no", "button.deny"], ["yes", "button.allow"], ...(suspicious ? [["the suspicious mark", ".doubts .notice"]] : []),
    ];
    // At one moment: the page replaces its parts when it is told of changes.
    const boxes = await page.evaluate((places) => places.map((place) => {
      const box = document.querySelector(`article.alone ${place}`)?.getBoundingClientRect();
      return box && { x: box.x, y: box.y, width: box.width, height: box.height };
    }), parts.map(([, place]) => place));
    for (const [at, [what]] of parts.entries()) {
      const box = boxes[at];
      if (!box || box.width === 0 || box.y < 0 || box.y + box.height > height || box.x < 0 || box.x + box.width > width) {
        wrong(`${id}-${look}: ${what} is not on the first screen: ${JSON.stringify(box)}`);
      }
    }
    if (!suspicious && await card.locator(".doubts").count()) wrong(`${id}-${look}: a doubt about plain text`);
    if (suspicious && !await card.locator(".arguments mark").count()) wrong(`${id}-${look}: nothing is marked where it stands`);
    // However long it is: it opens at its beginning, and name and buttons stay.
    const [top, ...places] = await page.evaluate(() => {
      const begin = scrollY;
      const parts = [".name", ".answers .deny", ".answers .allow"].map((place) => document.querySelector(`article.alone ${place}`));
      const end = document.documentElement.scrollHeight - innerHeight;
      return [begin, ...[0, .25, .5, .75].map((part) => {
        scrollTo(0, end * part);
        return parts.every((one) => { const box = one.getBoundingClientRect(); return box.top >= -1 && box.bottom <= innerHeight + 1; });
      })];
    });
    if (top !== 0) wrong(`${id}-${look}: opens ${top} pixels below its beginning`);
    if (places.includes(false)) wrong(`${id}-${look}: name or buttons leave the screen: ${places}`);
    // What is hidden stays so in no way: neither a character nor a text that runs below the buttons.
    const told = await card.innerText();
    if (/[\u202a-\u202e\u2066-\u2069\u3164\u200b]/.test(told)) wrong(`${id}-${look}: a hidden character`);
    const under = await page.evaluate(() => {
      window.scrollTo(0, document.body.scrollHeight);
      const bar = document.querySelector(".alone .answers").getBoundingClientRect();
      return [...document.querySelectorAll(".alone .arguments pre")].some((pre) => pre.getBoundingClientRect().bottom > bar.top + 1);
    });
    if (under) wrong(`${id}-${look}: the buttons cover the arguments at the end of the page`);
    for (const details of await card.locator("details.more > summary").all()) await details.click();
    await judge(page, `text-${id}-${look}`, byAxe);
  }
  await page.context().close();
}
await Promise.all(LOOKS.map(judgeAll));

// With scripts: the keyboard alone, then a page that follows the changes of another.
{
  const page = await open({ viewport: { width: 1280, height: 900 } });
  const other = await open({ viewport: { width: 1280, height: 900 } });
  await signIn(page);
  await signIn(other);
  await page.keyboard.press("Tab");
  const first = await page.evaluate(() => document.activeElement?.textContent);
  if (first !== "Skip to the content") wrong(`the first stop of the keyboard is ${first}`);
  await page.goto(`${base}/approvals/z3n8ytf6b4lqsg2v`);
  // A browser gives the focus with the first frame, which may come after the page has loaded.
  const focused = () => page.evaluate(() => document.activeElement?.value);
  await page.waitForFunction(() => document.activeElement?.value === "deny", null, { timeout: 60000 })
    .catch(async () => wrong(`the button with the focus is ${await focused()}`));
  await page.keyboard.press("Enter");
  await page.waitForURL(`${base}/`);
  await page.getByText("Denied: this call of files__list_directory by local is not made.").first().waitFor();
  await other.locator("#approval-z3n8ytf6b4lqsg2v").waitFor({ state: "detached", timeout: 60000 });
  const heading = await other.getByRole("heading", { level: 1 }).textContent();
  if (!heading.startsWith("2 approvals wait")) wrong(`the other page says ${heading}`);
  await page.context().close();
  await other.context().close();
}

// Forty questions, by keys alone.
{
  const page = await open({ viewport: { width: 1280, height: 900 } });
  await signIn(page, crowded);
  const left = () => page.evaluate(() => document.querySelectorAll("details.question").length);
  const focused = () => page.evaluate(() => document.activeElement.closest("details.question")?.id);
  await page.evaluate(() => {
    const field = document.createElement("input");
    field.id = "typed";
    document.getElementById("main").append(field);
    field.focus();
  });
  await page.keyboard.type("jadk");
  if (await page.locator("#typed").inputValue() !== "jadk" || await focused()) wrong("keys act while somebody types");
  await page.evaluate(() => document.getElementById("typed").remove());
  // From before the question opens until after the key: on a busy machine it may have been looked at for long enough.
  await page.evaluate(() => {
    addEventListener("keydown", ({ key }) => { if (key === "j") window.opens ??= performance.now(); }, true);
    addEventListener("keydown", ({ key }) => { if (key === "a") window.answers ??= performance.now(); });
  });
  await page.keyboard.press("d");
  await page.keyboard.press("j");
  await page.keyboard.press("a");
  const looked = await page.evaluate(() => window.answers - window.opens);
  await page.keyboard.press("Control+d");
  await page.waitForTimeout(300);
  if (!(looked >= 400) && await left() !== 40) wrong(`a question that was looked at for ${looked} ms is answered`);
  const first = await focused();
  for (const key of ["j", "k"]) await page.keyboard.press(key);
  if (await focused() !== first) wrong(`k does not lead back to ${first}: ${await focused()}`);
  if (await page.evaluate(() => document.querySelectorAll("details.question[open]").length) !== 1) wrong("more than one is open");
  // The question that has the focus and is open, once it is another one than that.
  const next = (last) => page.waitForFunction((last) => {
    const question = document.activeElement.closest("details.question");
    return question?.open && question.id !== last && question.id;
  }, last, { polling: 100, timeout: 60000 }).catch(async (error) => {
    const open = await page.evaluate(() => [...document.querySelectorAll("details.question[open]")].map(({ id }) => id));
    throw new Error(`after ${last} the focus is in ${await focused()}, open are ${open}, left ${await left()}: ${error.message}`);
  });
  for (let id; await left() > 0;) {
    id = await (await next(id)).jsonValue();
    const key = await left() % 3 === 0 ? "d" : "a";
    const question = page.locator(`#${id}`);
    // A question that a busy machine draws late has to be looked at again, as by a person.
    for (let looks = 0; await question.count() > 0; looks += 1) {
      if (looks === 30) throw new Error(`no key answers ${id}`);
      await page.waitForTimeout(450);
      if (await focused() === id) await page.keyboard.press(key);
      // A key that counted is given its time: another one might answer the next question.
      await question.waitFor({ state: "detached", timeout: 2000 }).catch(() => {});
    }
  }
  await page.getByText("Nothing waits for you").waitFor();
  if (shots) await page.screenshot({ path: `${shots}/after-keys.png` });
  await page.context().close();
}

// Without scripts.
{
  const page = await open({ viewport: { width: 390, height: 844 }, javaScriptEnabled: false });
  await signIn(page);
  await page.locator("#approval-pb4xw2nkd7q3tz6m").getByRole("button", { name: "Allow once" }).click();
  await page.getByText("Allowed once: mail__send for local, with exactly these arguments.").waitFor();
  await page.locator("#approval-k7hq9cmv2r5wjd8x").getByRole("button", { name: "Deny" }).click();
  await page.getByText("Denied: this call of postgres__execute_sql by local is not made.").waitFor();
  await page.goto(`${base}/upstreams/files`);
  await page.getByText("Disable", { exact: true }).click();
  await page.getByRole("button", { name: "Disable until the next start" }).click();
  await page.getByRole("button", { name: "Enable" }).waitFor();
  await page.goto(`${base}/grants`);
  await page.getByRole("button", { name: /Revoke the grant for github__create_issue/ }).click();
  await page.getByText("Revoked.").waitFor();
  if (shots) await page.screenshot({ path: `${shots}/no-scripts-phone.png`, fullPage: true });
  await page.context().close();
}

await browser.close();
if (problems.length) {
  console.log(`${problems.length} problems`);
  process.exit(1);
}
console.log("no problems");
