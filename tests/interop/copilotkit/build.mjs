// Bundles the page: `node build.mjs FOLDER`.
import { build } from "esbuild";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [folder] = process.argv.slice(2);
await build({
  entryPoints: [fileURLToPath(new URL("chat.jsx", import.meta.url))],
  outdir: folder,
  bundle: true,
  splitting: true,
  define: { "process.env.NODE_ENV": '"production"' },
  format: "esm",
  jsx: "automatic",
  loader: { ".ttf": "empty", ".woff": "empty", ".woff2": "empty" },
  logLevel: "error",
});
const head = '<!doctype html><meta charset="utf-8"><title>Chat</title><link rel="stylesheet" href="chat.css">';
writeFileSync(join(folder, "index.html"), `${head}<div id="root" style="height: 100vh"></div><script type="module" src="chat.js"></script>`);
