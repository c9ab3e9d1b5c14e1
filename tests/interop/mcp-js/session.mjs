// One client with an SDK of MCP for JavaScript: `session.mjs 1 URL`, or `session.mjs 2 MODE URL`. Prints what it saw.
const [generation, ...rest] = process.argv.slice(2)
const url = new URL(rest.at(-1))
const library = generation === "1"
  ? {
      ...(await import("@modelcontextprotocol/sdk/client/index.js")),
      ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      ...(await import("@modelcontextprotocol/sdk/types.js")),
    }
  : await import("@modelcontextprotocol/client")
const options = { capabilities: { elicitation: { form: {} } } }
if (generation === "2") options.versionNegotiation = { mode: rest[0] }
const client = new library.Client({ name: "judge", version: "1" }, options)
const seen = { asked: [] }
client.setRequestHandler(generation === "1" ? library.ElicitRequestSchema : "elicitation/create", async (request) => {
  seen.asked.push(request.params.message)
  return { action: "accept", content: { approved: true } }
})
await client.connect(new library.StreamableHTTPClientTransport(url))
const call = (prompt, more = {}, options = {}) => {
  const params = { name: "ask_agent", arguments: { prompt, ...more } }
  return generation === "1" ? client.callTool(params, undefined, options) : client.callTool(params, options)
}
const texts = (result) => result.content.filter((part) => part.type === "text").map((part) => part.text)
seen.tools = (await client.listTools()).tools.map((tool) => tool.name)
const pieces = []
const answer = await call("say one two", {}, { onprogress: (progress) => pieces.push(progress.message) })
seen.answer = [answer.isError ?? false, texts(answer)[0], pieces.join("")]
seen.answered = texts(await call("approve"))[0]
const known = texts(await call("first"))[1].replace("conversation: ", "")
seen.again = texts(await call("again", { conversation: known }))[0]
const failed = await call("boom")
seen.failed = [failed.isError, texts(failed)[0].split(":")[0]]
seen.media = (await call("media")).content.map((part) => part.type)
try {
  await client.callTool({ name: "nope", arguments: {} })
} catch (error) {
  seen.unknown = error.message
}
const stop = new AbortController()
setTimeout(() => stop.abort(), 300)
await call("slow sdk", {}, { signal: stop.signal }).catch(() => {})
await new Promise((done) => setTimeout(done, 200))
await client.close()
console.log(JSON.stringify(seen))
