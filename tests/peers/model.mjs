// A scripted model behind the streamed APIs of Anthropic (Messages), OpenAI (Responses) and Gemini, on 127.0.0.1.
//
// job:    [{"tool","arguments"}]          the model's calls, one in each turn; the turn after them has none
// stdout: {"event":"listening","url"}
//         {"event":"offered","names"}     tools in a request, unless the last request had the same
//         {"event":"called","tool"}       a call of the job was sent to the host
//         {"event":"missing","tool"}      a call of the job names a tool that the host does not offer
//         {"event":"result","text"}       the host's result of a call
//         {"event":"unknown","request"}   a request to another address, answered with 404
//         {"event":"ended"}               a turn without a call was sent to the host
//
// The job has the gateway's names of tools; each host puts a prefix of its own before them.
import { createServer } from "node:http";

const calls = JSON.parse(process.argv[2]);
const say = (event, more = {}) => console.log(JSON.stringify({ event, ...more }));
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
let offered = "";
let results = 0;

// Each API: the tools that a request offers, the results that it brings, and the events of a turn.

const messages = {
  tools: ({ tools = [] }) => tools.map(({ name }) => ({ name })),
  results: ({ messages }) =>
    messages
      .flatMap(({ content }) => (Array.isArray(content) ? content : []))
      .filter(({ type }) => type === "tool_result")
      .map(({ content }) => text(content)),
  *turn(call, { model }) {
    const event = (type, more = {}) => ({ event: type, data: { type, ...more } });
    const usage = { input_tokens: 1, output_tokens: 1 };
    const message = { id: "msg_1", type: "message", role: "assistant", model, content: [], stop_reason: null, usage };
    yield event("message_start", { message });
    const block = call
      ? { type: "tool_use", id: `toolu_${results}`, name: call.name, input: {} }
      : { type: "text", text: "" };
    const delta = call
      ? { type: "input_json_delta", partial_json: JSON.stringify(call.arguments) }
      : { type: "text_delta", text: "Done." };
    yield event("content_block_start", { index: 0, content_block: block });
    yield event("content_block_delta", { index: 0, delta });
    yield event("content_block_stop", { index: 0 });
    yield event("message_delta", { delta: { stop_reason: call ? "tool_use" : "end_turn", stop_sequence: null }, usage });
    yield event("message_stop");
  },
};

const responses = {
  // A namespace holds the tools of one server.
  tools: ({ tools = [] }) =>
    tools.flatMap(({ name, type, tools: inner }) =>
      type === "namespace" ? inner.map((tool) => ({ name: tool.name, namespace: name })) : [{ name: name ?? type }],
    ),
  results: ({ input }) =>
    input.filter(({ type }) => type === "function_call_output").map(({ output }) => text(output)),
  *turn(call, { model }) {
    const event = (type, more) => ({ event: type, data: { type, ...more } });
    const response = { id: "resp_1", object: "response", model, status: "in_progress", output: [] };
    yield event("response.created", { response });
    const item = call
      ? {
          type: "function_call",
          id: `fc_${results}`,
          call_id: `call_${results}`,
          name: call.name,
          ...(call.namespace && { namespace: call.namespace }),
          arguments: JSON.stringify(call.arguments),
          status: "completed",
        }
      : {
          type: "message",
          id: "msg_1",
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: "Done.", annotations: [] }],
        };
    yield event("response.output_item.added", { output_index: 0, item });
    yield event("response.output_item.done", { output_index: 0, item });
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    yield event("response.completed", { response: { ...response, status: "completed", output: [item], usage } });
  },
};

const gemini = {
  tools: ({ tools = [] }) => tools.flatMap(({ functionDeclarations = [] }) => functionDeclarations),
  results: ({ contents }) =>
    contents
      .flatMap(({ parts = [] }) => parts)
      .filter(({ functionResponse }) => functionResponse)
      .map(({ functionResponse }) => text(functionResponse.response)),
  *turn(call) {
    const part = call ? { functionCall: { name: call.name, args: call.arguments } } : { text: "Done." };
    const candidates = [{ index: 0, finishReason: "STOP", content: { role: "model", parts: [part] } }];
    const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
    yield { data: { candidates, usageMetadata } };
  },
};

function api(path) {
  if (path.endsWith("/messages")) return messages;
  if (path.endsWith("/responses")) return responses;
  if (path.endsWith(":streamGenerateContent")) return gemini;
  return undefined;
}

/** Returns the next call with the host's name of its tool, and none for a request without tools, such as one for a title. */
function next(tools) {
  if (results >= calls.length || tools.length === 0) return undefined;
  const { tool, arguments: args } = calls[results];
  const found = tools.find(({ name }) => name === tool || name.endsWith(`_${tool}`));
  say(found ? "called" : "missing", { tool });
  return found && { ...found, arguments: args };
}

function answer(spoken, body, response) {
  const tools = spoken.tools(body);
  const names = JSON.stringify(tools.map(({ name }) => name));
  if (tools.length > 0 && names !== offered) {
    offered = names;
    say("offered", { names: JSON.parse(names) });
  }
  const brought = spoken.results(body);
  brought.slice(results).forEach((text) => say("result", { text }));
  results = Math.max(results, brought.length);
  const call = next(tools);
  if (tools.length > 0 && !call) say("ended");
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  for (const { event, data } of spoken.turn(call, body)) {
    response.write(`${event ? `event: ${event}\n` : ""}data: ${JSON.stringify(data)}\n\n`);
  }
  response.end();
}

const server = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { pathname } = new URL(request.url, "http://localhost");
  const spoken = request.method === "POST" && api(pathname);
  if (spoken) return answer(spoken, JSON.parse(body), response);
  if (request.method !== "HEAD") say("unknown", { request: `${request.method} ${pathname}` });
  response.writeHead(request.method === "HEAD" ? 200 : 404, { "Content-Type": "application/json" });
  response.end(request.method === "HEAD" ? undefined : "{}");
});
server.listen(0, "127.0.0.1", () => say("listening", { url: `http://127.0.0.1:${server.address().port}` }));
