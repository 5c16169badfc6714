// The runtime of mcporter.
import { args, headers, name, play, url } from "./steps.mjs";

const { createRuntime } = await import("mcporter");
const command = { kind: "http", url: new URL(url), headers };
const runtime = await createRuntime({ servers: [{ name: "headend", command }] });
await play(
  () => runtime.callTool("headend", name, { args }),
  async () => (await runtime.listTools("headend")).map((tool) => tool.name),
);
