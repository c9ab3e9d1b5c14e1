// Chats of an application: each line of standard input is one command in JSON, each line of the output what the
// application saw. `build` is a key of package.json. `body` (base64) answers the requests in place of the network.
import { createInterface } from "node:readline";

const builds = {};
const load = async (build) => (builds[build] ??= await import(build));

class State {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => this.messages.push(message);
  popMessage = () => this.messages.pop();
  replaceMessage = (index, message) => (this.messages[index] = message);
  snapshot = (value) => structuredClone(value);
}

const play = async ({ build, url, id = "chat-1", messages = [], say, body, outputs = {}, auto = true, approve, resume, stopAt }) => {
  const { AbstractChat, DefaultChatTransport, ...rest } = await load(build);
  class Chat extends AbstractChat {}
  const seen = { requests: [], handled: [], data: [] };
  const fetched = async (address, init) => {
    seen.requests.push({ url: String(address), method: init.method ?? "GET", body: init.body && JSON.parse(init.body) });
    if (seen.requests.length > 5) throw new Error("too many requests");
    if (body === undefined) return fetch(address, init);
    return new Response(Buffer.from(body, "base64"), { headers: { "content-type": "text/event-stream" } });
  };
  const state = new State(messages);
  const complete = rest.lastAssistantMessageIsCompleteWithToolCalls;
  const approved = rest.lastAssistantMessageIsCompleteWithApprovalResponses ?? (() => false);
  let deltas = 0;
  const chat = new Chat({
    id,
    state,
    transport: new DefaultChatTransport({ api: url, fetch: fetched }),
    sendAutomaticallyWhen: (given) => auto && (complete(given) || approved(given)),
    onData: (part) => seen.data.push(part),
    onToolCall: ({ toolCall }) => {
      seen.handled.push(toolCall.toolName);
      const output = outputs[toolCall.toolName];
      if (output === undefined) return;
      chat.addToolResult({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
    },
    onFinish: ({ finishReason, isError, isAbort }) => Object.assign(seen, { finishReason, isError, isAbort }),
  });
  if (stopAt !== undefined) {
    const replace = state.replaceMessage;
    state.replaceMessage = (index, message) => {
      replace(index, message);
      deltas += 1;
      if (deltas === stopAt) chat.stop();
    };
  }
  if (resume) await chat.resumeStream();
  else await chat.sendMessage(say === undefined ? undefined : { text: say });
  await idle(chat);
  for (const part of (approve === undefined ? [] : chat.messages.at(-1).parts)) {
    if (part.state !== "approval-requested") continue;
    await chat.addToolApprovalResponse({ id: part.approval.id, approved: approve, reason: approve ? undefined : "no" });
    await idle(chat);
  }
  return { ...seen, status: chat.status, error: chat.error && String(chat.error.message), messages: chat.messages };
};

const idle = async (chat) => {
  for (let quiet = 0; quiet < 4; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    quiet = chat.status === "ready" || chat.status === "error" ? quiet + 1 : 0;
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await play(JSON.parse(line)).catch((error) => ({ broke: String(error?.stack ?? error) }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
