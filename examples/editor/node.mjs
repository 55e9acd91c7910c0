// Plays an editor with one note open: a node of the Gateway that answers three tools. node node.mjs <ws url> <token>
const [url, token] = process.argv.slice(2);
if (!token) {
  console.error("usage: node node.mjs ws://127.0.0.1:18789 TOKEN");
  process.exit(2);
}

const note = { path: "Inbox.md", lines: ["# Inbox", "", "hello there"] };
const selected = { from: { line: 2, ch: 0 }, to: { line: 2, ch: 5 } };

const tools = {
  "editor.getActiveFilePath": () => ({ path: note.path }),
  "editor.getSelection": () => {
    const text = note.lines[selected.from.line].slice(selected.from.ch, selected.to.ch);
    return { text, isEmpty: text === "", range: selected, filePath: note.path, mode: "source" };
  },
  "editor.replaceSelection": ({ text }) => {
    if (selected.from.ch === selected.to.ch) throw new Error("nothing is selected");
    const line = note.lines[selected.from.line];
    note.lines[selected.from.line] = line.slice(0, selected.from.ch) + text + line.slice(selected.to.ch);
    selected.to = { line: selected.from.line, ch: selected.from.ch + text.length };
    console.log(note.lines.join("\n"));
    return { filePath: note.path, range: selected, insertedChars: text.length };
  },
};

const socket = new WebSocket(url);
let last = 0;
const request = (method, params) => socket.send(JSON.stringify({ type: "req", id: String(++last), method, params }));

function answer({ id, nodeId, command, paramsJSON }) {
  try {
    request("node.invoke.result", { id, nodeId, ok: true, payload: tools[command](JSON.parse(paramsJSON ?? "{}")) });
  } catch (error) {
    request("node.invoke.result", { id, nodeId, ok: false, error: { code: "PRECONDITION_FAILED", message: error.message } });
  }
}

socket.onmessage = ({ data }) => {
  const frame = JSON.parse(data);
  if (frame.event === "connect.challenge") {
    const client = { id: "node-host", displayName: "A small editor", version: "1.0.0", platform: process.platform, mode: "node" };
    const commands = Object.keys(tools);
    request("connect", { minProtocol: 4, maxProtocol: 4, client, role: "node", scopes: [], commands, auth: { token } });
  } else if (frame.event === "node.invoke.request") {
    answer(frame.payload);
  } else if (frame.type === "res" && frame.ok === false) {
    console.error(frame.error.message);
    process.exit(1);
  } else if (frame.payload?.type === "hello-ok") {
    console.log("connected; ask with: toolyard call editor.getSelection");
  }
};
socket.onclose = () => process.exit(0);
socket.onerror = () => {
  console.error(`${url} cannot be reached`);
  process.exit(1);
};
