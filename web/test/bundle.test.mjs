// The bundle in dist/ is what its source gives, byte by byte: built anew, beside it.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

function files(folder, below = "") {
  return readdirSync(join(folder, below))
    .flatMap((name) => {
      const path = join(below, name);
      return statSync(join(folder, path)).isDirectory() ? files(folder, path) : [path];
    })
    .sort();
}

const [major, minor] = process.versions.node.split(".").map(Number);
const fits = major > 20 || (major === 20 && minor >= 19);

test("the bundle is what its source gives", { skip: fits ? false : `Vite needs Node 20.19, this is ${process.versions.node}` }, async () => {
  const { build } = await import("vite");
  const out = mkdtempSync(join(tmpdir(), "hocket-page-"));
  try {
    await build({ root, logLevel: "error", build: { outDir: out, emptyOutDir: true } });
    assert.deepEqual(files(out), files(join(root, "dist")));
    for (const name of files(out)) assert.ok(readFileSync(join(out, name)).equals(readFileSync(join(root, "dist", name))), `${name} is another one: npm run build`);
  } finally {
    rmSync(out, { recursive: true });
  }
});
