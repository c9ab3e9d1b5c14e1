// An event stream as it comes: frames with their text as it stood on the wire, in the reads in which they came.

export async function* frames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    // A line end that is cut in two is whole with the next read.
    rest += value ?? "";
    const held = !done && rest.endsWith("\r");
    const blocks = (held ? rest.slice(0, -1) : rest).replace(/\r\n?/g, "\n").split("\n\n");
    rest = blocks.pop() + (held ? "\r" : "");
    if (done && rest.trim()) blocks.push(rest);
    if (blocks.length) yield blocks.filter((block) => block.trim()).map(frame);
    if (done) return;
  }
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
