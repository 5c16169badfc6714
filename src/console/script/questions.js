// Questions in a list: keys that go from one to the next and answer the one in focus, and answers that leave the list in its place.
import { isResting } from "./gone.js";
import { show, update } from "./parts.js";

// An answer by a key counts for a question that has been on the screen for so long.
const LOOK_MS = 400;
const PARTS = ["approvals", "grants", "decisions"];

/** Since when each open question can be read. */
const opened = new Map();
/** The question that a key has opened. */
let led = null;

const questions = () => [...document.querySelectorAll("details.question")];
const inFocus = () => document.activeElement?.closest("details.question") ?? null;

function isOnScreen(question) {
  const box = question.querySelector("summary").getBoundingClientRect();
  return box.bottom > 0 && box.top < innerHeight;
}

function note(question) {
  if (!question.open) opened.delete(question.id);
  else if (!opened.has(question.id)) opened.set(question.id, performance.now());
}

/** Opens a question, closes the one that was opened so before, and gives it the focus. */
function go(question) {
  const before = led && document.getElementById(led);
  if (before && before !== question) before.open = false;
  if (!question.open) [question.open, led] = [true, question.id];
  question.querySelector("summary").focus({ preventScroll: true });
  question.scrollIntoView({ block: "start" });
  note(question);
}

function step(by) {
  const all = questions();
  if (all.length === 0) return;
  const at = all.indexOf(inFocus());
  go(all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)]);
}

/** Presses a button of the question in focus, if that has been there to be read. */
function answer(word) {
  const question = inFocus();
  if (!question) return show("No question is in focus; j goes to the first one.");
  if (!question.open || !isOnScreen(question)) return go(question);
  if (performance.now() - (opened.get(question.id) ?? Infinity) < LOOK_MS) return;
  const button = question.querySelector(`form.answers button[value="${word}"]`);
  if (!button) return show("Allowing this needs the operator on the command line.");
  button.form.requestSubmit(button);
}

/** Sends a form of the list without leaving the page. The form names the question and the digest of what it shows. */
async function send(form, button) {
  const fields = new URLSearchParams(new FormData(form));
  if (button.name) fields.append(button.name, button.value);
  const all = questions();
  const question = form.closest("details.question");
  const at = all.indexOf(question);
  const next = (all[at + 1] ?? all[at - 1])?.id;
  const wasLed = question && question.contains(document.activeElement) && !form.contains(document.activeElement);
  try {
    const sent = await fetch(form.getAttribute("action"), { method: "POST", body: fields, redirect: "manual" });
    // Anything but the way back is a refusal: the form is not of this session any more.
    if (sent.type !== "opaqueredirect") return location.reload();
  } catch {
    return show("headend does not answer; nothing was answered.");
  } finally {
    delete form.dataset.sent;
  }
  await update(PARTS, true);
  const target = wasLed && next && document.getElementById(next);
  if (target) go(target);
}

const KEYS = { j: () => step(1), k: () => step(-1), a: () => answer("once"), d: () => answer("deny") };

function pressed(event) {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  const isOther = event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented;
  const act = KEYS[event.key];
  if (!act || isTyping || isOther || questions().length === 0) return;
  event.preventDefault();
  // A key that is held down goes on, and answers one question.
  if (isResting() || (event.repeat && "ad".includes(event.key))) return;
  act();
}

export function listen() {
  for (const shown of document.querySelectorAll("[data-keys]")) shown.hidden = false;
  questions().forEach(note);
  // It does not bubble.
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details.question")) note(event.target);
  }, true);
  document.addEventListener("keydown", pressed);
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (isResting()) {
      event.preventDefault();
      return show("headend does not answer; the buttons rest until it is back.");
    }
    // One answer for one click.
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    if (form.closest(".questions") && submitter) {
      event.preventDefault();
      send(form, submitter);
      return;
    }
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
}
