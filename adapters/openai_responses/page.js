// The page's client of this dialect: it writes requests and reads the frames of answers.

// Its requests name a model.
export const namesModel = true;

export const request = (conversation) => ({
  path: "/responses",
  headers: {},
  body: {
    model: conversation.model,
    input: conversation.messages.map(({ role, text }) => ({ role, content: text })),
    stream: true,
    store: false,
  },
});

export const reader = (turn) => {
  let failed = false; // an error and the failed response after it are one failure
  return ({ data }) => {
    const event = JSON.parse(data);
    const part = `${event.item_id} ${event.content_index ?? event.summary_index ?? 0}`;
    switch (event.type) {
      case "response.output_text.delta":
      case "response.refusal.delta":
        return turn.text(part, event.delta);
      case "response.reasoning_text.delta":
      case "response.reasoning_summary_text.delta":
        return turn.reasoning(part, event.delta);
      case "response.output_item.added":
        return event.item.call_id && event.item.name ? turn.call(event.item.id, event.item.name) : undefined;
      case "response.function_call_arguments.delta":
        return turn.args(event.item_id, event.delta);
      case "response.completed":
      case "response.incomplete":
        turn.usage(event.response.usage?.input_tokens, event.response.usage?.output_tokens);
        return turn.over(event.response.incomplete_details?.reason ?? event.response.status);
      case "response.failed":
        return failed ? undefined : turn.fail(event.response.error?.message, event.response.error?.code);
      case "error":
        failed = true;
        return turn.fail(event.message ?? event.error?.message, event.code ?? event.error?.code);
    }
  };
};
