// Tells of open questions where the page is not looked at: in its title, its icon and, if the person wants that, by notifications.
const CHOICE = "headend-notify";
const ICON = "/static/icon.svg";
const FOCUS = "headend-focus";
// More new questions than this are one notification.
const FEW = 3;

const icon = document.querySelector('link[rel="icon"]');
let title = document.title;
let count = 0;
let isUp = true;

function draw() {
  const number = count > 0 ? `(${count}) ` : "";
  document.title = isUp ? number + title : `(gone) ${title}`;
  const href = isUp && count > 0 ? `/static/icon/${Math.min(count, 100)}.svg` : ICON;
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}

/** Another title, without the number. */
export function rename(text) {
  title = text;
}

/** News of the open questions: their number, those that are new, and whether the gateway answers. */
export function waits(news) {
  const before = count;
  count = news.count ?? count;
  isUp = news.up ?? isUp;
  draw();
  if (count > before) {
    const announce = document.getElementById("announce");
    announce.textContent = count === 1 ? "One approval waits for you." : `${count} approvals wait for you.`;
  }
  if (news.new?.length) notify(news.new);
}

const can = "Notification" in window;
const wants = () => can && Notification.permission === "granted" && localStorage.getItem(CHOICE) === "on";

async function notify(questions) {
  if (!wants()) return;
  // A person who works in a page of the console sees it there.
  const locks = await navigator.locks?.query();
  if (locks?.held.some((lock) => lock.name === FOCUS)) return;
  const many = { title: `${questions.length} new approvals`, text: "headend needs your approval.", tag: "many" };
  for (const { id, title, text, tag } of questions.length > FEW ? [many] : questions) {
    const shown = new Notification(title, { body: text, tag: tag ?? id, icon: ICON });
    shown.onclick = () => {
      window.focus();
      shown.close();
      location.assign(id ? `/approvals/${id}` : "/");
    };
  }
}

// Held by a page with the keyboard's focus.
function holdFocus() {
  if (!document.hasFocus() || document.hidden) return;
  const lost = new Promise((resolve) => {
    addEventListener("blur", resolve, { once: true });
    addEventListener("pagehide", resolve, { once: true });
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
  navigator.locks?.request(FOCUS, { mode: "shared" }, () => lost);
}

/** The offer to notify, on the pages that have it. Permission is asked for by a click alone. */
function offer(place) {
  const [words, button] = [place.querySelector("span"), place.querySelector("button")];
  const draw = () => {
    const isBlocked = Notification.permission === "denied";
    words.textContent = isBlocked ? "This browser blocks notifications of the console; its settings can allow them."
      : wants() ? "This browser tells you of new approvals while a page of the console is open."
        : "This browser can tell you of new approvals while a page of the console is open in the background.";
    button.textContent = wants() ? "Stop the notifications" : "Notify me";
    button.hidden = isBlocked;
    place.hidden = false;
  };
  button.addEventListener("click", async () => {
    const on = !wants();
    if (on && Notification.permission === "default") await Notification.requestPermission();
    localStorage.setItem(CHOICE, on ? "on" : "off");
    draw();
  });
  draw();
}

/** Begins with so many open questions. */
export function attend(number) {
  count = number;
  draw();
  addEventListener("focus", holdFocus);
  holdFocus();
  const place = document.querySelector("[data-tell]");
  if (place && can) offer(place);
}
