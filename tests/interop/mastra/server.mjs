// A scripted Mastra agent behind its own adapter of AG-UI: `node server.mjs PORT [event]`.
// The agent's loop, its tools, their suspension and the events are Mastra's; only the model is ours. The last words of
// the user say which scene is played. `event`: a suspended call is told by the CUSTOM event alone, as older adapters do.
import http from "node:http";
import { MastraAgent } from "@ag-ui/mastra";
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

const [port, event] = process.argv.slice(2);
let calls = 0;

function play(prompt) {
  const last = prompt.at(-1);
  const say = (text) => [
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: text.slice(0, 4) },
    { type: "text-delta", id: "1", delta: text.slice(4) },
    { type: "text-end", id: "1" },
  ];
  if (last.role === "tool") {
    const results = last.content.map((result) => result.output?.value ?? result.output);
    return say(`It says: ${results.join(", ")}.`);
  }
  const scene = last.content.map((part) => part.text ?? "").join("");
  const input = { pay: { amount: 250 }, book: {}, wipe: {} }[scene];
  if (input === undefined) return say(`You said: ${scene}`);
  return [{ type: "tool-call", toolCallId: `call_${++calls}`, toolName: scene, input: JSON.stringify(input) }];
}

const model = {
  specificationVersion: "v2",
  provider: "scripted",
  modelId: "scripted",
  supportedUrls: {},
  async doStream({ prompt }) {
    const parts = play(prompt);
    const finishReason = parts[0].type === "tool-call" ? "tool-calls" : "stop";
    const usage = { inputTokens: 3, outputTokens: 4, totalTokens: 7 };
    const all = [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }];
    return { stream: ReadableStream.from(all) };
  },
};

function suspending(id, input, message, answer, result) {
  return createTool({
    id,
    description: id,
    inputSchema: z.object(input),
    suspendSchema: z.object({ message: z.string() }),
    resumeSchema: z.object(answer),
    execute: async (given, { agent }) =>
      agent.resumeData ? result(agent.resumeData) : agent.suspend({ message: message(given) }),
  });
}

const pay = suspending(
  "pay",
  { amount: z.number() },
  ({ amount }) => `Pay ${amount}?`,
  { approved: z.boolean() },
  ({ approved }) => (approved ? "paid" : "refused"),
);
const book = suspending("book", {}, () => "Which city?", { city: z.string() }, ({ city }) => `booked ${city}`);
const wipe = createTool({
  id: "wipe",
  description: "wipe",
  inputSchema: z.object({}),
  requireApproval: true,
  execute: async () => "wiped",
});
const helper = new Agent({ id: "helper", name: "helper", instructions: "Help.", model, tools: { pay, book, wipe } });
const mastra = new Mastra({ agents: { helper }, storage: new InMemoryStore({ id: "runs" }), logger: false });

http
  .createServer(async (request, response) => {
    if (request.method === "GET") return response.end("ok");
    const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
    const agent = new MastraAgent({
      agent: mastra.getAgent("helper"),
      resourceId: "user",
      emitInterruptOutcome: event === undefined,
    });
    response.writeHead(200, { "content-type": "text/event-stream" });
    const write = (said) => response.write(`data: ${JSON.stringify(said)}\n\n`);
    agent.run(body).subscribe({
      next: write,
      error: (error) => response.end(`data: ${JSON.stringify({ type: "RUN_ERROR", message: String(error) })}\n\n`),
      complete: () => response.end(),
    });
  })
  .listen(Number(port), "127.0.0.1");
