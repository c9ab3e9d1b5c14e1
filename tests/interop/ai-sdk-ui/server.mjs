// A route handler of the AI SDK with a mock model: `node server.mjs BUILD`. Prints its port. What the model does follows
// from the first word of the last text of the user; the last prompt that it got is served at /prompt.
import { createServer } from "node:http";
import { z } from "zod";

const build = process.argv[2];
const { convertToModelMessages, stepCountIs, isStepCount, streamText, tool } = await import(build);
const { MockLanguageModelV2, MockLanguageModelV3, MockLanguageModelV4, simulateReadableStream } = await import(`${build}/test`);
const major = Number(build.split("-")[1]);
const Mock = { 5: MockLanguageModelV2, 6: MockLanguageModelV3, 7: MockLanguageModelV4 }[major];
const usage =
  major === 5
    ? { inputTokens: 12, outputTokens: 34, totalTokens: 46, cachedInputTokens: 5, reasoningTokens: 6 }
    : {
        inputTokens: { total: 12, noCache: 7, cacheRead: 5, cacheWrite: 0 },
        outputTokens: { total: 34, text: 28, reasoning: 6 },
      };
const finish = (reason) => ({
  type: "finish",
  usage,
  finishReason: major === 5 ? reason : { unified: reason, raw: reason },
});
const says = (...words) => [
  { type: "text-start", id: "t1" },
  ...words.map((delta) => ({ type: "text-delta", id: "t1", delta })),
  { type: "text-end", id: "t1" },
  finish("stop"),
];
const calls = (toolName, input) => [
  { type: "tool-input-start", id: `call-${toolName}`, toolName },
  { type: "tool-input-delta", id: `call-${toolName}`, delta: JSON.stringify(input) },
  { type: "tool-input-end", id: `call-${toolName}` },
  { type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: JSON.stringify(input) },
  finish("tool-calls"),
];

let prompt = null;
const model = new Mock({
  doStream: async (options) => {
    prompt = options.prompt;
    const last = prompt.at(-1);
    const word = last.role === "user" ? last.content.at(-1).text.trim().split(/\s+/).at(-1) : last.role;
    const chunks = {
      tool: says("it is ", JSON.stringify(last.content?.[0]?.output ?? null)),
      weather: calls("get_weather", { city: "Paris" }),
      time: calls("get_time", { zone: "UTC" }),
      delete: calls("delete_file", { path: "a.txt" }),
      think: [
        { type: "reasoning-start", id: "r1" },
        { type: "reasoning-delta", id: "r1", delta: "weigh it" },
        { type: "reasoning-end", id: "r1", providerMetadata: { anthropic: { signature: "c2ln" } } },
        ...says("42"),
      ],
      fail: [{ type: "text-start", id: "t1" }, { type: "text-delta", id: "t1", delta: "half" }, { type: "error", error: new Error("overloaded") }],
    }[word] ?? says("hel", "lo");
    return { stream: simulateReadableStream({ chunks: [{ type: "stream-start", warnings: [] }, ...chunks] }) };
  },
});
const inputSchema = z.any();
const tools = {
  get_weather: tool({ description: "The client's", inputSchema }),
  get_time: tool({ description: "The server's", inputSchema, execute: async () => ({ time: "12:34" }) }),
  delete_file: tool({ description: "With leave", inputSchema, needsApproval: true, execute: async () => ({ deleted: true }) }),
};

const body = async (request) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks));
};
const server = createServer(async (request, response) => {
  if (request.url === "/prompt") return response.end(JSON.stringify(prompt));
  try {
    const { messages } = await body(request);
    const result = streamText({
      model,
      tools,
      messages: await convertToModelMessages(messages),
      stopWhen: (stepCountIs ?? isStepCount)(4),
      maxRetries: 0,
      onError: () => {},
    });
    result.pipeUIMessageStreamToResponse(response, {
      originalMessages: messages,
      sendSources: true,
      onError: (error) => error.message,
      messageMetadata: ({ part }) =>
        part.type === "start" ? { model: "mock-1" } : part.type === "finish" ? { totalUsage: part.totalUsage } : undefined,
    });
  } catch (error) {
    response.writeHead(400, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: error.message }));
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
