// The page's client of this dialect: it writes requests and reads the objects of answers, one a line.

// Its requests name a model.
export const namesModel = true;

export const request = (conversation) => ({
  path: "/api/chat",
  headers: {},
  body: {
    model: conversation.model,
    messages: conversation.messages.map(({ role, text }) => ({ role, content: text })),
    stream: true,
  },
});

export const reader = (turn) => {
  let calls = 0;
  return ({ data }) => {
    const said = JSON.parse(data);
    if (said.error) return turn.fail(said.error);
    const { thinking, content, tool_calls } = said.message ?? {};
    turn.reasoning("thinking", thinking);
    turn.text("text", content);
    for (const call of tool_calls ?? []) {
      const id = `call ${calls++}`;
      turn.call(id, call.function.name);
      turn.args(id, JSON.stringify(call.function.arguments));
    }
    if (!said.done) return;
    if (said.prompt_eval_count || said.eval_count) turn.usage(said.prompt_eval_count ?? 0, said.eval_count ?? 0);
    turn.over(said.done_reason);
  };
};
