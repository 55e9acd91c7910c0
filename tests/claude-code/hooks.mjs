// Toolyard's hooks and `connect` in a real Claude Code, on loopback and without a login: the Messages API is messages.mjs.
// Usage: hooks.mjs <toolyard> <claude>
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, ownTools, packages, prove, rig as made } from '../agents/road.mjs';
import { serve } from './messages.mjs';

const [toolyard, claude] = process.argv.slice(2);
const rig = made(toolyard, 'claude');
const api = await serve();
const folder = rig.place('config');
Object.assign(rig.env, {
  CLAUDE_CONFIG_DIR: folder,
  ANTHROPIC_BASE_URL: api.url,
  ANTHROPIC_API_KEY: 'not-a-real-key',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  DISABLE_AUTOUPDATER: '1',
  DISABLE_TELEMETRY: '1',
  DISABLE_ERROR_REPORTING: '1',
  ENABLE_TOOL_SEARCH: 'false', // every tool is in its first request
});
const settings = join(folder, 'settings.json');
writeFileSync(settings, '{\n  "cleanupPeriodDays": 9\n}\n');
writeFileSync(join(folder, '.claude.json'), '{"theme":"dark","mcpServers":{}}\n');

const turn = (...calls) => {
  const prompt = calls.map(([name, input]) => `CALL ${JSON.stringify({ name, input })}`).join('\n');
  return rig.run(claude, ['-p', prompt, '--model', 'claude-sonnet-4-5', '--allowedTools', 'Bash', 'Write', 'Edit', 'Read']);
};
const path = (name) => join(rig.project, name);
const agent = {
  client: 'claude',
  files: [settings],
  // Claude Code writes its own things into this one while it runs.
  connected: [join(folder, '.claude.json')],
  install: [],
  shell: (command) => turn(['Bash', { command }]),
  write: (name, content) => turn(['Write', { file_path: path(name), content }]),
  // Claude Code edits only what it has read in the same session.
  edit: (name, old, now) => turn(['Read', { file_path: path(name) }], ['Edit', { file_path: path(name), old_string: old, new_string: now }]),
  own: (name, content) => turn(['mcp__toolyard__vault_createFile', { path: name, content }]),
  steps: (folder_) => [
    ['validates the marketplace', claude, ['plugin', 'validate', folder_], /Validation passed/],
    ['validates the plugin', claude, ['plugin', 'validate', '--profile', 'directory', join(folder_, 'plugins/toolyard')], /Validation passed/],
    ['adds the marketplace', claude, ['plugin', 'marketplace', 'add', folder_], /Successfully added/],
    ['installs the plugin', claude, ['plugin', 'install', 'toolyard@toolyard'], /Successfully installed/],
    ['lists the plugin', claude, ['plugin', 'list'], /toolyard@toolyard[\s\S]*enabled/],
  ],
};
await prove(rig, agent);
await ownTools(rig, agent);
await packages(rig, agent);
await end(rig, api);
