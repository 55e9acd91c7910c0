// What the console asks about notes and memories, through the methods and tools that agents use.

import { hub } from './hub.svelte.ts';
import { Problem } from './problem.ts';
import { valueAt } from './settings.ts';
import type { Json } from '../types/methods.ts';

export interface NotesStatus {
  status: 'healthy' | 'degraded' | 'unavailable';
  data: {
    total_docs: number;
    total_chunks: number;
    last_sync: string | null;
    unindexed_files: number;
    files?: { indexed: number; empty: number; skipped: number; failed: number; unembedded_chunks: number };
    active_job: { id: string; mode: string; progress: number; done_files: number; total_files: number } | null;
    last_job: { state: string; mode: string; errors: { file: string; message: string }[]; error_count: number; message: string | null; ended_at: string | null; duration_ms: number } | null;
  } | null;
  error: { code: string; message: string; suggestion?: string } | null;
}

interface Part {
  raw: number | null;
  part: number;
  weight: number;
}

export interface NoteHit {
  source_file: string;
  title: string;
  score: number;
  snippet: string;
  section: string | null;
  kind: string;
  explain?: { full_text: Part; vector: Part; links: Part; matched_terms: string[] } | null;
}

/** Calls a tool as this person; what a tool says about its failure is thrown. */
export async function tool<T>(name: string, args: { [key: string]: Json }): Promise<T> {
  const { result } = await hub.call('tools.call', { name, args });
  if (!result.ok || !result.data) throw new Problem({ code: result.error?.code ?? 'INTERNAL_ERROR', message: result.error?.message ?? `${name} failed`, suggestion: result.error?.suggestion ?? undefined });
  return result.data as unknown as T;
}

export const notesStatus = (): Promise<NotesStatus> => tool<NotesStatus>('obsidian_rag_status', {});

/** Files of the vault in one state, as the index has them. */
export type FileState = 'indexed' | 'empty' | 'skipped' | 'failed' | 'all';

export interface NoteFiles {
  total: number;
  offset: number;
  files: { path: string; state: string; reason?: string; chunks: number }[];
}

export async function noteFiles(state: FileState, offset: number, limit: number): Promise<NoteFiles> {
  const answer = await tool<{ data: { file_list?: NoteFiles } | null }>('obsidian_rag_status', { files: state, offset, limit });
  return answer.data?.file_list ?? { total: 0, offset, files: [] };
}

/** Brings the index up to date, and waits for the end of the job for at most this long. */
export async function indexNotes(waitMs: number): Promise<void> {
  const begun = await tool<{ data: { job_id?: string } | null }>('obsidian_rag_index', { mode: 'sync' });
  const job = begun.data?.job_id;
  if (job) await tool('obsidian_rag_status', { job_id: job, wait_ms: waitMs });
}

export async function searchNotes(query: string, most: number): Promise<{ hits: NoteHit[]; problem: Problem | null }> {
  const answer = await tool<{ data: { results: NoteHit[] } | null; error: NotesStatus['error'] }>('obsidian_rag_search', { query, max_results: most, explain: true });
  return { hits: answer.data?.results ?? [], problem: answer.error ? new Problem({ code: answer.error.code, message: answer.error.message, suggestion: answer.error.suggestion }) : null };
}

/** The parts of a hit's score, as the bars show them. */
export function parts(hit: NoteHit): { [part: string]: number } {
  const explain = hit.explain;
  if (!explain) return { score: hit.score };
  return { words: explain.full_text.part * explain.full_text.weight, meaning: explain.vector.part * explain.vector.weight, links: explain.links.part * explain.links.weight };
}

export interface Memory {
  uri: string;
  category: string;
  name: string;
  abstract: string;
}

/** A request to the context store's own interface. */
export async function store<T>(method: string, path: string, body?: Json): Promise<T> {
  const answer = (await hub.call('context.request', { method, path, ...(body === undefined ? {} : { body }) })) as { status?: string; result?: T; error?: { code: string; message: string } | null } | T;
  if (answer !== null && typeof answer === 'object' && 'error' in answer && answer.error) throw new Problem({ code: answer.error.code, message: answer.error.message });
  if (answer !== null && typeof answer === 'object' && 'result' in answer) return answer.result as T;
  return answer as T;
}

interface Entry {
  uri: string;
  isDir?: boolean;
  abstract?: string;
  name?: string;
}

export async function memories(): Promise<Memory[]> {
  const rows = await store<Entry[]>('GET', `/api/v1/fs/ls?uri=${encodeURIComponent('viking://~/memories')}&recursive=true&limit=1000&abs_limit=400`);
  return rows.filter((row) => row.isDir !== true && row.uri.endsWith('.md') && !/\/\.(abstract|overview)\.md$/.test(row.uri)).map((row) => {
    const tail = row.uri.slice(row.uri.indexOf('/memories/') + '/memories/'.length).split('/');
    return { uri: row.uri, category: tail.length > 1 ? (tail[0] ?? '') : 'other', name: (tail.at(-1) ?? '').replace(/\.md$/, ''), abstract: row.abstract ?? '' };
  });
}

/** A memory as it was kept: what it says, who said it, when, and in which session. */
export interface KeptMemory {
  text: string;
  speaker?: string;
  role?: 'user' | 'assistant';
  time?: string;
  source?: string;
  created_at: string;
  updated_at: string;
  /** Whether somebody asked to remember it. */
  stated: boolean;
  mentions: number;
}

export const readMemory = (uri: string): Promise<KeptMemory> => store<KeptMemory>('GET', `/api/v1/content/memory?uri=${encodeURIComponent(uri)}`);

/** The session that a memory comes from, by the address of its archive. */
export function sessionOf(source: string): string {
  return /\/sessions\/([^/]+)/.exec(source)?.[1] ?? '';
}
export const writeMemory = (uri: string, content: string): Promise<unknown> => store('POST', '/api/v1/content/write', { uri, content });
export const forgetMemory = (uri: string): Promise<unknown> => store('DELETE', `/api/v1/fs?uri=${encodeURIComponent(uri)}`);

export interface TraceRow {
  traceId: string;
  source: string;
  ts: number;
  query: string;
  raw: Json;
}

export async function traces(): Promise<TraceRow[]> {
  const answer = await store<{ entries?: { [key: string]: Json }[] }>('GET', '/api/openviking/recall-traces?limit=100');
  return (answer.entries ?? []).map((entry) => ({
    traceId: String(entry.traceId ?? entry.id ?? ''),
    source: String(entry.source ?? ''),
    ts: typeof entry.ts === 'number' ? entry.ts : typeof entry.timestamp === 'number' ? entry.timestamp : Date.parse(String(entry.ts ?? entry.timestamp ?? entry.at ?? '')),
    query: String(entry.query ?? entry.queryPreview ?? ''),
    raw: entry as Json,
  }));
}

/** A hit of a recall, with what its score is made of. */
export interface ScoredHit {
  uri: string;
  score: number;
  parts: { [part: string]: number };
  text: string;
}

interface TraceEntry {
  query: string;
  threshold: number | null;
  hits: ScoredHit[];
}

interface RawTrace {
  trigger?: { query?: string };
  searches?: { scoreThreshold?: number; results?: { uri: string; score: number; level?: number; abstractPreview?: string; parts?: { [part: string]: number } | null }[] }[];
}

/** Only whole memories are recalled; folders' descriptions are found beside them and left out. */
const WHOLE = 2;

/** The hits of a trace, the best first, with their parts in three: words, meaning, and what else counted. */
export function hitsOf(raw: Json): TraceEntry {
  const trace = (raw ?? {}) as RawTrace;
  const found = new Map<string, ScoredHit>();
  for (const each of (trace.searches ?? []).flatMap((search) => search.results ?? [])) {
    if (each.level !== undefined && each.level !== WHOLE) continue;
    const { words = 0, meaning = 0, ...rest } = each.parts ?? {};
    const { window: _window, coverage: _coverage, ...bonus } = rest;
    const other = Object.values(bonus).reduce((sum, value) => sum + Math.max(0, value), 0);
    const known = found.get(each.uri);
    if (!known || known.score < each.score) found.set(each.uri, { uri: each.uri, score: each.score, parts: { words, meaning: Math.max(0, meaning), other }, text: each.abstractPreview ?? '' });
  }
  return { query: trace.trigger?.query ?? '', threshold: trace.searches?.[0]?.scoreThreshold ?? null, hits: [...found.values()].sort((a, b) => b.score - a.score) };
}

/** What the last recall found, with the parts of each score. */
export async function lastRecall(): Promise<TraceEntry> {
  const answer = await tool<{ details: { entries: Json[] } }>('ov_recall_trace', { limit: 1 });
  return hitsOf(answer.details.entries[0] ?? null);
}

/** Recalls as an agent does, but shows also what is below the threshold. */
export async function recallMemories(query: string): Promise<ScoredHit[]> {
  await tool('memory_recall', { query, scoreThreshold: 0 });
  const { hits } = await lastRecall();
  return hits;
}

/** The score that a memory needs to be recalled. */
export async function recallThreshold(): Promise<number> {
  const value = valueAt((await hub.call('config.get', {})).config, 'context.recallScoreThreshold');
  return typeof value === 'number' ? value : 0;
}
