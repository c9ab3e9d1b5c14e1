// Bundles the page for one version of the AI SDK: `node build.mjs VERSION FOLDER`.
import { build } from "esbuild";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [version, folder] = process.argv.slice(2);
const react = fileURLToPath(import.meta.resolve(`react-${version}`));
const ai = dirname(createRequire(react).resolve("ai/package.json"));
await build({
  entryPoints: [fileURLToPath(new URL("chat.jsx", import.meta.url))],
  outfile: join(folder, "chat.js"),
  alias: { "@ai-sdk/react": react, ai },
  bundle: true,
  define: { "process.env.NODE_ENV": '"production"' },
  format: "esm",
  jsx: "automatic",
  logLevel: "error",
});
const page = '<!doctype html><meta charset="utf-8"><title>Chat</title><div id="root"></div><script type="module" src="chat.js"></script>';
writeFileSync(join(folder, "index.html"), page);
