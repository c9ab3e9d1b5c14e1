// CopilotKit's runtime in front of an agent of AG-UI: `node runtime.mjs PORT AGENT`. Prints a line when it listens.
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, InMemoryAgentRunner } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { createServer } from "node:http";

const [port, url] = process.argv.slice(2);
const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url }) }, runner: new InMemoryAgentRunner() });
const listener = createCopilotNodeListener({ runtime, basePath: "/api/copilotkit", cors: true });
createServer(listener).listen(Number(port), "127.0.0.1", () => console.log("ready"));
