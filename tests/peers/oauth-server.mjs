// An MCP server on the official TypeScript SDK that wants a login, and more rights for one of its tools: `read` is called with
// the scope mcp:read, `write` with mcp:write alone.
//
// Prints one JSON object a line: first `{"event":"listening","url":...}`, then each call and each refusal. ISSUER is the issuer of
// its tokens; POST /test/issuer with another one as its body moves it there. PEERS_NODE is the folder of the installed packages.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const peers = createRequire(join(process.env.PEERS_NODE, "package.json"));
const load = (name) => import(pathToFileURL(peers.resolve(name)));
const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { createRemoteJWKSet, jwtVerify } = await load("jose");

const say = (event, more = {}) => console.log(JSON.stringify({ event, at: Date.now(), ...more }));
const http = createServer();
await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${http.address().port}`;
const place = "/.well-known/oauth-protected-resource/mcp";
let issuer = process.env.ISSUER;

function server() {
  const mcp = new McpServer({ name: "guarded", version: "1.0.0" });
  for (const name of ["read", "write"]) {
    mcp.registerTool(name, { description: `Says ${name}.` }, ({ authInfo }) => {
      say("call", { name, subject: authInfo.extra.subject });
      return { content: [{ type: "text", text: `${name} by ${authInfo.extra.subject}` }] };
    });
  }
  return mcp;
}

async function body(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

function refuse(response, status, error, scope) {
  say("refused", { status, error });
  const challenge = `Bearer error="${error}", scope="${scope}", resource_metadata="${base}${place}"`;
  response.writeHead(status, { "www-authenticate": challenge, "content-type": "application/json" });
  response.end(JSON.stringify({ error }));
}

async function serve(request, response) {
  const text = await body(request);
  if (request.url === "/test/issuer") {
    issuer = text;
    return response.writeHead(204).end();
  }
  if (request.url === place) {
    response.writeHead(200, { "content-type": "application/json" });
    const scopes_supported = ["mcp:read"];
    return response.end(JSON.stringify({ resource: `${base}/mcp`, authorization_servers: [issuer], scopes_supported }));
  }
  if (request.url !== "/mcp") return response.writeHead(404).end();
  const token = request.headers.authorization?.replace(/^Bearer /, "");
  const message = text ? JSON.parse(text) : undefined;
  let payload;
  try {
    const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
    ({ payload } = await jwtVerify(token ?? "", keys, { issuer, audience: `${base}/mcp` }));
  } catch {
    return refuse(response, 401, "invalid_token", "mcp:read");
  }
  const scopes = payload.scope.split(" ");
  const needed = message?.params?.name === "write" ? "mcp:write" : "mcp:read";
  if (!scopes.includes(needed)) return refuse(response, 403, "insufficient_scope", needed);
  request.auth = { token, clientId: payload.client_id, scopes, extra: { subject: payload.sub } };
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on("close", () => transport.close());
  await server().connect(transport);
  return transport.handleRequest(request, response, message);
}

http.on("request", (request, response) => {
  serve(request, response).catch((error) => {
    say("broken", { error: String(error.stack) });
    response.headersSent ? response.end() : response.writeHead(500).end();
  });
});
say("listening", { url: `${base}/mcp` });
