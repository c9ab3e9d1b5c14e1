// The page's client of this dialect: it writes requests and reads the chunks of answers.

// Its requests name a model.
export const namesModel = true;

export const request = (conversation) => ({
  path: `/v1beta/models/${encodeURIComponent(conversation.model)}:streamGenerateContent?alt=sse`,
  headers: {},
  body: {
    contents: conversation.messages.map(({ role, text }) => ({
      role: role === "assistant" ? "model" : "user",
      parts: [{ text }],
    })),
    generationConfig: { thinkingConfig: { includeThoughts: true } },
  },
});

export const reader = (turn) => {
  let calls = 0;
  return ({ data }) => {
    const chunk = JSON.parse(data);
    if (chunk.error) return turn.fail(chunk.error.message, chunk.error.status);
    const candidate = chunk.candidates?.[0] ?? {};
    for (const part of candidate.content?.parts ?? []) {
      if (part.functionCall) {
        const id = `call ${calls++}`;
        turn.call(id, part.functionCall.name);
        turn.args(id, JSON.stringify(part.functionCall.args ?? {}));
      } else if (part.inlineData) {
        const { mimeType, data: bytes } = part.inlineData;
        turn.media(mimeType.split("/")[0], `data:${mimeType};base64,${bytes}`);
      } else if (part.thought) {
        turn.reasoning("thoughts", part.text);
      } else {
        turn.text("text", part.text);
      }
    }
    const usage = chunk.usageMetadata;
    if (usage) turn.usage(usage.promptTokenCount, (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0));
    if (candidate.finishReason) return turn.over(candidate.finishReason);
    if (chunk.promptFeedback) return turn.over(chunk.promptFeedback.blockReason);
  };
};
