// The page's client of this dialect and of its Java form, which spells field names differently.

export const request = (conversation) => {
  const java = conversation.dialect === "agentscope-java";
  const typed = (type, content) => ({ role: "user", type: java ? type.toUpperCase() : type, content: [content] });
  const input = conversation.answers
    ? conversation.answers.map((answer) => typed("mcp_approval_response", { type: "data", data: approval(answer) }))
    : [typed("message", { type: "text", text: conversation.messages.at(-1).text })];
  return {
    path: "/process",
    headers: { accept: "text/event-stream" },
    body: { input, [java ? "sessionId" : "session_id"]: conversation.thread, stream: true },
  };
};

const approval = ({ id, yes, payload }) => ({ ...payload, id, approval_request_id: id, approve: yes });

export const reader = (turn) => {
  const kinds = new Map(); // message id -> its type
  const questions = new Map(); // message id -> the question that it asks in another dialect
  const streamed = new Set(); // parts that were streamed
  const told = new Map(); // call id -> length of its arguments shown so far

  const data = (kind, value, done, question) => {
    const { call_id, name, arguments: args, output } = value ?? {};
    if (kind.endsWith("call_output")) {
      if (done) turn.result(call_id, output);
    } else if (kind === "mcp_approval_request") {
      const { reason, payload } = question ?? value.interrupt ?? {};
      if (done) turn.ask({ id: value.id, reason, payload: payload ?? { name, arguments: args } });
    } else if (kind.endsWith("call")) {
      if (!told.has(call_id)) turn.call(call_id, name);
      const known = told.get(call_id) ?? 0;
      turn.args(call_id, (args ?? "").slice(known));
      told.set(call_id, Math.max(known, (args ?? "").length));
    } else if (done) {
      turn.note("data", value);
    }
  };

  const content = (event) => {
    const message = event.msg_id ?? event.msgId;
    const kind = kinds.get(message) ?? "message";
    const id = `${message} ${event.index ?? 0}`;
    const done = event.status === "completed";
    switch (event.type) {
      case "text":
      case "refusal": {
        const piece = event.text ?? event.refusal;
        if (event.delta) streamed.add(id);
        else if (!done || streamed.has(id)) return;
        return kind === "reasoning" ? turn.reasoning(id, piece) : turn.text(id, piece);
      }
      case "data":
        return data(kind, event.data, done, questions.get(message));
      case "image":
        return done ? turn.media("image", event.image_url ?? event.imageUrl) : undefined;
      default:
        return done
          ? turn.media(event.type, event.file_url ?? event.fileUrl ?? event.video_url ?? event.videoUrl)
          : undefined;
    }
  };

  return (frame) => {
    const event = JSON.parse(frame.data);
    if (event.error) return turn.fail(event.error.message ?? event.error, event.error.code);
    if (event.object === "message") {
      kinds.set(event.id, String(event.type).toLowerCase());
      if (event.metadata?.interrupt) questions.set(event.id, event.metadata.interrupt);
    }
    if (event.object === "content") return content(event);
    if (event.object === "response" && ["completed", "incomplete", "canceled", "failed"].includes(event.status)) {
      turn.usage(event.usage?.input_tokens, event.usage?.output_tokens);
      return event.status === "failed" ? turn.fail() : turn.over(event.status);
    }
  };
};
