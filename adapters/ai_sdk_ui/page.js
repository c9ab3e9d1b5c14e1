// The page's client of this dialect: it writes requests and reads the frames of answers.

export const request = (talk) => ({
  path: "",
  body: {
    id: talk.thread,
    messages: talk.messages.map(({ id, role, text }) => ({ id, role, parts: [{ type: "text", text }] })),
    trigger: "submit-message",
  },
});

export const reader = (turn) => {
  const bare = new Set(); // calls whose arguments were not streamed
  let ended = false;
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
        return bare.delete(toolCallId) && turn.args(toolCallId, JSON.stringify(chunk.input));
      case "tool-output-available":
        return turn.result(toolCallId, typeof chunk.output === "string" ? chunk.output : JSON.stringify(chunk.output));
      case "tool-output-error":
        return turn.result(toolCallId, chunk.errorText);
      case "file":
        return turn.media(chunk.mediaType.split("/")[0], chunk.url);
      case "tool-approval-request":
        return turn.note("approval", { id: chunk.approvalId, toolCallId });
      case "message-metadata":
        return counted(chunk.messageMetadata);
      case "error":
        ended = true;
        return turn.fail(chunk.errorText);
      case "abort":
        return turn.over("canceled");
      case "finish":
        counted(chunk.messageMetadata);
        return turn.over(chunk.finishReason);
      default:
        if (type.startsWith("data-") || type.startsWith("source-")) turn.note(type, chunk.data ?? chunk.url ?? chunk.title);
    }
  };
};
