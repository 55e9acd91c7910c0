// Short names for generated types that many pages use.

import type {
  ApprovalsAnswerParamsGrantScope,
  ApprovalsShowAnswerEffects,
  ApprovalsShowAnswerQuestion,
  GrantsListAnswerGrant,
  NotifyStatusAnswer,
  NotifyTestAnswerTestResult,
  RunsDigestAnswer,
  RunsListAnswerRunSummary,
  ToolsSavingsAnswerDaySavings,
} from '../types/methods.ts';

export type RunRow = RunsListAnswerRunSummary;
export type Digest = RunsDigestAnswer;
export type Question = ApprovalsShowAnswerQuestion;
export type Effects = ApprovalsShowAnswerEffects;
export type GrantScope = ApprovalsAnswerParamsGrantScope;
export type Grant = GrantsListAnswerGrant;
export type NotifyStatus = NotifyStatusAnswer;
export type NotifyChannel = NotifyStatusAnswer['channels'][number];
export type NotifyTested = NotifyTestAnswerTestResult;
export type SavedDay = ToolsSavingsAnswerDaySavings;
