// Toolyard's hooks and `connect` in a real Gemini CLI, on loopback and without a login: the Gemini API is generate.mjs.
// Usage: drive.mjs <toolyard> <gemini>
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { end, ownTools, packages, prove, rig as made } from '../agents/road.mjs';
import { serve } from './generate.mjs';

const [toolyard, gemini] = process.argv.slice(2);
const rig = made(toolyard, 'gemini');
const api = await serve();
Object.assign(rig.env, {
  GEMINI_CLI_HOME: rig.place('gemini'),
  GOOGLE_GEMINI_BASE_URL: api.url,
  GEMINI_API_KEY: 'not-a-real-key',
  GEMINI_DEFAULT_AUTH_TYPE: 'gemini-api-key',
  GEMINI_CLI_TRUST_WORKSPACE: 'true',
  GEMINI_CLI_TRUSTED_FOLDERS_PATH: join(rig.work, 'trusted.json'),
});
// It asks whether the folder of an extension is trusted, and there is no terminal to answer.
writeFileSync(rig.env.GEMINI_CLI_TRUSTED_FOLDERS_PATH, JSON.stringify({ [rig.work]: 'TRUST_FOLDER' }));
const settings = join(rig.env.GEMINI_CLI_HOME, '.gemini/settings.json');
mkdirSync(join(rig.env.GEMINI_CLI_HOME, '.gemini'));
writeFileSync(
  settings,
  '{\n  // a comment of the user\'s\n  "security": { "auth": { "selectedType": "gemini-api-key" } },\n  "privacy": { "usageStatisticsEnabled": false },\n  "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false }\n}\n',
);

// Its own prompt is off, which would refuse without a terminal: what is tested is that Toolyard decides.
const turn = (name, input) => rig.run(gemini, ['-m', 'gemini-2.5-flash', '--yolo', '-p', `CALL ${JSON.stringify({ name, input })}`]);
const agent = {
  client: 'gemini',
  files: [settings],
  install: [],
  lists: async () => {
    const listed = await rig.run(gemini, ['mcp', 'list']);
    return { ...listed, holds: /toolyard/.test(listed.out + listed.err) };
  },
  shell: (command) => turn('run_shell_command', { command }),
  write: (path, content) => turn('write_file', { file_path: path, content }),
  edit: (path, old, now) => turn('replace', { file_path: path, instruction: 'change it', old_string: old, new_string: now }),
  own: (name, content) => turn('mcp_toolyard_vault_createFile', { path: name, content }),
  steps: (folder) => [
    ['validates the extension', gemini, ['extensions', 'validate', folder], /successfully validated/],
    ['installs the extension', gemini, ['extensions', 'install', folder, '--consent', '--skip-settings'], /installed successfully/],
    ['lists the extension', gemini, ['extensions', 'list'], /toolyard[\s\S]*MCP servers/],
  ],
};
await prove(rig, agent);
await ownTools(rig, agent);
await packages(rig, agent);
await end(rig, api);
