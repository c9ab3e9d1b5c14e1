// One talk of an application that uses the AI SDK: `node session.mjs WIRE BASE_URL OPTIONS`, where WIRE is "openai" (its
// Responses provider) or "anthropic" and OPTIONS are the provider's, in JSON. The SDK runs the two tools itself and
// calls again with their results; then the application says one thing more. Prints what it saw, in JSON.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false; // they are in the answer
const [wire, baseURL, options] = process.argv.slice(2);
const make = { openai: createOpenAI, anthropic: createAnthropic }[wire];
const model = make({ baseURL, apiKey: "client-key" })("m-1");
const inputSchema = z.object({ city: z.string() });
const tools = {
  get_weather: tool({ description: "The weather", inputSchema, execute: async ({ city }) => `sunny in ${city}` }),
  get_time: tool({ description: "The time", inputSchema, execute: async ({ city }) => ({ city, time: "12:00" }) }),
};
const messages = [];
const seen = { turns: [], warnings: [], errors: [] };

for (const content of ["What is it like in Paris?", "Thanks."]) {
  messages.push({ role: "user", content });
  const result = streamText({
    model,
    tools,
    system: "Be brief.",
    messages,
    maxOutputTokens: 1000,
    maxRetries: 0,
    stopWhen: stepCountIs(4),
    providerOptions: { [wire]: JSON.parse(options) },
    onError: ({ error }) => seen.errors.push(String(error?.responseBody ?? error?.message ?? error)),
  });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part.type);
  if (seen.errors.length) break;
  const steps = await result.steps;
  seen.warnings.push(...steps.flatMap((s) => (s.warnings ?? []).map((w) => w.message ?? JSON.stringify(w))));
  seen.turns.push({
    parts,
    text: await result.text,
    reasoning: steps.map((s) => s.reasoningText ?? "").join(""),
    calls: steps.flatMap((s) => s.toolCalls.map((c) => [c.toolCallId, c.toolName, c.input])),
    results: steps.flatMap((s) => s.toolResults.map((r) => [r.toolCallId, r.output])),
    finishes: steps.map((s) => s.finishReason),
    usage: [(await result.totalUsage).inputTokens, (await result.totalUsage).outputTokens],
  });
  messages.push(...(await result.response).messages);
}
process.stdout.write(`${JSON.stringify(seen)}\n`);
