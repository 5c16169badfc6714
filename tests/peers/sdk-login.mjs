// A client on an official TypeScript SDK that knows an address and nothing else: it reads what the server's 401 leads to, registers at
// the issuer, signs a person in, and signs in again where a call needs more rights.
//
// argument: {"sdk":"v1"|"v2","era","url","user","calls":[{"name","arguments"}]}
// stdout:   {"protocol","tools","calls":[{"name","isError","text"}],"logins":[scope asked for at each login],"resources","scope"}
import { browse } from "./person.mjs";
import { job, peers } from "./job.mjs";

const isOld = job.sdk === "v1";
const { Client, UnauthorizedError, StreamableHTTPClientTransport } = isOld
  ? {
      ...peers("@modelcontextprotocol/sdk/client/index.js"),
      ...peers("@modelcontextprotocol/sdk/client/auth.js"),
      ...peers("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    }
  : peers("@modelcontextprotocol/client");

const back = "http://127.0.0.1:9/callback";
const logins = [];
const resources = [];
let sent;

class Provider {
  redirectUrl = back;
  clientMetadata = {
    client_name: "a client of the SDK",
    redirect_uris: [back],
    // For more rights the SDK 1.x refreshes a token that can be refreshed, and gives up since the new one has no more.
    grant_types: isOld ? ["authorization_code"] : ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
  };
  clientInformation = () => this.client;
  saveClientInformation = (client) => void (this.client = client);
  tokens = () => this.saved;
  saveTokens = (tokens) => void (this.saved = tokens);
  saveCodeVerifier = (verifier) => void (this.verifier = verifier);
  codeVerifier = () => this.verifier;
  async redirectToAuthorization(url) {
    logins.push(url.searchParams.get("scope") ?? "");
    resources.push(url.searchParams.get("resource") ?? "");
    if (job.user) url.searchParams.set("login_hint", job.user);
    sent = new URL(await browse(url.href, back));
  }
}

const provider = new Provider();
let transport;

/** Tries again after each login, which ends with an error of the SDK. */
async function signedIn(act) {
  for (let attempts = 0; ; attempts++) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || attempts === 2) throw error;
      await transport.finishAuth(sent.searchParams.get("code"), sent.searchParams.get("iss") ?? undefined);
    }
  }
}

const mode = job.era === "modern" ? { pin: "2026-07-28" } : job.era;
const client = await signedIn(async () => {
  transport = new StreamableHTTPClientTransport(new URL(job.url), { authProvider: provider });
  const options = { capabilities: {}, ...(isOld ? {} : { versionNegotiation: { mode } }) };
  const client = new Client({ name: `login-${job.sdk}`, version: "1.0.0" }, options);
  await client.connect(transport);
  return client;
});
const tools = (await client.listTools()).tools.map(({ name }) => name);
const calls = [];
for (const call of job.calls) {
  const result = await signedIn(() => client.callTool(call));
  const text = result.content.map((part) => part.text ?? `<${part.type}>`).join("\n");
  calls.push({ name: call.name, isError: result.isError ?? false, text });
}
const protocol = isOld ? transport.protocolVersion : client.getNegotiatedProtocolVersion();
await client.close();
console.log(JSON.stringify({ protocol, tools, calls, logins, resources, scope: provider.saved.scope }));
process.exit(0);
