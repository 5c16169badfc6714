// The reference server `everything` over HTTP: `sse` or `streamableHttp` is the second argument, its port the third, any free one
// without it. Prints its URL, which the server itself does not know.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import http from "node:http";

const peers = createRequire(join(process.argv[2], "package.json"));
const transport = process.argv[3];
const path = transport === "sse" ? "sse" : "mcp";
const listen = http.Server.prototype.listen;
http.Server.prototype.listen = function (...args) {
  this.once("listening", () => process.stdout.write(`http://127.0.0.1:${this.address().port}/${path}\n`));
  return listen.apply(this, [args[0], "127.0.0.1", ...args.slice(1)]);
};
// The server's own output must not come before the URL.
console.log = console.error;
process.env.PORT = process.argv[4] ?? "0";
const manifest = peers.resolve("@modelcontextprotocol/server-everything/package.json");
await import(pathToFileURL(join(dirname(manifest), `dist/transports/${transport}.js`)));
