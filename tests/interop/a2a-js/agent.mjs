// A scripted agent on A2A's JavaScript SDK: `agent.mjs PORT`. The first word of the message says which scene is played.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler, ServerCallContext } from "@a2a-js/sdk/server";

const port = Number(process.argv[2]);
const card = AgentCard.fromJSON({
  name: "Scripted agent",
  description: "Does what the first word says",
  version: "1",
  supportedInterfaces: [{ url: `http://127.0.0.1:${port}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0" }],
  capabilities: { streaming: true },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "script", name: "Script", description: "Follows a script", tags: ["test"] }],
});
const talks = new Map();
const canceled = [];
const stopped = new Set();
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

const events = (bus, taskId, contextId) => ({
  status: (state, text) => {
    const parts = [{ text }];
    const message = text ? { messageId: randomUUID(), role: "ROLE_AGENT", parts, taskId, contextId } : undefined;
    const status = { state: `TASK_STATE_${state}`, message, timestamp: new Date().toISOString() };
    bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ taskId, contextId, status })));
  },
  artifact: (text, append, lastChunk, artifactId = "answer") => {
    const artifact = { artifactId, name: "answer", parts: [{ text }] };
    bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON({ taskId, contextId, artifact, append, lastChunk })));
  },
});

const executor = {
  async execute(context, bus) {
    const { taskId, contextId, userMessage, task } = context;
    const text = userMessage.parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
    const before = talks.get(contextId) ?? [];
    talks.set(contextId, [...before, text]);
    const say = events(bus, taskId, contextId);
    if (text === "message") {
      bus.publish(AgentEvent.message(Message.fromJSON({ messageId: randomUUID(), role: "ROLE_AGENT", contextId, parts: [{ text: "Just a message." }] })));
      bus.finished();
      return;
    }
    if (task) bus.publish(AgentEvent.task(task)); // the SDK wants it first in each stream
    else {
      const status = { state: "TASK_STATE_SUBMITTED", timestamp: new Date().toISOString() };
      bus.publish(AgentEvent.task(Task.fromJSON({ id: taskId, contextId, status, history: [Message.toJSON(userMessage)] })));
    }
    say.status("WORKING");
    if (text === "fail") say.status("FAILED", "The model is down.");
    else if (text === "break") throw new Error("the agent broke");
    else if (text === "ask") {
      say.artifact("Let me see. ", false, true, "first");
      say.status("INPUT_REQUIRED", "Which city?");
    } else if (text === "slow") {
      for (let number = 0; number < 600 && !stopped.has(taskId); number += 1) {
        say.artifact(`${number} `, number > 0, false);
        await pause(0.05);
      }
    } else {
      say.artifact(task ? "You chose " : text === "before" ? "Before that: " : "You said: ", false, false);
      say.artifact(text === "before" ? before.at(-1) : text, true, true);
      say.status("COMPLETED");
    }
    bus.finished();
  },
  async cancelTask(taskId, bus) {
    canceled.push(taskId);
    stopped.add(taskId);
    events(bus, taskId, "").status("CANCELED");
    bus.finished();
  },
};
const handler = new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));

const answers = {
  "/healthz": () => "ok",
  "/seen": () => JSON.stringify({ canceled }),
  "/.well-known/agent-card.json": () => JSON.stringify(AgentCard.toJSON(card)),
};

createServer(async (request, response) => {
  if (request.method === "GET") {
    const answer = answers[request.url.split("?")[0]];
    response.writeHead(answer ? 200 : 404, { "content-type": "application/json" }).end(answer?.());
    return;
  }
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const context = new ServerCallContext({ requestedVersion: request.headers["a2a-version"] });
  const answer = await handler.handle(Buffer.concat(pieces).toString(), context);
  if (typeof answer[Symbol.asyncIterator] !== "function") {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  try {
    for await (const event of answer) response.write(`data: ${JSON.stringify(event)}\n\n`);
  } catch (error) {
    const told = { jsonrpc: "2.0", id: null, error: JsonRpcTransportHandler.mapToJSONRPCError(error) };
    response.write(`event: error\ndata: ${JSON.stringify(told)}\n\n`);
  }
  response.end();
}).listen(port, "127.0.0.1");
