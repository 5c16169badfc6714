// A person without a browser: follows the redirects of a login page with cookies, and fills its forms.

/** The hidden fields of the page's first form and the visible ones that the person knows. */
function fields(html, known) {
  const filled = new URLSearchParams();
  for (const [input] of html.matchAll(/<input[^>]*>/g)) {
    const name = input.match(/name="([^"]*)"/)?.[1];
    const value = input.match(/value="([^"]*)"/)?.[1] ?? "";
    if (name && name in known) filled.set(name, known[name]);
    else if (name && /type="hidden"/.test(input)) filled.set(name, value);
  }
  return filled;
}

/** Opens `url` and returns the address, beginning with `back`, to which the login page sends at the end. */
export async function browse(url, back, known = {}) {
  const cookies = new Map();
  let at = url;
  let form = null;
  for (let steps = 0; steps < 20 && !at.startsWith(back); steps++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const request = form ? { method: "POST", body: form } : {};
    const answer = await fetch(at, { ...request, redirect: "manual", headers: { ...(cookie && { cookie }), referer: at } });
    form = null;
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
      cookies.set(name, value);
    }
    const next = answer.headers.get("location");
    const page = await answer.text();
    if (next) {
      at = new URL(next, at).href;
    } else if (answer.ok && page.includes("<form")) {
      form = fields(page, known);
    } else {
      throw new Error(`${answer.status} at ${at}: ${page}`);
    }
  }
  return at;
}
