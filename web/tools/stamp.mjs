// Records what the bundle in dist/ was built from: dist.sha256 has the hash of the sources and of each built file. `./hocket lint` compares them,
// so that nobody changes one without the other.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const sources = ["index.html", "package.json", "package-lock.json", "vite.config.js", "public", "src"];

function filesOf(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => filesOf(join(path, name)));
}

const nameOf = (path) => relative(root, path).split(sep).join("/");
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

// Returns a hash of names and contents, in the order of the names.
function hashOf(paths) {
  const hash = createHash("sha256");
  for (const path of paths) hash.update(`${nameOf(path)}\0${sha(readFileSync(path))}\n`);
  return hash.digest("hex");
}

const sorted = (paths) => paths.sort((a, b) => compare(nameOf(a), nameOf(b)));
const built = sorted(filesOf(join(root, "dist")));
const lines = [`${hashOf(sorted(sources.flatMap((name) => filesOf(join(root, name)))))}  sources`, ...built.map((path) => `${sha(readFileSync(path))}  ${nameOf(path)}`)];
writeFileSync(join(root, "dist.sha256"), `${lines.join("\n")}\n`);
