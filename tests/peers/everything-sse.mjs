// The reference server `everything` over HTTP+SSE on a free port. Prints its URL, which the server itself does not know.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import http from "node:http";

const peers = createRequire(join(process.argv[2], "package.json"));
const listen = http.Server.prototype.listen;
http.Server.prototype.listen = function (...args) {
  this.once("listening", () => console.log(`http://127.0.0.1:${this.address().port}/sse`));
  return listen.apply(this, [args[0], "127.0.0.1", ...args.slice(1)]);
};
process.env.PORT = "0";
const manifest = peers.resolve("@modelcontextprotocol/server-everything/package.json");
await import(pathToFileURL(join(dirname(manifest), "dist/transports/sse.js")));
