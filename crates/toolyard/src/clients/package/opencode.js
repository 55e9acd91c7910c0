// Toolyard's plugin for opencode: every call of opencode's tools is decided about and recorded by the running Toolyard.
// A call that is refused, or that nobody answers for, throws, and opencode does not run the tool.
import { spawn } from 'node:child_process';

const COMMAND = __COMMAND__;

// Hands an event to Toolyard. Resolves to the reason of a refusal, or to undefined.
const event = (payload) =>
  new Promise((resolve) => {
    const hook = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ['pipe', 'ignore', 'pipe'] });
    let reason = '';
    hook.stderr.on('data', (part) => (reason += part));
    hook.on('error', (error) => resolve(`Toolyard does not answer: ${error.message}`));
    hook.on('close', (code) => resolve(code === 0 ? undefined : reason.trim() || 'Toolyard did not answer: refused'));
    // A hook that ended early has its reason on standard error.
    hook.stdin.on('error', () => undefined);
    hook.stdin.end(JSON.stringify(payload));
  });

export const Toolyard = async ({ directory }) => {
  const call = (name, { tool, sessionID, callID }, args, more) => ({
    session_id: sessionID, cwd: directory, hook_event_name: name, tool_name: tool, tool_input: args ?? {}, tool_use_id: callID, ...more,
  });
  return {
    'tool.execute.before': async (input, output) => {
      const reason = await event(call('PreToolUse', input, output.args));
      if (reason) throw new Error(reason);
    },
    'tool.execute.after': async (input, output) => {
      await event(call('PostToolUse', input, input.args, { tool_response: String(output?.output ?? '') }));
    },
    event: async ({ event: seen }) => {
      if (seen.type !== 'session.idle') return;
      await event({ session_id: seen.properties.sessionID, cwd: directory, hook_event_name: 'Stop' });
    },
  };
};
