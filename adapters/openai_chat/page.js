// The page's client of this dialect: it writes requests and reads the frames of answers.

// Its requests name a model.
export const namesModel = true;

export const request = (conversation) => ({
  path: "/chat/completions",
  headers: {},
  body: {
    model: conversation.model,
    messages: conversation.messages.map(({ role, text }) => ({ role, content: text })),
    stream: true,
    stream_options: { include_usage: true },
  },
});

export const reader =
  (turn) =>
  ({ data }) => {
    if (data === "[DONE]") return turn.over();
    const chunk = JSON.parse(data);
    if (chunk.error) return turn.fail(chunk.error.message, chunk.error.code);
    if (chunk.usage) turn.usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens);
    for (const { index, delta = {}, finish_reason } of chunk.choices ?? []) {
      turn.reasoning(`reasoning ${index}`, delta.reasoning_content ?? delta.reasoning);
      turn.text(`text ${index}`, delta.content);
      turn.text(`refusal ${index}`, delta.refusal);
      turn.text(`audio ${index}`, delta.audio?.transcript);
      if (delta.audio?.id && delta.audio.data) turn.note("audio", `${delta.audio.data.length} characters of base64`);
      for (const image of delta.images ?? []) turn.media("image", image.image_url?.url);
      for (const call of delta.tool_calls ?? []) {
        const id = `call ${index} ${call.index}`;
        if (call.function?.name) turn.call(id, call.function.name);
        turn.args(id, call.function?.arguments);
      }
      if (finish_reason) turn.over(finish_reason);
    }
  };
