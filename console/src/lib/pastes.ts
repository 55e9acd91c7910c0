// What to paste into a client so that it uses these tools.

export interface Paste {
  id: string;
  title: string;
  where: string;
  text: string;
  /** Recognizes the client's runs, by door and by the name that it gives itself. */
  door: string;
  name: RegExp | null;
}

/** `program` starts Toolyard, `home` is its home where it is not the default one, `origin` is the address of this page. */
export function pastes(program: string, home: string, origin: string): Paste[] {
  const options = home ? ['--home', home] : [];
  const args = JSON.stringify([...options, 'mcp']);
  const command = `${shellCommand(program, home)} mcp`;
  const json = (key: string, extra: Record<string, string> = {}): string =>
    JSON.stringify({ [key]: { toolyard: { ...extra, command: program, args: [...options, 'mcp'] } } }, null, 2);
  return [
    { id: 'claude', title: 'Claude Code', where: 'Paste in a terminal, in the folder where you use it.', text: `claude mcp add toolyard -- ${command}`, door: 'mcp', name: /claude/i },
    { id: 'codex', title: 'Codex', where: 'Add to ~/.codex/config.toml.', text: `[mcp_servers.toolyard]\ncommand = ${JSON.stringify(program)}\nargs = ${args}`, door: 'mcp', name: /codex/i },
    { id: 'openclaw', title: 'OpenClaw', where: 'Give its client this gateway, and the token that is in this file.', text: `gateway  ${origin.replace(/^http/, 'ws')}\ntoken    ${home || '~/.toolyard'}/state/token`, door: 'gateway', name: null },
    { id: 'gemini', title: 'Gemini CLI', where: 'Paste in a terminal.', text: `gemini mcp add toolyard ${command}`, door: 'mcp', name: /gemini/i },
    { id: 'cursor', title: 'Cursor', where: 'Put into ~/.cursor/mcp.json.', text: json('mcpServers'), door: 'mcp', name: /cursor/i },
    { id: 'vscode', title: 'VS Code', where: 'Put into .vscode/mcp.json of the workspace.', text: json('servers', { type: 'stdio' }), door: 'mcp', name: /vs ?code|visual studio/i },
    { id: 'any', title: 'Any MCP client', where: `Streamable HTTP. The bearer token is in ${home || '~/.toolyard'}/state/token.`, text: `${origin}/mcp`, door: 'mcp', name: null },
  ];
}

/** How a shell calls Toolyard. */
export function shellCommand(program: string, home: string): string {
  return [program, ...(home ? ['--home', home] : [])].map(quote).join(' ');
}

function quote(text: string): string {
  return /^[\w./~-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The home to name in a command; empty for the default one. */
export function homeOption(home: string): string {
  return /\/\.toolyard\/?$/.test(home) ? '' : home;
}
