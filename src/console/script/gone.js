// The gateway does not answer: the page says so, and its buttons rest until it has answered again.
const banner = document.querySelector("[data-gone]");

export const isResting = () => "resting" in document.documentElement.dataset;

function buttons() {
  return document.querySelectorAll("form button");
}

export function rest() {
  document.documentElement.dataset.resting = "";
  banner.hidden = false;
  // Not `disabled`, which would take the focus away from the one that has it.
  for (const button of buttons()) button.setAttribute("aria-disabled", "true");
}

/** To be called with fresh parts on the page: buttons of before may be about something that is over. */
export function arise() {
  if (!isResting()) return;
  delete document.documentElement.dataset.resting;
  banner.hidden = true;
  for (const button of buttons()) button.removeAttribute("aria-disabled");
}
