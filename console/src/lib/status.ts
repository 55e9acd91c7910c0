// Status is a shape, a word and a colour, everywhere the same three.

export interface Look {
  icon: string;
  word: string;
  tone: 'ok' | 'bad' | 'warn' | 'ask' | 'run' | '';
  spin?: boolean;
}

export interface RunState {
  status: string;
  /** Open questions of the run. */
  waiting?: number | undefined;
  /** Whether a call's fate is unknown. */
  doubt?: boolean | undefined;
}

export function runLook(run: RunState): Look {
  if (run.waiting && run.status !== 'finished' && run.status !== 'failed' && run.status !== 'cancelled') return { icon: 'st-ask', word: 'Asks you', tone: 'ask' };
  switch (run.status) {
    case 'pending': return { icon: 'st-wait', word: 'Waiting', tone: '' };
    case 'running': return { icon: 'st-run', word: 'Running', tone: 'run', spin: true };
    case 'paused': return run.doubt ? { icon: 'st-pause', word: 'In doubt', tone: 'warn' } : { icon: 'st-pause', word: 'Paused', tone: 'warn' };
    case 'finished': return { icon: 'st-ok', word: 'Finished', tone: 'ok' };
    case 'failed': return { icon: 'st-bad', word: 'Failed', tone: 'bad' };
    case 'cancelled': return { icon: 'st-cancel', word: 'Cancelled', tone: '' };
    default: return { icon: 'st-off', word: run.status, tone: '' };
  }
}

export function decisionLook(decision: string): Look {
  switch (decision) {
    case 'allow': return { icon: 'st-ok', word: 'Allowed', tone: 'ok' };
    case 'ask': return { icon: 'st-ask', word: 'Asks', tone: 'ask' };
    case 'deny': return { icon: 'st-deny', word: 'Denied', tone: 'bad' };
    default: return { icon: 'st-off', word: decision, tone: '' };
  }
}

export function resultLook(status: string | null | undefined): Look {
  switch (status) {
    case 'ok': return { icon: 'st-ok', word: 'Finished', tone: 'ok' };
    case 'error': return { icon: 'st-bad', word: 'Failed', tone: 'bad' };
    case 'timeout': return { icon: 'st-bad', word: 'Timed out', tone: 'bad' };
    case 'cancelled': return { icon: 'st-cancel', word: 'Cancelled', tone: '' };
    case 'skipped': return { icon: 'st-skip', word: 'Skipped', tone: '' };
    default: return { icon: 'st-run', word: 'Running', tone: 'run', spin: true };
  }
}
