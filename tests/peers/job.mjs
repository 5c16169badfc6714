// Common parts of every Node client here: one JSON job as the only argument, one JSON report on stdout.
//
// job:    {"era":"legacy"|"auto"|"modern", "target":{"url","token"} | {"command":[..],"env":{..}}, "calls":[{"name","arguments"}],
//          "lists":true}
// report: {"peer","protocol","tools":[names],"calls":[{"name","isError","text","structured"}],"lists":[numbers]}
//
// `lists` also reads the prompts, resources and templates, and reports how many there are.
//
// Packages are resolved from PEERS_NODE, the folder that holds the installed `node_modules`, and not from here.
import { createRequire } from "node:module";
import { join } from "node:path";

export const peers = createRequire(join(process.env.PEERS_NODE, "package.json"));
export const job = JSON.parse(process.argv[2]);

/** Headers that carry the bearer token, when the job has one. */
export function headers() {
  return job.target.token ? { Authorization: `Bearer ${job.target.token}` } : {};
}

/** The environment of a child: ours and what the job adds. */
export function environment() {
  return { ...process.env, ...(job.target.env ?? {}) };
}

/** Reads all pages of the tool list, makes the calls one after the other and prints the report. */
export async function run(peer, client, protocol, callTool) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : {});
    tools.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor);
  const lists = [];
  if (job.lists) {
    lists.push((await client.listPrompts()).prompts.length);
    lists.push((await client.listResources()).resources.length);
    lists.push((await client.listResourceTemplates()).resourceTemplates.length);
  }
  const calls = [];
  for (const { name, arguments: args } of job.calls) {
    const result = await callTool({ name, arguments: args });
    const text = (result.content ?? []).map((part) => part.text ?? `<${part.type}>`).join("\n");
    calls.push({ name, isError: result.isError ?? false, text, structured: result.structuredContent ?? null });
  }
  await client.close();
  console.log(JSON.stringify({ peer, protocol, tools, calls, lists }));
  process.exit(0);
}
