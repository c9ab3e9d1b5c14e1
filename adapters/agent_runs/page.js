// The page's client of this dialect: it queues a run and reads its events, which are AG-UI's, with another request.
import { input, reader } from "./ag-ui.js";

export { reader };

const place = ({ thread, run }, what) => `/runs/${encodeURIComponent(thread)}/${what}?runId=${encodeURIComponent(run)}`;

export const request = (conversation) => {
  const body = input({ ...conversation, messages: conversation.messages.slice(-1) });
  return { path: "/runs", headers: {}, body: { ...body, forwardedProps: { runtime_mode: "chat" } } };
};

// The path of the events of a queued run, and the path that cancels it.
export const follow = (conversation) => place(conversation, "events");
export const cancel = (conversation) => place(conversation, "cancel");
