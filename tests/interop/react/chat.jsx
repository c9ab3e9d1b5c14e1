// A chat as an application with useChat has it. The address says what to try: `api`, `id`, `last` for bodies with only
// the last message, `resume` to go on with a run, `auto=0` to send nothing by itself.
import { useChat } from "@ai-sdk/react";
import * as ai from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const wanted = new URLSearchParams(location.search);
const last = ({ id, messages, body }) => ({ body: { ...body, id, message: messages.at(-1) } });
const transport = new ai.DefaultChatTransport({
  api: wanted.get("api"),
  ...(wanted.has("last") ? { prepareSendMessagesRequest: last } : {}),
});
const complete = ai.lastAssistantMessageIsCompleteWithToolCalls;
const approved = ai.lastAssistantMessageIsCompleteWithApprovalResponses ?? (() => false);
const knowsApprovals = "lastAssistantMessageIsCompleteWithApprovalResponses" in ai;

const Call = ({ part, approve }) => (
  <div className="call" data-state={part.state}>
    <b>{part.toolName ?? part.type.slice("tool-".length)}</b> <code>{JSON.stringify(part.input)}</code>
    {part.output !== undefined && <samp>{typeof part.output === "string" ? part.output : JSON.stringify(part.output)}</samp>}
    {part.state === "approval-requested" &&
      [true, false].map((yes) => (
        <button key={yes} onClick={() => approve({ id: part.approval.id, approved: yes })}>
          {yes ? "Approve" : "Deny"}
        </button>
      ))}
  </div>
);

// A question that is about no call, or for a version without approvals: the answer goes beside the messages.
const Question = ({ id, answer }) =>
  [true, false].map((yes) => (
    <button key={yes} onClick={() => answer([{ id, status: "resolved", payload: { approved: yes } }])}>
      {yes ? "Approve" : "Deny"}
    </button>
  ));

const Part = ({ part, approve, answer }) => {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "reasoning") return <p className="reasoning">{part.text}</p>;
  if (part.type === "file") return <img alt={part.filename ?? ""} src={part.url} />;
  if (part.type === "dynamic-tool" || part.type.startsWith("tool-")) return <Call part={part} approve={approve} />;
  if (part.type === "data-interrupt" && !(part.data.toolCallId && knowsApprovals)) return <Question id={part.data.id} answer={answer} />;
  return null;
};

const Chat = () => {
  const [files, setFiles] = useState();
  const chat = useChat({
    id: wanted.get("id") ?? undefined,
    transport,
    resume: wanted.has("resume"),
    sendAutomaticallyWhen: (given) => complete(given) || approved(given),
    onToolCall: ({ toolCall }) => {
      if (toolCall.toolName !== "get_place") return;
      chat.addToolResult({ tool: "get_place", toolCallId: toolCall.toolCallId, output: { city: "Paris" } });
    },
  });
  const send = (event) => {
    event.preventDefault();
    const field = event.target.elements.say;
    chat.sendMessage({ text: field.value, files });
    event.target.reset();
    setFiles(undefined);
  };
  return (
    <main data-status={chat.status}>
      {chat.messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, index) => (
            <Part
              key={index}
              part={part}
              approve={chat.addToolApprovalResponse}
              answer={(resume) => chat.sendMessage(undefined, { body: { resume } })}
            />
          ))}
        </article>
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <form onSubmit={send}>
        <input name="say" aria-label="Message" />
        <input type="file" multiple aria-label="Files" onChange={(event) => setFiles(event.target.files)} />
        <button>Send</button>
      </form>
      <button onClick={() => chat.stop()}>Stop</button>
      <button onClick={() => chat.regenerate()}>Again</button>
    </main>
  );
};

createRoot(document.getElementById("root")).render(<Chat />);
