// The stream of changes. All pages of the console in one browser share one, since browsers allow only a few connections to one host:
// the page that holds a lock has the stream and passes on what it says. When that page is closed, another gets the lock.
const LOCK = "headend-stream";
const AGAIN_MS = 3000;
// The gateway says something every 20 s.
const SILENCE_MS = 60000;
const ALL = ["approvals", "grants", "pins", "upstreams", "decisions"];

const others = new BroadcastChannel("headend");
let hear = null;
let up = true;

function heard(message) {
  if (message.parts) hear.changed(message.parts);
  // Only the page with the stream notifies: one question is one notification.
  if (message.waiting) hear.waiting({ ...message.waiting, new: message.own ? message.waiting.new : [] });
  if ("up" in message && message.up !== up) {
    up = message.up;
    hear.up(up);
    if (up) hear.changed(ALL);
  }
}

function pass(message) {
  heard({ ...message, own: true });
  others.postMessage(message);
}

/** Holds the stream until the page ends. */
function lead(over) {
  let source = null;
  let last = 0;
  let again = null;

  function open() {
    clearTimeout(again);
    source?.close();
    last = Date.now();
    source = new EventSource("/events");
    source.addEventListener("open", () => { last = Date.now(); pass({ up: true }); });
    source.addEventListener("changed", (event) => { last = Date.now(); pass({ parts: event.data.split(" ") }); });
    source.addEventListener("waiting", (event) => pass({ waiting: JSON.parse(event.data) }));
    source.addEventListener("error", lost);
  }

  async function lost() {
    if (source.readyState !== EventSource.CLOSED) return pass({ up: false });
    // The answer was no stream: the session has ended, or there are too many pages. The browser does not try again by itself.
    again = setTimeout(open, AGAIN_MS);
    try {
      await fetch("/static/icon.svg", { cache: "no-store" });
      pass({ parts: ALL });
    } catch {
      pass({ up: false });
    }
  }

  const watch = setInterval(() => {
    if (Date.now() - last < SILENCE_MS) return;
    pass({ up: false });
    open();
  }, SILENCE_MS / 4);
  // A page that was just opened asks; it was made by a gateway that lived.
  others.addEventListener("message", ({ data }) => { if (data.hello && !up) others.postMessage({ up }); });
  open();
  return over.finally(() => {
    clearInterval(watch);
    clearTimeout(again);
    source.close();
  });
}

function begin() {
  const over = new Promise((resolve) => addEventListener("pagehide", resolve, { once: true }));
  if (navigator.locks) navigator.locks.request(LOCK, () => lead(over));
  else lead(over);
  others.postMessage({ hello: true });
}

/** Calls `changed` with names of parts, `waiting` with the questions, and `up` when the gateway goes away or comes back. */
export function follow(listener) {
  hear = listener;
  others.addEventListener("message", ({ data }) => heard(data));
  begin();
  addEventListener("pageshow", (event) => { if (event.persisted) begin(); });
}
