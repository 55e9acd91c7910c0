// Short names for generated types that many pages use.

import type {
  ApprovalsAnswerParamsGrantScope,
  ApprovalsShowAnswerEffects,
  ApprovalsShowAnswerQuestion,
  GrantsListAnswerGrant,
  RunsDigestAnswer,
  RunsListAnswerRunSummary,
} from '../types/methods.ts';

export type RunRow = RunsListAnswerRunSummary;
export type Digest = RunsDigestAnswer;
export type Question = ApprovalsShowAnswerQuestion;
export type Effects = ApprovalsShowAnswerEffects;
export type GrantScope = ApprovalsAnswerParamsGrantScope;
export type Grant = GrantsListAnswerGrant;
