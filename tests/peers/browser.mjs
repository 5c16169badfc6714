// A browser for pages that need no person: follows the redirects of an address with cookies, and prints the address outside of the
// authorization server at which it ends.
//
// argument: {"url","back"}: where to begin, and the beginning of the address to which the login page sends back
const { url, back } = JSON.parse(process.argv.at(-1));
const cookies = new Map();
let at = url;
for (let steps = 0; steps < 20 && !at.startsWith(back); steps++) {
  const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
  const answer = await fetch(at, { redirect: "manual", headers: cookie ? { cookie } : {} });
  for (const line of answer.headers.getSetCookie()) {
    const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
    cookies.set(name, value);
  }
  const next = answer.headers.get("location");
  if (!next) throw new Error(`${answer.status} at ${at}: ${await answer.text()}`);
  at = new URL(next, at).href;
}
console.log(at);
