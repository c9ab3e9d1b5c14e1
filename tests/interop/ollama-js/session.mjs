// One talk of an application that uses Ollama's JavaScript client: `session.mjs BASE_URL FAILING_URL`, in JSON.
import { Ollama } from "ollama";

const [client, failing] = process.argv.slice(2).map((host) => new Ollama({ host }));
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgAAACAAAB4iG8MwAAAABJRU5ErkJggg==";
const parameters = { type: "object", required: ["city"], properties: { city: { type: "string" } } };
const tools = ["get_weather", "get_time"].map((name) => ({
  type: "function",
  function: { name, description: name, parameters },
}));
const messages = [{ role: "system", content: "Be brief." }];
const turns = [];

const say = async () => {
  const told = { text: "", thoughts: "", calls: [], pieces: 0 };
  for await (const piece of await client.chat({ model: "m-1", messages, tools, think: true, stream: true })) {
    const { content, thinking, tool_calls: calls } = piece.message;
    told.pieces += 1;
    told.text += content;
    told.thoughts += thinking ?? "";
    told.calls.push(...(calls ?? []).map((call) => [call.function.name, call.function.arguments]));
    if (piece.done) told.end = [piece.done_reason, piece.prompt_eval_count ?? 0, piece.eval_count ?? 0];
  }
  messages.push({
    role: "assistant",
    content: told.text,
    thinking: told.thoughts,
    tool_calls: told.calls.map(([name, args]) => ({ function: { name, arguments: args } })),
  });
  turns.push(told);
  return told;
};

messages.push({ role: "user", content: "What is it like in Paris?", images: [PNG] });
for (const [name, { city }] of (await say()).calls) {
  messages.push({ role: "tool", tool_name: name, content: `${name} of ${city}` });
}
await say();
messages.push({ role: "user", content: "Thanks." });
await say();

const whole = await client.generate({ model: "m-1", prompt: "Thanks.", options: { num_predict: 50 } });
const listed = (await client.list()).models.map(({ name }) => name);
const { capabilities } = await client.show({ model: "m-1" });
const { embeddings } = await client.embed({ model: "m-1", input: ["a", "b"] });
const failures = [];
const fails = async (what) => {
  try {
    await what();
  } catch (error) {
    failures.push([error.status_code ?? null, error.message]);
  }
};
await fails(() => failing.chat({ model: "m-1", messages }));
await fails(async () => {
  for await (const _ of await failing.chat({ model: "m-1", messages, stream: true }));
});
await fails(() => client.show({ model: "nope" }));
await fails(() => client.delete({ model: "m-1" }));
console.log(JSON.stringify({ turns, whole: whole.response, listed, capabilities, embeddings, failures }));
