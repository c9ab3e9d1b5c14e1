// How the page speaks this dialect: a run is queued, its events, which are AG-UI's, are read by another request.
import { input, reader } from "./ag-ui.js";

export { reader };

const place = (talk, what) => `/runs/${encodeURIComponent(talk.thread)}/${what}?runId=${encodeURIComponent(talk.run)}`;

export const request = (talk) => {
  const body = input({ ...talk, messages: talk.messages.slice(-1) });
  return { path: "/runs", headers: {}, body: { ...body, forwardedProps: { runtime_mode: "chat" } } };
};

// Where the events of a run are that was queued, and how it is told to end.
export const follow = (talk) => place(talk, "events");
export const cancel = (talk) => place(talk, "cancel");
