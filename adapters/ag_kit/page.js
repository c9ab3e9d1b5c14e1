// The page's client of this dialect. Both generations have one address, and the body decides which one it is; the second
// is AG-UI.
import { input, reader as agUi } from "./ag-ui.js";

export const forms = [
  { id: "1", en: "generation 1", zh: "第一代" },
  { id: "2", en: "generation 2", zh: "第二代" },
];

export const request = (conversation) => {
  const last = conversation.messages.at(-1);
  const [answer] = conversation.answers ?? [];
  const first = {
    conversationId: conversation.thread,
    messages: answer ? [] : [{ role: "user", content: last.text }],
    ...(answer ? { resume: { interruptId: answer.id, payload: answer.payload ?? null } } : {}),
  };
  return {
    path: "/send-message",
    headers: { accept: "text/event-stream" },
    body: conversation.form === "2" ? second(conversation, last, answer) : first,
  };
};

const second = (conversation, last, answer) => {
  const body = input({ ...conversation, messages: answer ? [] : [last], answers: undefined });
  return answer ? { ...body, forwardedProps: { command: { resume: answer.payload ?? null } } } : body;
};

export const reader = (turn, conversation) => (conversation.form === "2" ? agUi(turn) : first(turn));

const first = (turn) => {
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
        return turn.ask({ id: event.id, reason: event.reason, payload: event.payload });
      case "error":
        return turn.fail(event.error);
    }
  };
};
