// The page's client of this dialect: it writes requests and reads the frames of answers.

export const request = (conversation) => ({
  path: "",
  body: {
    id: conversation.thread,
    messages: [
      ...conversation.messages.map(({ id, role, text }) => ({ id, role, parts: [{ type: "text", text }] })),
      ...approved(conversation),
    ],
    trigger: "submit-message",
    ...resumed(conversation),
  },
});

// An approval is a state of its call in the last answer.
function approved({ answers = [], run }) {
  const parts = answers.filter(({ call }) => call).map(({ id, call, yes }) => ({
    type: "dynamic-tool",
    ...call,
    state: "approval-responded",
    approval: { id, approved: yes },
  }));
  return parts.length ? [{ id: `${run} answer`, role: "assistant", parts }] : [];
}

// All other questions are answered beside the messages.
function resumed({ answers = [] }) {
  const resume = answers.filter(({ call }) => !call).map(({ id, status, payload }) => ({ id, status, payload }));
  return resume.length ? { resume } : {};
}

export const reader = (turn) => {
  const bare = new Set(); // calls whose arguments were not streamed
  const calls = new Map(); // id -> {toolCallId, toolName, input}
  const asked = new Map(); // questions by id: an approval of a call may come with a part that has its words
  let ended = false;
  const ask = (name, more) => asked.set(name, { ...asked.get(name), ...more });
  // Without words of its own, a question shows its call.
  const named = ({ call, payload, ...rest }) =>
    ({ ...rest, call, payload: payload ?? (call && { name: call.toolName, arguments: call.input }) });
  const counted = ({ usage } = {}) => usage && turn.usage(usage.inputTokens, usage.outputTokens);
  return ({ data }) => {
    if (data === "[DONE]" || ended) return;
    const chunk = JSON.parse(data);
    const { type, id, delta, toolCallId } = chunk;
    switch (type) {
      case "text-delta":
        return turn.text(id, delta);
      case "reasoning-delta":
        return turn.reasoning(`reasoning ${id}`, delta);
      case "tool-input-start":
        bare.add(toolCallId);
        return turn.call(toolCallId, chunk.toolName);
      case "tool-input-delta":
        bare.delete(toolCallId);
        return turn.args(toolCallId, chunk.inputTextDelta);
      case "tool-input-available":
        calls.set(toolCallId, { toolCallId, toolName: chunk.toolName, input: chunk.input });
        return bare.delete(toolCallId) && turn.args(toolCallId, JSON.stringify(chunk.input));
      case "tool-output-available":
        return turn.result(toolCallId, typeof chunk.output === "string" ? chunk.output : JSON.stringify(chunk.output));
      case "tool-output-error":
        return turn.result(toolCallId, chunk.errorText);
      case "file":
        return turn.media(chunk.mediaType.split("/")[0], chunk.url);
      case "tool-approval-request":
        return ask(chunk.approvalId, { call: calls.get(toolCallId) });
      case "data-interrupt":
        return ask(chunk.data.id ?? id, chunk.data);
      case "message-metadata":
        return counted(chunk.messageMetadata);
      case "error":
        ended = true;
        return turn.fail(chunk.errorText);
      case "abort":
        return turn.over("canceled");
      case "finish":
        counted(chunk.messageMetadata);
        for (const [name, question] of asked) turn.ask({ ...named(question), id: name });
        return turn.over(chunk.finishReason);
      default:
        if (type.startsWith("data-") || type.startsWith("source-")) turn.note(type, chunk.data ?? chunk.url ?? chunk.title);
    }
  };
};
