// One talk of an editor that uses the official TypeScript client: `session.mjs URL`, or `session.mjs COMMAND ARG...`.
// As acp/session.py.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const [target, ...rest] = process.argv.slice(2);
const updates = [];
const asked = [];
let child = null;
let stream;
if (target.startsWith("ws")) {
  stream = createWebSocketStream(target, { WebSocket });
} else {
  child = spawn(target, rest, { stdio: ["pipe", "pipe", "inherit"] });
  stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
}

const editor = acp
  .client()
  .onNotification("session/update", ({ params }) => void updates.push(params.update))
  .onRequest("session/request_permission", ({ params }) => {
    asked.push(params.toolCall.title);
    const { optionId } = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  });

const seen = await editor.connectWith(stream, async (agent) => {
  const greeting = await agent.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
  const created = await agent.request("session/new", { cwd: "/home/user/project", mcpServers: [] });
  const { sessionId, configOptions: [option] } = created;
  const names = option.options.map((each) => each.value);
  const choice = { sessionId, configId: option.id, value: names.at(-1) };
  const { configOptions: [chosen] } = await agent.request("session/set_config_option", choice);
  const turns = [];
  for (const text of ["Think.", "Pay.", "Fail."]) {
    updates.length = 0;
    const turn = {};
    try {
      const ended = await agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
      Object.assign(turn, { stop: ended.stopReason, total: ended.usage?.totalTokens ?? null });
    } catch (error) {
      Object.assign(turn, { error: error.code, message: error.message });
    }
    turns.push({ ...turn, updates: [...updates] });
  }
  updates.length = 0;
  const listed = await agent.request("session/list", {});
  await agent.request("session/load", { sessionId, cwd: "/home/user/project", mcpServers: [] });
  return {
    version: greeting.protocolVersion,
    models: [names, chosen.currentValue],
    turns,
    asked,
    titles: listed.sessions.map((session) => session.title),
    replayed: updates.map((update) => update.sessionUpdate),
  };
});
child?.stdin.end();
console.log(JSON.stringify(seen));
