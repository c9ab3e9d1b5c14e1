// Frames of an event stream, or of JSON lines, with their exact text, grouped by read.

export async function* frames(response) {
  const isLines = response.headers.get("content-type")?.startsWith("application/x-ndjson");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let begun = []; // the pieces of an incomplete frame, so that each read is scanned once
  let held = ""; // a line end that may continue in the next read
  for (;;) {
    const { value, done } = await reader.read();
    let text = held + (value ?? "");
    const half = !done && text.endsWith("\r") ? "\r" : "";
    text = text.slice(0, text.length - half.length).replace(/\r\n?/g, "\n");
    const blocks = text.split(isLines ? "\n" : "\n\n");
    const rest = blocks.pop();
    if (blocks.length) {
      blocks[0] = begun.join("") + blocks[0];
      begun = [];
    }
    const open = !done && rest.endsWith("\n");
    begun.push(open ? rest.slice(0, -1) : rest);
    held = (open ? "\n" : "") + half;
    if (done && begun.join("").trim()) blocks.push(begun.join(""));
    if (blocks.length) yield blocks.filter((block) => block.trim()).map(isLines ? line : frame);
    if (done) return;
  }
}

function line(text) {
  return { text: `${text}\n`, data: text, event: null };
}

function frame(text) {
  const found = { text: `${text}\n\n`, data: null, event: null };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") found.data = found.data === null ? value : `${found.data}\n${value}`;
    else if (name === "event") found.event = value;
  }
  return found;
}
