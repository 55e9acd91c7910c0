// A small MCP server for the flows, on standard input and output. Its tools are read from a file for each list, so that a
// flow can change one behind its approval; `append` writes a line, and does not answer while there is a file `LOG.hold`,
// so that a flow can end Toolyard in the middle of the call.
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [toolsFile, logFile] = process.argv.slice(2);

// Without its tools there is nothing to serve: the process ends with what Node says about the file.
readFileSync(toolsFile, 'utf8');

const answer = (id, result) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);

const METHODS = {
  initialize: ({ id, params }) => answer(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'flows', version: '1.0.0' } }),
  ping: ({ id }) => answer(id, {}),
  'tools/list': ({ id }) => answer(id, { tools: JSON.parse(readFileSync(toolsFile, 'utf8')) }),
  'tools/call': ({ id, params }) => {
    const { text } = params.arguments;
    appendFileSync(logFile, `${text}\n`);
    if (!existsSync(`${logFile}.hold`)) answer(id, { content: [{ type: 'text', text: `kept ${text}` }] });
  },
};

createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line);
  const method = METHODS[message.method];
  if (method) method(message);
  else if (message.id !== undefined) process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id: message.id, error: { code: -32601, message: `there is no ${message.method}` } })}\n`);
}).on('close', () => process.exit(0));
