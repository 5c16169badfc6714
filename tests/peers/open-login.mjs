// A browser as programs start it, with an address as the only argument: the person signs in, and the browser opens the address of the
// program to which the login page sends back.
import { browse } from "./person.mjs";

const url = process.argv[2];
await fetch(await browse(url, new URL(url).searchParams.get("redirect_uri")));
