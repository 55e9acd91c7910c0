// What a question asks, in one sentence, and what answers it offers.

import type { GrantScope, Question } from './console-methods.ts';
import { parseDiff, summary, type FileDiff } from './diff.ts';
import { splitPath } from './text.ts';

/** The verb of a call, for "May it VERB PATH?". The tool's own name always stands beside the sentence. */
const VERBS: [RegExp, string][] = [
  [/^(exec|commands?)\b|commands\.run$/i, 'run'],
  [/rename|move/i, 'rename'],
  [/patch|edit|replace|insert|append|prepend/i, 'change'],
  [/delete|remove|trash|forget/i, 'delete'],
  [/create|write|store|save|add/i, 'write'],
  [/read|get|fetch|search|list|find/i, 'read'],
  [/send|publish|post/i, 'send'],
];

export interface Sentence {
  verb: string;
  /** What it is done to: a path, or the tool when no path is known. */
  object: string;
  objectIsTool: boolean;
  folder: string;
}

export function sentence(question: Question): Sentence {
  const path = question.paths?.[0] ?? '';
  if (question.tool === 'plans.run') return { verb: 'run the plan', object: String(question.args.goal ?? question.title), objectIsTool: false, folder: '' };
  if (question.kind === 'exec') return { verb: 'run', object: command(question), objectIsTool: false, folder: '' };
  const effects = question.effects;
  const verb = effects?.deleted?.length ? 'delete'
    : effects?.renamed?.length ? 'rename'
    : effects?.created?.length && !effects.modified?.length ? 'create'
    : effects?.modified?.length ? 'change'
    : VERBS.find(([pattern]) => pattern.test(question.tool))?.[1];
  if (!verb || !path) return { verb: 'call', object: question.tool, objectIsTool: true, folder: '' };
  const { folder, name } = splitPath(path);
  return { verb, object: name, objectIsTool: false, folder };
}

function command(question: Question): string {
  const given = question.args.command ?? question.args.commandText ?? question.args.argv;
  if (Array.isArray(given)) return given.map(String).join(' ');
  return given === undefined || given === null ? question.title : String(given);
}

export function files(question: Question): FileDiff[] {
  return question.diff ? parseDiff(question.diff) : [];
}

/** "Adds 2 lines, changes 1." or what else is known of the effects. */
export function effectSentence(question: Question): string {
  const said = summary(files(question));
  if (said) return said;
  const effects = question.effects;
  if (!effects) return '';
  const parts: string[] = [];
  const many = (list: unknown[] | undefined, word: string): void => {
    if (list?.length) parts.push(`${word} ${list.length} ${list.length === 1 ? 'file' : 'files'}`);
  };
  many(effects.created, 'creates');
  many(effects.modified, 'changes');
  many(effects.deleted, 'deletes');
  many(effects.renamed, 'renames');
  const text = parts.join(', ');
  return text ? text[0]?.toUpperCase() + text.slice(1) + '.' : '';
}

export interface Choice {
  id: 'once' | 'hour' | 'run' | 'folder';
  label: string;
  /** The label of the button when this is chosen. */
  button: string;
  decision: 'allow-once' | 'allow-always';
  grant?: { scope: GrantScope; expiresInMs?: number };
  hint: string;
}

export const HOUR = 3_600_000;

/** The answers that allow, the narrowest first. Only scopes that the server offers for this question are shown. */
export function choices(question: Question, hourEnds: string): Choice[] {
  const who = question.agent;
  const found: Choice[] = [{ id: 'once', label: 'Once', button: 'Allow once', decision: 'allow-once', hint: 'Only this call. Nothing is remembered.' }];
  if (!question.decisions.includes('allow-always')) return found;
  const folder = splitPath(question.paths?.[0] ?? '').folder.replace(/\/$/, '');
  if (question.scopes.includes('tool')) {
    found.push({
      id: 'hour', label: '1 h', button: 'Allow for 1 h', decision: 'allow-always', grant: { scope: { kind: 'tool' }, expiresInMs: HOUR },
      hint: `Every call of ${question.tool} by ${who} until ${hourEnds}.`,
    });
  }
  if (question.scopes.includes('run') && question.runId) {
    found.push({ id: 'run', label: 'This run', button: 'Allow this run', decision: 'allow-always', grant: { scope: { kind: 'run' } }, hint: `Calls of ${question.tool} in this run, until it ends.` });
  }
  if (question.scopes.includes('folder') && folder) {
    found.push({
      id: 'folder', label: 'This folder', button: 'Allow this folder', decision: 'allow-always', grant: { scope: { kind: 'folder', path: folder } },
      hint: `Calls of ${question.tool} by ${who} in ${folder}/ until you revoke it.`,
    });
  }
  return found;
}

/** Questions of the same agent, tool and rule. */
export function alike(question: Question, all: Question[]): Question[] {
  return all.filter((each) => each.id !== question.id && each.agent === question.agent && each.tool === question.tool && each.rule === question.rule);
}
