// A chat as an application with AG-Kit's `useChat` has it; `url` in the address is the agent. The client has no way to
// stop a run, so the page stops its `fetch`.
import { clientTool, useChat } from "@cloudbase/agent-ui-web";
import { useRef } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const url = new URLSearchParams(location.search).get("url");
const place = clientTool({
  name: "get_place",
  description: "Where the user is",
  parameters: z.object({}),
  handler: async () => ({ city: "Paris" }),
});
const asked = ({ interrupt, resume }) => (
  <div className="interrupt">
    <code>{JSON.stringify(interrupt.payload)}</code>
    <button onClick={() => resume({ approved: true })}>Approve</button>
    <button onClick={() => resume({ approved: false })}>Deny</button>
    <button onClick={() => resume("yes")}>Yes</button>
    <button onClick={() => resume("no")}>No</button>
  </div>
);
const clientTools = [place];

const Part = ({ part }) => {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "interrupt") return part.render?.() ?? null;
  return (
    <div className="call" data-state={part.state}>
      <b>{part.name}</b> <code>{part.arguments}</code> <samp>{part.result}</samp>
    </div>
  );
};

const Chat = () => {
  const stopping = useRef(null);
  const stoppable = (input, init) => {
    stopping.current = new AbortController();
    return fetch(input, { ...init, signal: stopping.current.signal });
  };
  const chat = useChat({ url, clientTools, fetch: stoppable, interrupt: { renderWithResume: asked } });
  const send = (event) => {
    event.preventDefault();
    chat.sendMessage(event.target.elements.say.value);
    event.target.reset();
  };
  return (
    <main data-status={chat.streaming ? "streaming" : "ready"}>
      {chat.uiMessages.map((message, number) => (
        <article key={number} className={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} />
          ))}
        </article>
      ))}
      <p id="wrong">{chat.error?.message}</p>
      <form onSubmit={send}>
        <input name="say" aria-label="Message" />
        <button>Send</button>
        <button type="button" onClick={() => stopping.current?.abort()}>
          Stop
        </button>
      </form>
    </main>
  );
};

createRoot(document.getElementById("root")).render(<Chat />);
