// Keeps an open page current, tells of new questions, and answers with keys. The pages work without these files: they save the reload.
import { attend, waits } from "./alert.js";
import { rest } from "./gone.js";
import { count, show, update } from "./parts.js";
import { listen } from "./questions.js";
import { follow } from "./stream.js";

attend(count());
listen();
const notice = document.querySelector(".notices .notice");
if (notice) show(notice.textContent);
// A browser scrolls to the field that it gives the focus; a long approval would open at its end.
document.querySelector("[data-first]")?.focus({ preventScroll: true });

const live = document.querySelector("[data-live]");
follow({
  changed: update,
  waiting: waits,
  up(is) {
    live.hidden = !is;
    if (!is) rest();
    waits({ up: is });
  },
});
