// Keeps an open page current: when the server names a changed part, fetches the page again and replaces that part.
// The pages work without this file; it only saves the reload.
"use strict";
(() => {
  const main = document.getElementById("main");
  const announce = document.getElementById("announce");
  const title = document.title;
  let waiting = count();

  // A button that has just moved under the finger or the pointer must not take the click that was meant for another.
  const SETTLE_MS = 800;

  function count() {
    return Number(main.querySelector("[data-waiting]")?.dataset.waiting ?? 0);
  }

  function say(text) {
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
    if (old.outerHTML === fresh.outerHTML) return false;
    const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const open = [...old.querySelectorAll("details[open][id]")].map((details) => details.id);
    const scrolled = [...old.querySelectorAll("[id] pre")].map((pre) => [nameOf(pre), pre.scrollTop]);
    const known = new Set([...old.querySelectorAll(".card[id]")].map((card) => card.id));
    // An answer is about calls that the person has checked: boxes stay as they are, and those of later calls are empty.
    const boxes = new Map([...old.querySelectorAll("input[type=checkbox]")].map((box) => [box.value, box.checked]));
    for (const box of fresh.querySelectorAll("input[type=checkbox]")) box.checked = boxes.get(box.value) ?? false;
    for (const id of open) {
      const details = fresh.querySelector("#" + CSS.escape(id));
      if (details) details.open = true;
    }
    const cards = [...fresh.querySelectorAll(".card[id]")];
    const moved = cards.length !== known.size || cards.some((card) => !known.has(card.id));
    for (const card of cards) if (!known.has(card.id)) card.classList.add("arrived");
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
    return true;
  }

  async function refresh(parts) {
    const answer = await fetch(location.href, { headers: { "headend-refresh": "1" }, redirect: "manual" });
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
    const now = count();
    if (now > waiting) say(now === 1 ? "One approval waits for you." : `${now} approvals wait for you.`);
    waiting = now;
    document.title = waiting > 0 ? `(${waiting}) ${title}` : title;
  }

  // One refresh at a time; the next one fetches changes in between.
  let due = new Set();
  let running = false;
  async function run() {
    if (running || due.size === 0 || document.hidden) return;
    running = true;
    const parts = [...due];
    due = new Set();
    try {
      await refresh(parts);
    } catch {
      // The gateway restarted, or the machine slept: the stream reconnects and names the changes.
    } finally {
      running = false;
    }
    if (due.size > 0) run();
  }

  const live = document.querySelector("[data-live]");
  let source = null;
  function listen() {
    if (source) return;
    source = new EventSource("/events");
    source.addEventListener("changed", (event) => {
      for (const part of event.data.split(" ")) due.add(part);
      run();
    });
    source.addEventListener("open", () => { if (live) live.hidden = false; });
    source.addEventListener("error", () => { if (live) live.hidden = true; });
  }
  // A page in the background keeps no connection; browsers allow only a few to one host.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else {
      listen();
    }
  });
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", () => { if (!document.hidden) listen(); });

  // One answer for one click.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "1";
    setTimeout(() => { delete event.target.dataset.sent; }, 5000);
  });

  const notice = document.querySelector(".notices .notice");
  if (notice) say(notice.textContent);
  if (waiting > 0) document.title = `(${waiting}) ${title}`;
})();
