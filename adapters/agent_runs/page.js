// The page's client of this dialect: it queues a run and reads its events, which are AG-UI's, with another request.
import { input, reader } from "./ag-ui.js";

export { reader };

const place = (talk, what) => `/runs/${encodeURIComponent(talk.thread)}/${what}?runId=${encodeURIComponent(talk.run)}`;

export const request = (talk) => {
  const body = input({ ...talk, messages: talk.messages.slice(-1) });
  return { path: "/runs", headers: {}, body: { ...body, forwardedProps: { runtime_mode: "chat" } } };
};

// The path of the events of a queued run, and the path that cancels it.
export const follow = (talk) => place(talk, "events");
export const cancel = (talk) => place(talk, "cancel");
