// One talk of an application that uses Google's JavaScript SDK: `session.mjs BASE_URL OTHER_URL`. As genai/session.py.
import { ApiError, GoogleGenAI } from "@google/genai";

const [client, elsewhere] = process.argv
  .slice(2)
  .map((baseUrl) => new GoogleGenAI({ apiKey: "client-key", httpOptions: { baseUrl } }));
const city = { type: "object", properties: { city: { type: "string" } } };
const config = {
  tools: [
    {
      functionDeclarations: [
        { name: "get_weather", parameters: { type: "OBJECT", properties: { city: { type: "STRING" } } } },
        { name: "get_time", parametersJsonSchema: city },
      ],
    },
  ],
  systemInstruction: "Be brief.",
  temperature: 0.5,
  thinkingConfig: { includeThoughts: true },
};

const seen = () => ({ text: "", thoughts: "", calls: [], chunks: 0, finish: null, usage: null });

const note = (told, chunk) => {
  told.chunks += 1;
  for (const candidate of chunk.candidates ?? []) {
    for (const part of candidate.content?.parts ?? []) {
      const call = part.functionCall;
      if (call) told.calls.push([call.id, call.name, call.args]);
      else if (part.text) told[part.thought ? "thoughts" : "text"] += part.text;
    }
    told.finish = candidate.finishReason ?? told.finish;
  }
  const usage = chunk.usageMetadata;
  if (usage) told.usage = [usage.promptTokenCount, usage.candidatesTokenCount];
};

const chat = client.chats.create({ model: "m-1", config });
const turns = [];
let message = "What is it like in Paris?";
for (let turn = 0; turn < 3; turn += 1) {
  const told = seen();
  for await (const chunk of await chat.sendMessageStream({ message })) note(told, chunk);
  turns.push(told);
  message = told.calls.map(([id, name]) => ({
    functionResponse: { id, name, response: { result: `${name} of Paris` } },
  }));
  if (turn > 0) message = "Thanks.";
}
const whole = seen();
note(whole, await client.models.generateContent({ model: "m-1", contents: "Thanks.", config }));
const tokens = (await elsewhere.models.countTokens({ model: "m-1", contents: "How many?" })).totalTokens;
const models = [];
for await (const model of await elsewhere.models.list()) models.push(model.name);
const failures = [];
for (const ask of ["generateContent", "generateContentStream"]) {
  try {
    await client.models[ask]({ model: "m-1", contents: "Fail." });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const told = JSON.parse(error.message).error;
    failures.push([error.status, told.status, told.message]);
  }
}
console.log(JSON.stringify({ turns, whole, tokens, models, failures }));
