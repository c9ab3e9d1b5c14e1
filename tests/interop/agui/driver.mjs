// The official AG-UI client, driven by lines: one JSON command in, one JSON answer out.
//
// A command is one run of one agent; an agent keeps its messages and its thread from run to run, as a frontend does:
// {agent, client: "0" | "1", url, threadId, headers, state, add: [message], params: {tools, context, resume, ...},
//  abortAt: an event type or null, body: bytes in base64 that stand for the server's answer, or null}.
// The answer is all that an application could see of the run.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const clients = { 0: await import("ag-ui-client-0"), 1: await import("ag-ui-client-1") };
const EVENT_STREAM = { "content-type": "text/event-stream" };
const agents = new Map();
let view;

const told = (error) => ({ name: error?.name ?? typeof error, message: String(error?.message ?? error) });
for (const level of ["debug", "log", "info", "warn", "error"]) {
  console[level] = (...args) => view?.console.push([level, ...args.map((a) => (a instanceof Error ? a.message : String(a)))]);
}
// An application that does not know of these would be ended by Node.
process.on("unhandledRejection", (error) => view?.unhandled.push(told(error)));

function agentOf({ agent: name, client, url, threadId, headers, state, body }) {
  if (!agents.has(name)) {
    const whole = body && (async () => new Response(Buffer.from(body, "base64"), { headers: EVENT_STREAM }));
    agents.set(name, new clients[client].HttpAgent({ url, threadId, headers, initialState: state, fetch: whole }));
  }
  return agents.get(name);
}

async function play(command) {
  const agent = agentOf(command);
  if (command.body) agents.delete(command.agent);
  view = { events: [], console: [], unhandled: [], finished: null, rejected: null };
  for (const message of command.add) agent.addMessage({ id: randomUUID(), ...message });
  const known = agent.messages.length;
  const subscriber = {
    onEvent({ event }) {
      view.events.push(event);
      if (event.type === command.abortAt) agent.abortRun();
    },
    onRunFinishedEvent({ outcome, pendingToolCallIds, interrupts }) {
      view.finished = { outcome, pendingToolCallIds, interrupts };
    },
  };
  try {
    await agent.runAgent(command.params, subscriber);
  } catch (error) {
    view.rejected = told(error);
  }
  await new Promise(setImmediate);
  return { ...view, messages: agent.messages, fresh: agent.messages.slice(known), state: agent.state };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await play(JSON.parse(line)))}\n`);
}
