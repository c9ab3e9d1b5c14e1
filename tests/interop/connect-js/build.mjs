// Bundles a page from the source of its script on standard input: `node build.mjs FOLDER`.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [folder] = process.argv.slice(2);
await build({
  stdin: { contents: readFileSync(0, "utf-8"), loader: "jsx", resolveDir: fileURLToPath(new URL(".", import.meta.url)) },
  outfile: join(folder, "page.js"),
  bundle: true,
  define: { "process.env.NODE_ENV": '"production"' },
  format: "esm",
  jsx: "automatic",
  logLevel: "error",
});
const page = '<!doctype html><meta charset="utf-8"><title>Page</title><div id="root"></div><script type="module" src="page.js"></script>';
writeFileSync(join(folder, "index.html"), page);
