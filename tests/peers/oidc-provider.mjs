// A real authorization server, `oidc-provider`, whose person is always logged in and agrees to everything.
//
// Prints one JSON object a line: first `{"event":"listening","issuer":...,"key":...,"next":...}` with its private key and the next one,
// by which tests sign tokens that it would never issue, then each event of its own: the witness of a test.
// Reads from its environment:
//   PEERS_NODE   the folder that holds the installed `node_modules`
//   ACCESS_TTL   seconds that an access token lives
//   CLIENTS      JSON: clients that are registered beforehand
//   KEY          file with the private key, in PEM, of those among them that prove themselves by one
//   DOCUMENT     JSON: a client's metadata document, which stands at the address that is its own `client_id`
//   CAUTIOUS     its person agrees to `mcp:read` alone at the first login of a client at a resource, and to the rest at the next one
// The person is `alice`, or the one named by `login_hint`; each is in the group `staff`, and alice in `developers`.
// POST /test/revoke takes every grant back, as its person would.
// POST /test/publish publishes the next key, POST /test/use signs with it from then on.
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const peers = createRequire(join(process.env.PEERS_NODE, "package.json"));
const { default: Provider } = await import(pathToFileURL(peers.resolve("oidc-provider")));
// It has no call that replaces its keys while it runs.
const helpers = join(peers.resolve("oidc-provider"), "../helpers");
const { default: setKeys } = await import(pathToFileURL(join(helpers, "initialize_keystore.js")));
const life = Number(process.env.ACCESS_TTL ?? 3600);
const say = (event, more = {}) => console.log(JSON.stringify({ event, at: Date.now(), ...more }));

const server = createServer();
await new Promise((resolve) => server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const scopes = ["openid", "offline_access", "email", "mcp:read", "mcp:write", "mcp:admin"];

const newKey = (kid) => {
  const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
  return { ...key, kid, use: "sig", alg: "RS256" };
};
const [key, next] = [newKey("first"), newKey("second")];

const clients = JSON.parse(process.env.CLIENTS ?? "[]");
if (process.env.KEY) {
  const key = createPublicKey(readFileSync(process.env.KEY)).export({ format: "jwk" });
  for (const client of clients) client.jwks = { keys: [{ ...key, use: "sig" }] };
}
const document = JSON.parse(process.env.DOCUMENT ?? "null");

const provider = new Provider(issuer, {
  clients,
  jwks: { keys: [key] },
  extraTokenClaims: (_, token) => token.accountId && { groups: token.accountId === "alice" ? ["staff", "developers"] : ["staff"] },
  // No network: the document is the only thing that this server reads from elsewhere.
  fetch: async (url) => {
    say("fetched", { url: String(url) });
    const found = document && String(url) === document.client_id;
    return new Response(found ? JSON.stringify(document) : "", {
      status: found ? 200 : 404,
      headers: { "content-type": "application/json" },
    });
  },
  scopes,
  claims: { openid: ["sub"], email: ["email"] },
  conformIdTokenClaims: false,
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId, email: `${accountId}@example.com` }) }),
  cookies: { keys: ["test"] },
  features: {
    devInteractions: { enabled: false },
    ...(document ? { clientIdMetadataDocument: { enabled: true, ack: "draft-02" } } : {}),
    registration: { enabled: true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: scopes.filter((scope) => scope.startsWith("mcp:")).join(" "),
        audience: resource,
        accessTokenTTL: life,
        accessTokenFormat: "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
  interactions: { url: (_, interaction) => `${issuer}/interaction/${interaction.uid}` },
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: {
    AccessToken: life,
    AuthorizationCode: 60,
    ClientCredentials: life,
    Grant: 86400,
    IdToken: 3600,
    Interaction: 600,
    RefreshToken: 86400,
    Session: 86400,
  },
});

const grants = new Set();
const of = (ctx) => ({ client: ctx.oidc.client?.clientId, type: ctx.oidc.params?.grant_type });
provider.on("grant.success", (ctx) => {
  const grant = ctx.oidc.entities.Grant?.jti ?? ctx.oidc.entities.AccessToken?.grantId;
  if (grant) grants.add(grant);
  say("token", { ...of(ctx), scope: ctx.oidc.params.scope, resource: ctx.oidc.params.resource });
});
provider.on("grant.error", (ctx, error) => say("refused", { ...of(ctx), error: error.message, why: error.error_detail }));
provider.on("grant.revoked", (ctx, grantId) => say("revoked", { grantId }));
provider.on("registration_create.success", (ctx, client) =>
  say("registered", { client: client.clientId, application: client.applicationType }),
);
provider.on("registration_create.error", (_, error) => say("unregistered", { error: error.error_description }));
provider.on("authorization.success", (ctx) => say("authorized", { scope: ctx.oidc.params.scope, client: ctx.oidc.client.clientId }));
provider.on("authorization.error", (_, error) => say("unauthorized", { error: error.error_description }));
provider.on("server_error", (_, error) => say("broken", { error: String(error.stack) }));

const visited = new Set();

/** Whether a cautious person sees this client at this resource for the first time. */
function firstTime(client, resource) {
  const visit = JSON.stringify([client, resource]);
  const first = Boolean(process.env.CAUTIOUS) && !visited.has(visit);
  visited.add(visit);
  return first;
}

/** The page where a person logs in and agrees, without the person. */
async function interact(request, response) {
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: params.login_hint ?? "alice" } });
  }
  const known = grantId && (await provider.Grant.find(grantId));
  const grant = known ?? new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(" "));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [resource, wanted] of Object.entries(missingResourceScopes ?? {})) {
    const given = firstTime(params.client_id, resource) ? wanted.filter((scope) => scope === "mcp:read") : wanted;
    const kept = wanted.filter((scope) => !given.includes(scope));
    if (given.length > 0) grant.addResourceScope(resource, given.join(" "));
    if (kept.length > 0) grant.rejectResourceScope(resource, kept.join(" "));
  }
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

async function revokeAll() {
  for (const grantId of grants) {
    for (const kind of ["AccessToken", "RefreshToken", "AuthorizationCode"]) {
      await provider[kind].adapter.revokeByGrantId(grantId);
    }
    await (await provider.Grant.find(grantId))?.destroy();
  }
  say("revoked-all", { grants: grants.size });
}

function replaceKeys(keys) {
  setKeys.call(provider, { keys });
  say("keys", { keys: keys.map(({ kid }) => kid) });
}

/** Registers a client for every scope: SDKs register with the scopes of the first login, and ask for more at the next one. */
async function register(request, response) {
  let text = "";
  for await (const chunk of request) text += chunk;
  const { scope, ...body } = JSON.parse(text);
  request.body = body;
  return callback(request, response);
}

const callback = provider.callback();
server.on("request", (request, response) => {
  const fail = (error) => {
    say("broken", { error: String(error.stack) });
    response.writeHead(500).end();
  };
  if (request.url.startsWith("/interaction/")) return interact(request, response).catch(fail);
  if (request.url === "/test/revoke") return revokeAll().then(() => response.writeHead(204).end(), fail);
  if (request.url === "/test/publish") return response.writeHead(204).end(replaceKeys([key, next]));
  if (request.url === "/test/use") return response.writeHead(204).end(replaceKeys([next, key]));
  if (request.url === "/reg" && request.method === "POST") return register(request, response).catch(fail);
  if (request.url === "/jwks") say("jwks");
  callback(request, response);
});
say("listening", { issuer, key, next });
