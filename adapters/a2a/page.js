// The page's client of this dialect: it writes requests and reads the events of answers.

const textOf = (parts = []) => parts.map((part) => part.text ?? "").join("");

const answered = ({ yes, status, payload }) =>
  status === "resolved" && !("approved" in payload) ? { data: payload } : { text: yes ? "yes" : "no" };

export const request = (conversation) => ({
  path: "",
  headers: { "A2A-Version": "1.0" },
  body: {
    jsonrpc: "2.0",
    id: conversation.run ?? "1",
    method: "SendStreamingMessage",
    params: {
      message: {
        messageId: conversation.answers ? conversation.run : conversation.messages.at(-1).id,
        contextId: conversation.thread,
        ...(conversation.answers ? { taskId: conversation.answers[0].id } : {}),
        role: "ROLE_USER",
        parts: conversation.answers ? conversation.answers.map(answered) : [{ text: conversation.messages.at(-1).text }],
      },
    },
  },
});

export const reader = (turn) => {
  const status = ({ state, message }, metadata = {}, task) => {
    const { input, output } = metadata.usage ?? {};
    if (metadata.usage) turn.usage(input, output);
    const word = state.replace("TASK_STATE_", "").toLowerCase();
    if (word === "failed") return turn.fail(textOf(message?.parts), metadata.code);
    if (word === "working" || word === "submitted") return;
    const asked = message?.metadata?.interrupts ?? [];
    const awaited = asked.filter((each) => each.reason === "tool_result" && each.call);
    for (const { callId, call } of awaited) {
      turn.call(callId, call.name);
      turn.args(callId, JSON.stringify(call.args));
    }
    if (message && !(awaited.length && awaited.length === asked.length)) question(textOf(message.parts), asked, task);
    turn.over(metadata.finishReason ?? word);
  };
  // One answer goes to the task, however many questions it has.
  const question = (words, asked, task) => {
    const [{ reason, payload } = {}] = asked.filter((each) => !each.call);
    turn.ask({ id: task, message: words, reason, payload });
  };
  const part = (id, { text, raw, url, data, mediaType = "", filename }) => {
    if (text !== undefined) return text && turn.text(id, text);
    if (data !== undefined) return turn.note("data", data);
    turn.media(mediaType.split("/")[0] || "file", url ?? `data:${mediaType};base64,${raw}`, filename);
  };
  return ({ data }) => {
    const { result, error } = JSON.parse(data);
    if (error) return turn.fail(error.message, error.code);
    if (result.statusUpdate) return status(result.statusUpdate.status, result.statusUpdate.metadata, result.statusUpdate.taskId);
    for (const each of result.artifactUpdate?.artifact.parts ?? []) part(result.artifactUpdate.artifact.artifactId, each);
  };
};
