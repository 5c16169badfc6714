// A browser for pages that need no person: follows the redirects of an address with cookies, and prints the address outside of the
// authorization server at which it ends.
//
// argument: {"url","back"}: where to begin, and the beginning of the address to which the login page sends back
import { browse } from "./person.mjs";

const { url, back } = JSON.parse(process.argv.at(-1));
console.log(await browse(url, back));
