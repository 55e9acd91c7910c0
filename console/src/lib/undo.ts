// What taking a run back would do. The server makes the plan of inverse calls; this finds which of them meet a file that
// somebody changed since, and makes the plan of those that are ticked.

import type { PlansUndoAnswerActionPlan, PlansUndoAnswerStep, PlansDryRunAnswer } from '../types/methods.ts';

export type Step = PlansUndoAnswerStep;
export type Plan = PlansUndoAnswerActionPlan;

/** A file that is not as the run left it. The server names two etags, which tell a reader nothing. */
const CHANGED = 'It is not as this run left it.';

/** The path that an inverse call is about. */
export function pathOf(step: Step): string {
  for (const key of ['path', 'toPath', 'fromPath', 'uri', 'name', 'id']) {
    const value = step.args[key];
    if (typeof value === 'string') return value;
  }
  return step.tool;
}

/** A plan of some steps of another, in the same order. `forced` steps lose the guard that compares the file's etag. */
export function part(plan: Plan, keep: (step: Step) => boolean, forced: ReadonlySet<string>): Plan {
  const steps: Step[] = [];
  for (const step of plan.steps) {
    if (!keep(step)) continue;
    const before = steps.at(-1);
    steps.push({ ...step, args: forced.has(step.id) ? unguarded(step.args) : step.args, dependsOn: before ? [before.id] : [] });
  }
  return { ...plan, steps };
}

function unguarded(args: Step['args']): Step['args'] {
  const { expectedEtag: _guard, ...rest } = args;
  return rest;
}

/** The first step of a dry run that met a changed file, with what the server said; null when none did. */
export function conflict(report: Pick<PlansDryRunAnswer, 'steps'>): { id: string; message: string } | null {
  for (const step of report.steps) {
    if (step.status === 'error' && step.error) return { id: step.id, message: step.error.code === 'CONFLICT' ? CHANGED : step.error.message };
  }
  return null;
}
