// What the Node clients have in common: one step for each line of stdin, one line of JSON for its outcome.
import { createInterface } from "node:readline";

export const url = process.env.URL;
export const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
export const name = "every__echo";
export const args = { message: "still here" };

/** `call` gives the result of the echo, `tools` the names of all tools. */
export async function play(call, tools) {
  for await (const line of createInterface({ input: process.stdin })) {
    let [ok, text] = [false, ""];
    try {
      let late;
      const patience = new Promise((_, no) => (late = setTimeout(() => no(new Error("no answer in 90 s")), 90_000)));
      const said = await Promise.race([line === "list" ? tools() : call(), patience]);
      clearTimeout(late);
      ok = line === "list" ? said.includes(name) : JSON.stringify(said).includes(args.message);
      text = ok ? "" : JSON.stringify(said).slice(0, 300);
    } catch (error) {
      text = `${error?.name}: ${error?.message}`;
    }
    console.log(JSON.stringify({ step: line, ok, text }));
  }
  process.exit(0);
}

// Libraries throw some failures of their streams where no caller is.
process.on("unhandledRejection", (error) => console.error("unhandled", error));
