// Bundles the page: `node build.mjs FOLDER`.
import { build } from "esbuild";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [folder] = process.argv.slice(2);
await build({
  entryPoints: [fileURLToPath(new URL("chat.jsx", import.meta.url))],
  outfile: join(folder, "chat.js"),
  bundle: true,
  define: { "process.env.NODE_ENV": '"production"' },
  format: "esm",
  jsx: "automatic",
  logLevel: "error",
});
const page = '<!doctype html><meta charset="utf-8"><title>Chat</title><div id="root"></div><script type="module" src="chat.js"></script>';
writeFileSync(join(folder, "index.html"), page);
