// What a failed call says: a code, a sentence, what to do.

export interface ProblemShape {
  code: string;
  message: string;
  suggestion?: string | undefined;
  retryable?: boolean | undefined;
}

export class Problem extends Error {
  readonly code: string;
  readonly suggestion: string | undefined;
  readonly retryable: boolean;

  constructor(shape: ProblemShape) {
    super(shape.message);
    this.code = shape.code;
    this.suggestion = shape.suggestion;
    this.retryable = shape.retryable ?? false;
  }

  shape(): ProblemShape {
    return { code: this.code, message: this.message, suggestion: this.suggestion, retryable: this.retryable };
  }
}

export function offline(): Problem {
  return new Problem({
    code: 'OFFLINE',
    message: 'This browser is not connected to Toolyard.',
    suggestion: 'Wait for the connection. Nothing was sent, and nothing is queued.',
    retryable: true,
  });
}

/** Any thrown value as a problem that can be shown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem({ code: 'INTERNAL_ERROR', message: error instanceof Error ? error.message : String(error), retryable: true });
}

/** A problem with a run. An address that names no run, or is no id at all, is the same to whoever followed a link. */
export function runProblem(error: unknown): Problem {
  const problem = asProblem(error);
  const isUnknown = problem.code === 'NOT_FOUND' || (problem.code === 'INVALID_REQUEST' && problem.message.includes('/runId'));
  return isUnknown ? new Problem({ code: 'NOT_FOUND', message: 'There is no run with this id.', suggestion: 'It may belong to another home, or its record was removed. The list of runs has what there is.' }) : problem;
}
