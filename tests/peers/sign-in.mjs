// A person signs in at an authorization server by the code flow with PKCE.
//
// argument: {"issuer","resource","scope","client","user","password"}; without a client this registers one
// stdout: the answer of the token endpoint, and the client's id as "client"
import { createHash, randomBytes } from "node:crypto";
import { browse } from "./person.mjs";

const job = JSON.parse(process.argv.at(-1));
const back = "http://127.0.0.1:9/callback";
const metadata = await (await fetch(`${job.issuer}/.well-known/openid-configuration`)).json();

async function register() {
  const body = {
    redirect_uris: [back],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
    client_name: "a person's client",
  };
  const headers = { "content-type": "application/json" };
  const answer = await fetch(metadata.registration_endpoint, { method: "POST", headers, body: JSON.stringify(body) });
  return (await answer.json()).client_id;
}

const client = job.client ?? (await register());
const verifier = randomBytes(32).toString("base64url");
const asked = new URL(metadata.authorization_endpoint);
for (const [name, value] of Object.entries({
  response_type: "code",
  client_id: client,
  redirect_uri: back,
  scope: job.scope,
  state: randomBytes(8).toString("hex"),
  nonce: randomBytes(8).toString("hex"),
  code_challenge: createHash("sha256").update(verifier).digest("base64url"),
  code_challenge_method: "S256",
  login_hint: job.user,
  ...(job.resource && { resource: job.resource }),
})) {
  asked.searchParams.set(name, value);
}
const sent = new URL(await browse(asked.href, back, { login: job.user, password: job.password }));
const code = sent.searchParams.get("code");
if (!code) throw new Error(`no code: ${sent}`);
const body = new URLSearchParams({
  grant_type: "authorization_code",
  code,
  redirect_uri: back,
  client_id: client,
  code_verifier: verifier,
  ...(job.resource && { resource: job.resource }),
});
const answer = await fetch(metadata.token_endpoint, { method: "POST", body });
const tokens = await answer.json();
if (!answer.ok) throw new Error(JSON.stringify(tokens));
console.log(JSON.stringify({ client, ...tokens }));
