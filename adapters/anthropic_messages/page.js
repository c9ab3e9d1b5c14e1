// The page's client of this dialect: it writes requests and reads the frames of answers.

// Its requests name a model.
export const namesModel = true;

export const request = (conversation) => ({
  path: "/messages",
  headers: { "anthropic-version": "2023-06-01" },
  body: {
    model: conversation.model,
    max_tokens: 4096,
    messages: conversation.messages.map(({ role, text }) => ({ role, content: text })),
    stream: true,
  },
});

export const reader = (turn) => {
  let told = 0;
  return ({ data }) => {
    const event = JSON.parse(data);
    const block = event.content_block ?? {};
    const delta = event.delta ?? {};
    const id = `block ${event.index}`;
    switch (event.type) {
      case "message_start":
        told = event.message.usage?.input_tokens;
        return;
      case "content_block_start":
        turn.text(id, block.text);
        turn.reasoning(id, block.thinking);
        if (block.type?.endsWith("tool_use")) turn.call(id, block.name);
        return;
      case "content_block_delta":
        turn.text(id, delta.text);
        turn.reasoning(id, delta.thinking);
        turn.args(id, delta.partial_json);
        return;
      case "message_delta":
        turn.usage(event.usage?.input_tokens ?? told, event.usage?.output_tokens);
        turn.over(delta.stop_reason);
        return;
      case "message_stop":
        return turn.over();
      case "error":
        return turn.fail(event.error?.message, event.error?.type);
    }
  };
};
