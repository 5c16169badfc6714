// The parts of a page: when the server names a changed one, the page is fetched again and that part replaced.
import { arise } from "./gone.js";
import { waits, rename } from "./alert.js";

const main = document.getElementById("main");
const announce = document.getElementById("announce");
// A button that has just moved under the finger or the pointer must not take the click that was meant for another.
const SETTLE_MS = 800;

/** The number of open questions that the page was made with. */
export function count(page = document) {
  return Number(page.querySelector(".top [data-waiting]")?.dataset.waiting ?? 0);
}

/** Has a screen reader say it. */
export function show(text) {
  announce.textContent = "";
  requestAnimationFrame(() => { announce.textContent = text; });
}

function settle(section) {
  for (const form of section.querySelectorAll("form.answers")) {
    // A form with the keyboard focus stays active.
    if (form.contains(document.activeElement)) continue;
    form.inert = true;
    form.closest(".card")?.classList.add("settling");
    setTimeout(() => {
      form.inert = false;
      form.closest(".card")?.classList.remove("settling");
    }, SETTLE_MS);
  }
}

// A name for an element that survives the replacement of its part.
function nameOf(element) {
  if (element.id) return "#" + CSS.escape(element.id);
  const home = element.closest("[id]");
  if (!home) return null;
  const inside = element.matches("button") ? `button[value="${CSS.escape(element.value)}"]` : element.localName;
  return `#${CSS.escape(home.id)} ${inside}`;
}

function replace(old, fresh) {
  if (old.outerHTML === fresh.outerHTML) return;
  const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const scrolled = [...old.querySelectorAll("[id] pre")].map((pre) => [nameOf(pre), pre.scrollTop]);
  const known = new Set([...old.querySelectorAll(".card[id]")].map((card) => card.id));
  // An answer is about calls that the person has checked: boxes stay as they are, and those of later calls are empty.
  const boxes = new Map([...old.querySelectorAll("input[type=checkbox]")].map((box) => [box.value, box.checked]));
  for (const box of fresh.querySelectorAll("input[type=checkbox]")) box.checked = boxes.get(box.value) ?? false;
  // A confirmation that is open is about the questions of then.
  const confirming = old.querySelector("details.confirm[open]");
  const confirmed = confirming && fresh.querySelector(`#${confirming.id}`);
  if (confirmed) confirmed.replaceWith(confirming);
  for (const details of old.querySelectorAll("details[id]")) {
    const same = fresh.querySelector("#" + CSS.escape(details.id));
    if (same) same.open = details.open;
  }
  const cards = [...fresh.querySelectorAll(".card[id]")];
  const moved = cards.length !== known.size || cards.some((card) => !known.has(card.id));
  for (const card of cards) if (!known.has(card.id)) card.classList.add("arrived");
  for (const shown of fresh.querySelectorAll("[data-keys]")) shown.hidden = false;
  old.replaceWith(fresh);
  for (const [name, top] of scrolled) {
    const pre = name && fresh.querySelector(name);
    if (pre) pre.scrollTop = top;
  }
  if (focused) {
    const target = fresh.querySelector(focused);
    if (target) target.focus({ preventScroll: true });
    else main.focus({ preventScroll: true });
  }
  if (moved) settle(fresh);
}

async function refresh(parts, told) {
  const answer = await fetch(location.href, { headers: { "headend-refresh": told ? "told" : "1" }, redirect: "manual" });
  // The session has ended.
  if (answer.type === "opaqueredirect") return location.reload();
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of main.querySelectorAll("[data-part]")) {
    if (!parts.includes(old.dataset.part)) continue;
    const fresh = page.querySelector(`#main [data-part="${old.dataset.part}"]`);
    if (fresh) replace(old, document.importNode(fresh, true));
  }
  const nav = document.querySelector(".top nav");
  const navigation = page.querySelector(".top nav");
  if (nav && navigation && nav.outerHTML !== navigation.outerHTML && !nav.contains(document.activeElement)) {
    nav.replaceWith(document.importNode(navigation, true));
  }
  const notice = page.querySelector(".notices .notice");
  if (told && notice) {
    document.querySelector(".notices").replaceChildren(document.importNode(notice, true));
    show(notice.textContent);
  }
  rename(page.title);
  waits({ count: count(page) });
  arise();
}

// One refresh at a time; the next one fetches changes in between.
let due = new Set();
let telling = false;
let running = null;

/** Brings parts up to date, in a page that is looked at; `told` shows what came of an answer too. */
export function update(parts, told = false) {
  for (const part of parts) due.add(part);
  telling ||= told;
  running ??= run().finally(() => { running = null; });
  return running;
}

async function run() {
  while (due.size > 0 && (telling || !document.hidden)) {
    const [parts, told] = [[...due], telling];
    [due, telling] = [new Set(), false];
    try {
      await refresh(parts, told);
    } catch {
      // The gateway restarted, or the machine slept: the stream reconnects and names the changes.
    }
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) update([]); });
