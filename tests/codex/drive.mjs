// Toolyard's hooks and `connect` in a real Codex, on loopback and without a login: the Responses API is responses.mjs.
// Usage: drive.mjs <toolyard> <codex>
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, ownTools, packages, prove, rig as made } from '../agents/road.mjs';
import { serve } from './responses.mjs';

const [toolyard, codex] = process.argv.slice(2);
const rig = made(toolyard, 'codex');
const api = await serve();
const folder = rig.place('codex');
rig.env.CODEX_HOME = folder;
const config = join(folder, 'config.toml');
// A model that Codex knows: it offers apply_patch only to those.
writeFileSync(
  config,
  `# a comment of the user's\nmodel = "gpt-5.5"\nmodel_provider = "scripted"\ncheck_for_update_on_startup = false\n
[model_providers.scripted]\nname = "scripted"\nbase_url = "${api.url}/v1"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n`,
);
writeFileSync(join(folder, 'hooks.json'), '{"hooks": {}}\n');

// The sandbox of Codex is off: what is tested is that Toolyard decides.
const turn = (call, ...more) => rig.run(codex, ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', ...more, `CALL ${JSON.stringify(call)}`]);
const patch = (body) => turn({ name: 'apply_patch', input: `*** Begin Patch\n${body}\n*** End Patch\n` });
const agent = {
  client: 'codex',
  files: [config, join(folder, 'hooks.json')],
  install: ['--trust'],
  lists: async () => {
    const listed = await rig.run(codex, ['mcp', 'list']);
    return { ...listed, holds: /toolyard/.test(listed.out) };
  },
  shell: (command) => turn({ name: 'exec_command', input: { cmd: command } }),
  write: (path, content) => patch(`*** Add File: ${path}\n+${content}`),
  edit: (path, old, now) => patch(`*** Update File: ${path}\n@@\n-${old}\n+${now}`),
  // A model that Codex does not know gets the tools of MCP servers in its first request.
  own: (name, content) => turn({ name: 'vault_createFile', namespace: 'mcp__toolyard', input: { path: name, content } }, '-c', 'model="scripted"'),
  steps: (folder) => [
    ['adds the marketplace', codex, ['plugin', 'marketplace', 'add', folder], /Added marketplace/],
    ['lists the plugin', codex, ['plugin', 'list'], /toolyard@toolyard/],
    ['installs the plugin', codex, ['plugin', 'add', 'toolyard@toolyard'], /Added plugin/],
    ['knows the server of the plugin', codex, ['mcp', 'list'], /toolyard/],
  ],
};
await prove(rig, agent);
await ownTools(rig, agent);
await packages(rig, agent);
await end(rig, api);
