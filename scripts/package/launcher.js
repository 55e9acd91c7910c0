#!/usr/bin/env node
// Starts the program of this platform with the same arguments, streams and signals.
"use strict";
const { spawn } = require("node:child_process");
const path = require("node:path");

const platform = `toolyard-${process.platform}-${process.arch}`;

function program() {
  try {
    return path.join(path.dirname(require.resolve(`${platform}/package.json`)), "bin", "toolyard");
  } catch {
    console.error(`toolyard: there is no program for this platform (${platform} is not installed).`);
    console.error("Install with optional dependencies (npm install --include=optional), or build from source.");
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`toolyard: the program cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    // Ends as the program did, so that a caller sees the signal.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code ?? 1);
  }
});
