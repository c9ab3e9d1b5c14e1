// How the page speaks this dialect, in generation 1: the request it writes, and what it reads in the answer.

export const request = (talk) => ({
  path: "/send-message",
  headers: { accept: "text/event-stream" },
  body: { conversationId: talk.thread, messages: [{ role: "user", content: talk.messages.at(-1).text }] },
});

export const reader = (turn) => {
  let block = 0;
  return ({ data }) => {
    if (data === "[DONE]") return turn.over();
    const event = JSON.parse(data);
    const { type, toolCallId } = event;
    if (type === "text") return turn.text(`text ${block}`, event.content);
    block += 1;
    switch (type) {
      case "tool-call-start":
        return turn.call(toolCallId, event.toolCallName);
      case "tool-call-args":
        return turn.args(toolCallId, event.delta);
      case "tool-result":
        return turn.result(toolCallId, event.result);
      case "interrupt":
        return turn.note("interrupt", event.payload ?? event.reason);
      case "error":
        return turn.fail(event.error);
    }
  };
};
