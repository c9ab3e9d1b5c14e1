// The page's client of this dialect: it writes requests and reads the frames of answers.

// The bridge treats requests without a version as 0.x.
export const forms = [
  { id: "1.0", en: "1.0", zh: "1.0" },
  { id: "0.x", en: "0.x", zh: "0.x" },
];

const resumed = ({ id, status, payload }) => ({ interruptId: id, status, payload });

export const input = (conversation) => ({
  threadId: conversation.thread,
  runId: conversation.run,
  state: {},
  messages: conversation.messages.map(({ id, role, text }) => ({ id, role, content: text })),
  tools: [],
  context: [],
  forwardedProps: {},
  ...(conversation.answers ? { resume: conversation.answers.map(resumed) } : {}),
});

export const request = (conversation) => {
  const version = conversation.form === "1.0" ? { protocolVersion: conversation.form } : {};
  return { path: "", headers: { accept: "text/event-stream" }, body: { ...input(conversation), ...version } };
};

export const reader = (turn) => {
  let thought = 0; // THINKING_* events have no message id
  return ({ data }) => {
    const event = JSON.parse(data);
    const { delta, messageId, toolCallId } = event;
    switch (event.type) {
      case "TEXT_MESSAGE_CONTENT":
      case "TEXT_MESSAGE_CHUNK":
        return turn.text(messageId, delta);
      case "REASONING_MESSAGE_CONTENT":
      case "REASONING_MESSAGE_CHUNK":
        return turn.reasoning(`reasoning ${messageId}`, delta);
      case "THINKING_TEXT_MESSAGE_START":
        thought += 1;
        return;
      case "THINKING_TEXT_MESSAGE_CONTENT":
        return turn.reasoning(`thought ${thought}`, delta);
      case "TOOL_CALL_START":
        return turn.call(toolCallId, event.toolCallName);
      case "TOOL_CALL_CHUNK":
        if (event.toolCallName) turn.call(toolCallId, event.toolCallName);
        return turn.args(toolCallId, delta);
      case "TOOL_CALL_ARGS":
        return turn.args(toolCallId, delta);
      case "TOOL_CALL_RESULT":
        return turn.result(toolCallId, event.content);
      case "STEP_STARTED":
      case "STEP_FINISHED":
        return turn.note(event.type, event.stepName);
      case "STATE_SNAPSHOT":
        return turn.note(event.type, event.snapshot);
      case "STATE_DELTA":
        return turn.note(event.type, delta);
      case "CUSTOM":
        if (event.name === "on_interrupt") return turn.ask({ id: "", payload: event.value });
        return turn.note(event.name, event.value);
      case "RUN_FINISHED":
        for (const asked of event.outcome?.interrupts ?? []) turn.ask(asked);
        for (const used of event.usage ?? []) turn.usage(used.inputTokens, used.outputTokens);
        return turn.over(event.outcome?.type);
      case "RUN_ERROR":
        return turn.fail(event.message, event.code);
    }
  };
};
