// The page's client of this dialect and of its Java form, which spells field names differently.

export const request = (talk) => {
  const java = talk.dialect === "agentscope-java";
  const message = {
    role: "user",
    type: java ? "MESSAGE" : "message",
    content: [{ type: "text", text: talk.messages.at(-1).text }],
  };
  return {
    path: "/process",
    headers: { accept: "text/event-stream" },
    body: { input: [message], [java ? "sessionId" : "session_id"]: talk.thread, stream: true },
  };
};

export const reader = (turn) => {
  const kinds = new Map(); // message id -> its type
  const streamed = new Set(); // parts that were streamed
  const told = new Map(); // call id -> length of its arguments shown so far

  const data = (kind, value, done) => {
    const { call_id, name, arguments: args, output } = value ?? {};
    if (kind.endsWith("call_output")) {
      if (done) turn.result(call_id, output);
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
        return data(kind, event.data, done);
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
    if (event.object === "message") kinds.set(event.id, String(event.type).toLowerCase());
    if (event.object === "content") return content(event);
    if (event.object === "response" && ["completed", "incomplete", "canceled", "failed"].includes(event.status)) {
      turn.usage(event.usage?.input_tokens, event.usage?.output_tokens);
      return event.status === "failed" ? turn.fail() : turn.over(event.status);
    }
  };
};
