// The server that `langgraphjs dev` starts, without its watchers: `server.mjs PORT FOLDER`. It stores its data in FOLDER.
import { startServer } from "@langchain/langgraph-api/server";

const [port, cwd] = process.argv.slice(2);
const graphs = { agent: `${import.meta.dirname}/graph.mjs:graph` };
await startServer({ port: Number(port), nWorkers: 4, host: "127.0.0.1", cwd, graphs });
