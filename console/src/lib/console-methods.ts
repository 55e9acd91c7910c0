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

export interface Digest {
  since: string;
  until: string;
  total: number;
  runs: { [status: string]: number };
  files: { path: string; from?: string | null; kind: string; runId: string; times: number }[];
  filesTotal: number;
  failures: { runId: string; title: string; at?: string | null; error?: { code: string; message: string } | null }[];
  expired: { id: string; title: string; tool: string; askedAt: string; runId?: string | null }[];
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
    answer: { tool: string; agent: string; door: string; decision: 'allow' | 'ask' | 'deny'; reason?: string | null; rule?: string | null; riskLevel: string; hostPath: boolean };
  };
  'recall.why': {
    params: { corpus: 'notes' | 'memory' | 'tools'; query: string; expect: string };
    answer: {
      found: boolean;
      steps: { check: string; ok: boolean; detail: string }[];
      hits: { rank: number; id: string; score: number; parts: { name: string; value: number; raw?: number | null }[]; matched?: string[]; expected: boolean }[];
      rank?: number | null;
      sentence: string;
    };
  };
  'mcp.add': { params: { name: string; command?: string; args?: string[]; url?: string; sandbox?: boolean }; answer: Json };
  'mcp.remove': { params: { server: string }; answer: { removed: string } };
  'mcp.test': { params: { server: string }; answer: { ok: boolean; error?: { code: string; message: string; suggestion?: string | null } | null; log?: string | null } };
  'mcp.log': { params: { server: string }; answer: { server: string; log: string } };
  'logs.subscribe': { params: { cursor?: number }; answer: { subscriptionId: string; cursor: number } };
  'console.subscribe': { params: { after?: { bootId: string; seq: number }; }; answer: { bootId: string; seq: number; resumed: boolean } };
  'console.code': { params: { rights?: string; phone?: boolean }; answer: { url: string; expiresAt: string } };
  'downloads.ticket': { params: { runId: string; form: string }; answer: { path: string; name: string; expiresAt: string } };
}
