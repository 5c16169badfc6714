// A server of MCP Apps over HTTP, on a free port of this machine alone: its program is the argument. Prints its URL, which the server
// itself does not know.
import http from "node:http";
import { pathToFileURL } from "node:url";

const listen = http.Server.prototype.listen;
http.Server.prototype.listen = function (...args) {
  this.once("listening", () => process.stdout.write(`http://127.0.0.1:${this.address().port}/mcp\n`));
  return listen.call(this, 0, "127.0.0.1", args.at(-1));
};
// The server's own output must not come before the URL.
console.log = console.error;
await import(pathToFileURL(process.argv[2]));
