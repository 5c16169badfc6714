// The page of the host in `apps-host.mjs`: runs in the browser. Each command returns what the test looks at.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";

const MIME_TYPE = "text/html;profile=mcp-app";
const APPS = { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [MIME_TYPE] } } };
// What a view may load without a declaration, by the text of the extension.
const CLOSED = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "media-src 'self' data:; connect-src 'none'";

let client;
let bridge;
let calls = [];

/** Waits for a request's end: its result, or the code and text of its error. */
async function settled(promise) {
  return promise.then((result) => ({ result }), (error) => ({ error: { code: error.code, message: error.message } }));
}

/** The contents of a read, with a digest in place of their text. */
async function shown(contents) {
  return Promise.all(contents.map(async ({ text, ...rest }) => {
    const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
    return { ...rest, sha256: [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("") };
  }));
}

window.host = {
  calls: () => calls,

  /** Connects a client that declares Apps at a path behind `/mcp`, and says what the server declared. */
  async connect({ era, path = "", declares = true }) {
    await window.host.close();
    await client?.close();
    const mode = era === "modern" ? { pin: "2026-07-28" } : era;
    client = new Client({ name: "apps-host", version: "1.0.0" }, { capabilities: declares ? APPS : {}, versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(new URL(`/mcp${path}`, location.href)));
    return {
      protocol: client.getNegotiatedProtocolVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions() ?? null,
      server: client.getServerVersion(),
    };
  },

  async list({ method = "tools/list" }) {
    const requests = {
      "tools/list": () => client.listTools(),
      "resources/list": () => client.listResources(),
      "resources/templates/list": () => client.listResourceTemplates(),
    };
    return settled(requests[method]());
  },

  async read({ uri }) {
    const read = await settled(client.readResource({ uri }));
    if (read.result) read.result.contents = await shown(read.result.contents);
    return read;
  },

  async call({ name, arguments: given = {} }) {
    return settled(client.callTool({ name, arguments: given }));
  },

  /** Calls a tool and renders its view in a frame, as a host does for its model. */
  async open({ name, arguments: given = {} }) {
    await window.host.close();
    const tool = (await client.listTools()).tools.find((tool) => tool.name === name);
    if (!tool) return { failed: `${name} is not listed` };
    const uri = getToolUiResourceUri(tool);
    if (!uri) return { failed: `${name} has no view`, tool };
    const result = await client.callTool({ name, arguments: given });
    const view = await settled(client.readResource({ uri }));
    if (view.error) return { failed: "the view cannot be read", uri, ...view };
    const content = view.result.contents.find((content) => content.uri === uri);
    if (content?.mimeType !== MIME_TYPE) return { failed: "no view in the contents", uri, contents: view.result.contents };

    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    frame.style = "width: 800px; height: 600px";
    document.querySelector("#views").append(frame);
    bridge = new AppBridge(client, { name: "apps-host", version: "1.0.0" }, { serverTools: {}, serverResources: {}, logging: {} });
    bridge.onsizechange = () => {};
    bridge.onloggingmessage = () => {};
    const initialized = new Promise((done) => { bridge.oninitialized = done; });
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    // The bridge passes calls of the view to the client; they are noted on their way, with their ends.
    const sender = client;
    const request = sender.request.bind(sender);
    sender.request = async (message, ...more) => {
      const sent = request(message, ...more);
      const end = await settled(sent);
      const { method, params } = message;
      calls.push({ method, name: params?.name, code: end.error?.code ?? null, isError: end.result?.isError ?? null });
      return sent;
    };
    bridge.onclose = () => { sender.request = request; };
    frame.srcdoc = content.text.replace(/<head[^>]*>/, (head) => `${head}<meta http-equiv="Content-Security-Policy" content="${CLOSED}">`);
    await initialized;
    bridge.sendToolInput({ arguments: given });
    bridge.sendToolResult(result);
    return { uri, result, contents: await shown(view.result.contents), app: bridge.getAppVersion() };
  },

  async close() {
    calls = [];
    await bridge?.close();
    bridge = undefined;
    document.querySelector("#views").replaceChildren();
    return {};
  },
};
