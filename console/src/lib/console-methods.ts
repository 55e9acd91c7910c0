// Methods of the console that are not in the generated list, with the types of the console's protocol.

import type { Json, RunsListAnswerRunSummary, RunsListParams } from '../types/methods.ts';

export type RunRow = RunsListAnswerRunSummary & {
  agent?: string | null;
  door?: string | null;
  principal?: string | null;
  tools?: string[];
  calls?: number;
  failed?: number;
  changed?: number;
  waiting?: number;
};

export interface CallRow {
  n: number;
  callId: string;
  stepId: string;
  tool: string;
  attempt: number;
  iteration?: { index: number; itemName: string; itemValue: Json } | number | null;
  startedAt: string;
  endedAt?: string | null;
  durationMs?: number | null;
  status?: string | null;
  error?: { code: string; message: string } | null;
  args: { [key: string]: Json };
  changes: { kind: string; path: string }[];
  waitedMs?: number | null;
}

export interface Digest {
  since: string;
  until: string;
  runs: { total: number; succeeded: number; failed: number; cancelled: number; running: number; paused: number };
  files: { path: string; kind: string; runId: string; times: number }[];
  failures: { runId: string; title: string; at: string; code: string; message: string }[];
  expired: { id: string; tool: string; askedAt: string }[];
  truncated: boolean;
}

export interface Effects {
  sideEffectsObserved?: string[];
  created?: { path: string; kind: string }[];
  modified?: { path: string }[];
  deleted?: { path: string; kind: string; trashed?: boolean | null }[];
  renamed?: { from: string; to: string }[];
}

export interface QuestionAnswer {
  decision?: string | null;
  by?: string | null;
  client?: string | null;
  door?: string | null;
  at: string;
  reason: string;
  note?: string | null;
  grantId?: string | null;
}

export interface Question {
  id: string;
  kind: 'policy' | 'plugin' | 'exec';
  title: string;
  description: string;
  severity: string;
  tool: string;
  args: { [key: string]: Json };
  argsCut?: boolean;
  argsHash: string;
  preview: 'made' | 'none' | 'failed';
  diff?: string | null;
  diffCut?: boolean;
  effects?: Effects | null;
  problem?: string | null;
  rule: string;
  policyHash?: string | null;
  shown?: string | null;
  agent: string;
  session?: string | null;
  runId?: string | null;
  callId?: string | null;
  askedAt: string;
  expiresAt: string;
  waiting: boolean;
  paths?: string[];
  decisions: string[];
  scopes: string[];
  answer?: QuestionAnswer | null;
}

export type GrantScope = { kind: 'arguments'; argsHash?: string } | { kind: 'run'; runId?: string } | { kind: 'folder'; path: string } | { kind: 'tool' };

export interface Grant {
  id: string;
  agent: string;
  tool: string;
  scope: GrantScope;
  givenBy: string;
  door?: string | null;
  givenAt?: string | null;
  until?: string | null;
  approvalId?: string | null;
}

export interface ConsoleMethods {
  'approvals.list': { params: { known?: string[]; waitMs?: number }; answer: { approvals: Question[] } };
  'approvals.show': { params: { id: string }; answer: { approval: Question } };
  'approvals.answer': {
    params: { id: string; decision: string; shown?: string; note?: string; grant?: { scope: GrantScope; expiresInMs?: number } };
    answer: { applied: boolean; approval: Question };
  };
  'grants.list': { params: { agent?: string; tool?: string }; answer: { grants: Grant[] } };
  'grants.revoke': { params: { id: string }; answer: { id: string; revoked: boolean } };
  'runs.list': {
    params: RunsListParams & { agent?: string; tool?: string; door?: string; text?: string; from?: string; to?: string; counts?: boolean };
    answer: { runs: RunRow[]; next?: string | null; searchedTo?: string | null };
  };
  'runs.calls': {
    params: { runId: string; after?: number; limit?: number; failed?: boolean; tool?: string };
    answer: { calls: CallRow[]; next?: number | null; total: number; failed: number };
  };
  'runs.digest': { params: { since: string; until?: string }; answer: Digest };
  'runs.record': {
    params: { runId: string; from?: number; limit?: number };
    answer: {
      runId: string;
      frames: { seq: number; kind: number; kindName: string; payload: string; chain: string }[];
      total: number;
      next?: number | null;
      keys: { key: string; from: number; to?: number | null }[];
      genesis: string;
    };
  };
  'policy.explain': {
    params: { tool: string; args?: { [key: string]: Json }; agent?: string; door?: string; session?: string };
    answer: { decision: 'allow' | 'ask' | 'deny'; reason?: string | null; rule?: string | null; layers: Json[] };
  };
  'tools.search': {
    params: { query: string; limit?: number };
    answer: {
      query: string;
      hits: { name: string; title: string; score: number; parts: { [part: string]: number }; decision: string; reason?: string | null }[];
      hidden: number;
    };
  };
  'tools.savings': {
    params: { days?: number };
    answer: {
      days: { date: string; turns: number; shownBytes: number; allBytes: number; savedBytes: number }[];
      total: { turns: number; shownBytes: number; allBytes: number; savedBytes: number };
    };
  };
  'recall.why': {
    params: { corpus: 'notes' | 'memory' | 'tools'; query: string; expect: string };
    answer: {
      steps: { check: string; ok: boolean; detail: string }[];
      rank?: number | null;
      score?: number | null;
      parts?: { [part: string]: number } | null;
      threshold?: number | null;
      sentence: string;
    };
  };
  'console.subscribe': { params: { after?: { bootId: string; seq: number }; logs?: boolean }; answer: { bootId: string; seq: number; resumed: boolean } };
  'console.code': { params: { rights?: string; phone?: boolean }; answer: { url: string; expiresAt: string; rights: string } };
  'downloads.ticket': { params: { runId: string; form: string }; answer: { path: string; name: string; expiresAt: string } };
}
