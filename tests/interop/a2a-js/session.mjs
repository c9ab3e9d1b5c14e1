// An application that uses A2A's JavaScript SDK: `session.mjs BASE_URL BINDING [tasks]`. It prints what it saw as JSON.
import { randomUUID } from "node:crypto";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const [base, binding, tasks] = process.argv.slice(2);
const transport = binding === "JSONRPC" ? new JsonRpcTransportFactory() : new RestTransportFactory();
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports: [transport] }));
const client = await factory.createFromUrl(`${base}/.well-known/agent-card.json`, "");

const message = (text, task) => ({
  tenant: "",
  metadata: {},
  message: {
    messageId: randomUUID(),
    role: 1,
    parts: [{ content: { $case: "text", value: text }, metadata: {}, filename: "", mediaType: "" }],
    contextId: task?.contextId ?? "",
    taskId: task?.id ?? "",
    metadata: {},
    extensions: [],
    referenceTaskIds: [],
  },
  configuration: undefined,
});

const textOf = (parts) => (parts ?? []).map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");

const add = (seen, event) => {
  const { $case: kind, value } = event.payload;
  seen.kinds.push(kind);
  if (kind === "task") {
    seen.task ??= value;
    seen.states.push(value.status.state);
    seen.text += value.artifacts.map((artifact) => textOf(artifact.parts)).join("");
  } else if (kind === "artifactUpdate") {
    seen.text += textOf(value.artifact.parts);
  } else if (kind === "statusUpdate") {
    seen.states.push(value.status.state);
    seen.question = textOf(value.status.message?.parts);
  }
};

const fresh = () => ({ kinds: [], states: [], text: "", question: "", task: undefined });
const ask = async (text, task) => {
  const seen = fresh();
  for await (const event of client.sendMessageStream(message(text, task))) add(seen, event);
  return seen;
};
const shown = ({ kinds, states, text, question }) => ({ kinds, states, text, question });
const failure = async (call) => {
  try {
    await call();
    return "none";
  } catch (error) {
    return error.name;
  }
};

const said = {};
const streamed = await ask("hello");
said.streamed = shown(streamed);
const whole = await client.sendMessage(message("hello"));
const task = whole.payload?.value ?? whole;
said.whole = [task.status.state, task.artifacts.map((artifact) => textOf(artifact.parts))];
const asked = await ask("interrupt");
said.asked = shown(asked);
said.answered = shown(await ask("yes", asked.task));
if (tasks) {
  const kept = await client.getTask({ tenant: "", id: asked.task.id });
  said.kept = [kept.status.state, kept.artifacts.map((artifact) => textOf(artifact.parts))];
  const waiting = await ask("interrupt");
  said.canceled = (await client.cancelTask({ tenant: "", id: waiting.task.id, metadata: {} })).status.state;
  said.failures = [
    await failure(() => client.cancelTask({ tenant: "", id: waiting.task.id, metadata: {} })),
    await failure(() => client.getTask({ tenant: "", id: "nobody" })),
    await failure(() => ask("again", streamed.task)),
  ];
  const first = fresh();
  const second = fresh();
  let watching;
  for await (const event of client.sendMessageStream(message("slow"))) {
    add(first, event);
    if (event.payload.$case !== "artifactUpdate") continue;
    watching ??= (async () => {
      for await (const known of client.resubscribeTask({ tenant: "", id: first.task.id })) {
        add(second, known);
        if (second.kinds.length === 2) await client.cancelTask({ tenant: "", id: first.task.id, metadata: {} });
      }
    })();
  }
  await watching;
  said.watched = [first.text === second.text, second.kinds[0], first.states.at(-1), second.states.at(-1)];
}
console.log(JSON.stringify(said));
