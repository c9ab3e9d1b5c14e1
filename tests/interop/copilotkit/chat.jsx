// CopilotKit's chat as an application has it. The address says where: `agent` for an agent of AG-UI itself, or `runtime`
// for CopilotKit's own server in front of one.
import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotKit, useDefaultRenderTool, useFrontendTool, useHumanInTheLoop, useInterrupt } from "@copilotkit/react-core/v2";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const wanted = new URLSearchParams(location.search);
const where = wanted.has("runtime")
  ? { runtimeUrl: wanted.get("runtime"), agent: "default" }
  : { selfManagedAgents: { default: new HttpAgent({ url: wanted.get("agent") }) }, agent: "default" };

const Chat = ({ tell }) => {
  useFrontendTool({
    name: "get_place",
    description: "Where the user is",
    parameters: z.object({}),
    handler: async () => JSON.stringify({ city: "Paris" }),
  });
  useHumanInTheLoop({
    name: "confirm",
    description: "Asks the user",
    parameters: z.object({ what: z.string() }),
    render: ({ status, args, respond, result }) => (
      <div className="confirm" data-status={status}>
        {args.what}
        {respond && [true, false].map((yes) => (
          <button key={yes} onClick={() => respond(yes ? "yes" : "no")}>{yes ? "Approve" : "Deny"}</button>
        ))}
        {result && <samp>{String(result)}</samp>}
      </div>
    ),
  });
  useInterrupt({
    render: ({ resolve }) => (
      <div className="interrupt">
        {[true, false].map((yes) => (
          <button key={yes} onClick={() => resolve({ approved: yes })}>{yes ? "Approve" : "Deny"}</button>
        ))}
      </div>
    ),
  });
  useDefaultRenderTool({
    render: ({ name, status, result }) => (
      <div className="call" data-name={name} data-status={status}>{result && <samp>{String(result)}</samp>}</div>
    ),
  });
  return <CopilotChat onError={({ error }) => tell(error.message)} attachments={{ enabled: true, accept: "image/*" }} />;
};

const App = () => {
  const [wrong, tell] = useState("");
  return (
    <CopilotKit {...where} useSingleEndpoint={false} showDevConsole={false} enableInspector={false}>
      <Chat tell={tell} />
      {wrong && <p id="wrong">{wrong}</p>}
    </CopilotKit>
  );
};

createRoot(document.getElementById("root")).render(<App />);
