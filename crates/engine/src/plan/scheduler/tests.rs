//! Tests of the scheduler, with fixed and with random events.

use super::*;
use proptest::prelude::*;
use toolyard_protocol::ErrorCode;
use uuid::Uuid;

fn run_id() -> RunId {
    RunId::from_uuid(Uuid::from_u128(1))
}

fn shape(depends_on: &[usize]) -> StepShape {
    StepShape {
        depends_on: depends_on.to_vec(),
        read_only: false,
        foreach: None,
        on_error: OnError::Stop,
        max_attempts: 1,
        backoff_ms: 10,
    }
}

fn scheduler(shapes: Vec<StepShape>, max: u32) -> Scheduler {
    let ids = (0..shapes.len()).map(|i| StepId::parse(&format!("s{i}")).unwrap()).collect();
    Scheduler::new(run_id(), ids, shapes, max).unwrap()
}

const FAIL: Outcome = Outcome::Failed { code: ErrorCode::InternalError, retryable: None, retry_after_ms: None };

#[allow(clippy::type_complexity)] // everything a test may want to look at
/// Drives a scheduler to its end; `outcome` decides each call. Returns the calls in order, the ends, the run's end.
fn drive(
    s: &mut Scheduler,
    counts: &dyn Fn(usize) -> u32,
    outcome: &mut dyn FnMut(usize, u32, u32) -> Outcome,
    pick: &mut dyn FnMut(usize) -> usize,
) -> (Vec<(usize, u32, u32)>, HashMap<usize, StepState>, RunEnd, usize) {
    let (mut calls, mut ends, mut end, mut widest) = (Vec::new(), HashMap::new(), None, 0);
    let mut open: Vec<Event> = Vec::new();
    let mut pending = s.apply(Event::Start);
    for _ in 0..100_000 {
        let mut in_flight = 0;
        for action in std::mem::take(&mut pending) {
            match action {
                Action::Expand { step } => open.push(Event::Expanded { step, count: counts(step) }),
                Action::Call { step, index, attempt } => {
                    calls.push((step, index, attempt));
                    open.push(Event::Settled { step, index, outcome: outcome(step, index, attempt) });
                }
                Action::Wait { step, index, .. } => open.push(Event::TimerFired { step, index }),
                Action::Ended { step, state } => {
                    assert!(ends.insert(step, state).is_none(), "step {step} ended twice")
                }
                Action::Done(e) => assert!(end.replace(e).is_none(), "done twice"),
            }
        }
        for e in &open {
            in_flight += usize::from(matches!(e, Event::Settled { .. }));
        }
        widest = widest.max(in_flight);
        if open.is_empty() {
            break;
        }
        let at = pick(open.len());
        pending = s.apply(open.swap_remove(at));
    }
    (calls, ends, end.expect("the run ends"), widest)
}

#[toolyard_shows::shows("002-1-02", "002-1-04")]
#[test]
fn a_dependency_later_in_the_list_runs_first_and_dependents_of_failures_are_skipped() {
    let mut shapes = vec![shape(&[2]), shape(&[]), shape(&[]), shape(&[1])];
    shapes[1].on_error = OnError::Skip;
    let (calls, ends, end, _) = drive(
        &mut scheduler(shapes, 4),
        &|_| 0,
        &mut |step, _, _| if step == 1 { FAIL } else { Outcome::Ok },
        &mut |_| 0,
    );
    assert_eq!(calls.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 2, 0]);
    assert_eq!(ends[&3], StepState::Skipped { because: 1 });
    assert_eq!(ends[&0], StepState::Ok);
    assert_eq!(end, RunEnd::Finished);
}

#[test]
fn stop_is_the_default_and_nothing_runs_after_it() {
    let (calls, ends, end, _) = drive(
        &mut scheduler(vec![shape(&[]), shape(&[]), shape(&[])], 4),
        &|_| 0,
        &mut |s, _, _| if s == 1 { FAIL } else { Outcome::Ok },
        &mut |_| 0,
    );
    assert_eq!(calls.len(), 2);
    assert_eq!(ends[&2], StepState::Skipped { because: 1 });
    assert_eq!(end, RunEnd::Failed { step: 1 });
}

#[toolyard_shows::shows("000-4-03", "002-1-05", "002-3.2-16", "002-5-09", "002-5-10", "002-5-12")]
#[test]
fn retries_stop_at_the_limit_and_never_happen_for_codes_that_cannot_improve() {
    let mut one = shape(&[]);
    one.on_error = OnError::Retry;
    one.max_attempts = 3;
    let (calls, _, end, _) = drive(&mut scheduler(vec![one.clone()], 1), &|_| 0, &mut |_, _, _| FAIL, &mut |_| 0);
    assert_eq!(calls, [(0, 0, 1), (0, 0, 2), (0, 0, 3)]);
    assert_eq!(end, RunEnd::Failed { step: 0 });
    for code in [ErrorCode::ValidationError, ErrorCode::PolicyDenied, ErrorCode::Conflict, ErrorCode::ApprovalDenied] {
        let refused = Outcome::Failed { code, retryable: Some(true), retry_after_ms: None };
        let (calls, ..) =
            drive(&mut scheduler(vec![one.clone()], 1), &|_| 0, &mut |_, _, _| refused.clone(), &mut |_| 0);
        assert_eq!(calls.len(), 1, "{code}");
    }
    let told = Outcome::Failed { code: ErrorCode::InternalError, retryable: Some(false), retry_after_ms: None };
    let (calls, ..) = drive(&mut scheduler(vec![one], 1), &|_| 0, &mut |_, _, _| told.clone(), &mut |_| 0);
    assert_eq!(calls.len(), 1);
}

#[test]
fn a_loop_runs_at_most_its_width_and_reports_partial_success() {
    let mut looped = shape(&[]);
    looped.foreach = Some(3);
    looped.on_error = OnError::Skip;
    let (calls, ends, _, widest) = drive(
        &mut scheduler(vec![looped.clone(), shape(&[0])], 8),
        &|_| 10,
        &mut |s, i, _| if s == 0 && i % 2 == 0 { FAIL } else { Outcome::Ok },
        &mut |n| n - 1,
    );
    assert_eq!(calls.len(), 11);
    assert_eq!(widest, 3);
    assert_eq!(ends[&0], StepState::Ok);
    looped.on_error = OnError::Stop;
    let (calls, _, end, _) = drive(
        &mut scheduler(vec![looped], 8),
        &|_| 10,
        &mut |_, i, _| if i == 0 { FAIL } else { Outcome::Ok },
        &mut |_| 0,
    );
    assert!(calls.len() < 6);
    assert_eq!(end, RunEnd::Failed { step: 0 });
}

#[test]
fn an_empty_loop_succeeds() {
    let mut looped = shape(&[]);
    looped.foreach = Some(1);
    let (calls, ends, end, _) =
        drive(&mut scheduler(vec![looped, shape(&[0])], 1), &|_| 0, &mut |_, _, _| Outcome::Ok, &mut |_| 0);
    assert_eq!((calls.len(), ends[&0], end), (1, StepState::Ok, RunEnd::Finished));
}

#[test]
fn doubt_pauses_the_run_and_leaves_the_rest_unstarted() {
    let (calls, ends, end, _) = drive(
        &mut scheduler(vec![shape(&[]), shape(&[]), shape(&[])], 1),
        &|_| 0,
        &mut |s, _, _| if s == 1 { Outcome::InDoubt } else { Outcome::Ok },
        &mut |_| 0,
    );
    assert_eq!((calls.len(), ends.len(), end), (2, 1, RunEnd::Paused));
}

#[test]
fn cancelling_ends_waits_at_once_and_everything_else_when_it_answers() {
    let mut one = shape(&[]);
    one.on_error = OnError::Retry;
    one.max_attempts = 5;
    let mut s = scheduler(vec![one, shape(&[])], 1);
    s.apply(Event::Start);
    let wait = s.apply(Event::Settled { step: 0, index: 0, outcome: FAIL });
    assert!(matches!(wait[..], [Action::Wait { attempt: 2, .. }]));
    let actions = s.apply(Event::Cancel);
    assert_eq!(
        actions,
        [
            Action::Ended { step: 0, state: StepState::Cancelled },
            Action::Ended { step: 1, state: StepState::Cancelled },
            Action::Done(RunEnd::Cancelled)
        ]
    );
    assert!(s.apply(Event::TimerFired { step: 0, index: 0 }).is_empty());
}

#[test]
fn cycles_are_found_and_named() {
    assert_eq!(topological_order(&[vec![], vec![3, 0], vec![1], vec![2]]).unwrap_err().len(), 3);
    assert_eq!(topological_order(&[vec![0]]).unwrap_err(), [0]);
    assert_eq!(topological_order(&[vec![1], vec![]]).unwrap(), [1, 0]);
}

#[test]
fn delays_double_with_seeded_jitter_below_a_ceiling() {
    let step = StepId::parse("a").unwrap();
    let delays: Vec<u64> = (1..8).map(|n| retry_delay(run_id(), &step, 0, n, 1000)).collect();
    assert_eq!(
        delays,
        (1..8).map(|n| retry_delay(run_id(), &step, 0, n, 1000)).collect::<Vec<_>>(),
        "same names, same delay"
    );
    assert!(delays.iter().enumerate().all(|(n, d)| *d <= (1000 << n).min(30_000)), "{delays:?}");
    assert_ne!(retry_delay(run_id(), &step, 1, 5, 1000), delays[4]);
    assert_eq!(retry_delay(run_id(), &step, 0, 1, 0), 0);
}

fn any_plan() -> impl Strategy<Value = (Vec<StepShape>, u32)> {
    let step = (any::<bool>(), prop::option::of(1u32..4), 0..3u8, 1u32..4, prop::collection::vec(0usize..12, 0..3));
    (prop::collection::vec(step, 1..12), 1u32..5).prop_map(|(steps, max)| {
        let shapes = steps
            .into_iter()
            .enumerate()
            .map(|(i, (read_only, foreach, on_error, max_attempts, deps))| {
                let mut depends_on: Vec<usize> = deps.into_iter().filter(|d| *d < i).collect();
                depends_on.sort_unstable();
                depends_on.dedup();
                let on_error = [OnError::Stop, OnError::Skip, OnError::Retry][on_error as usize];
                StepShape { depends_on, read_only, foreach, on_error, max_attempts, backoff_ms: 1 }
            })
            .collect();
        (shapes, max)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[toolyard_shows::shows("002-0-04")]
    #[test]
    fn every_plan_ends_and_every_step_ends_once(
        (shapes, max) in any_plan(),
        outcomes in prop::collection::vec(0..4u8, 64),
        picks in prop::collection::vec(any::<usize>(), 256),
        cancel_after in prop::option::of(0usize..20),
    ) {
        let mut s = scheduler(shapes.clone(), max);
        let (mut n, mut p) = (0usize, 0usize);
        let mut ended: HashMap<usize, StepState> = HashMap::new();
        let mut open: Vec<Event> = Vec::new();
        let mut in_flight: HashMap<(usize, u32), u32> = HashMap::new();
        let mut done = None;
        let mut pending = s.apply(Event::Start);
        let mut turns = 0;
        loop {
            for action in std::mem::take(&mut pending) {
                match action {
                    Action::Expand { step } => open.push(Event::Expanded { step, count: (step % 4) as u32 }),
                    Action::Call { step, index, attempt } => {
                        // never before its dependencies have succeeded, never twice at once, never beyond the limit
                        for d in &shapes[step].depends_on { prop_assert_eq!(ended.get(d), Some(&StepState::Ok)); }
                        prop_assert!(attempt <= shapes[step].max_attempts);
                        prop_assert!(in_flight.insert((step, index), attempt).is_none());
                        prop_assert!(in_flight.len() <= max as usize, "never more at once than allowed");
                        let others_read = in_flight.keys().all(|(other, _)| *other == step || (shapes[*other].read_only && shapes[step].read_only));
                        prop_assert!(others_read, "a writing step shares its time with nobody");
                        n += 1;
                        let outcome = match outcomes[n % outcomes.len()] { 0 => FAIL, 1 => Outcome::Failed { code: ErrorCode::Timeout, retryable: Some(true), retry_after_ms: None }, _ => Outcome::Ok };
                        open.push(Event::Settled { step, index, outcome });
                    }
                    Action::Wait { step, index, .. } => open.push(Event::TimerFired { step, index }),
                    Action::Ended { step, state } => prop_assert!(ended.insert(step, state).is_none()),
                    Action::Done(e) => prop_assert!(done.replace(e).is_none()),
                }
            }
            if Some(turns) == cancel_after { pending = s.apply(Event::Cancel); turns += 1; continue; }
            turns += 1;
            if open.is_empty() { break; }
            p += 1;
            let mut event = open.swap_remove(picks[p % picks.len()] % open.len());
            if let Event::Settled { step, index, .. } = &event { in_flight.remove(&(*step, *index)); }
            if cancel_after.is_some_and(|c| turns > c) && let Event::Settled { outcome, .. } = &mut event { *outcome = Outcome::Cancelled; }
            pending = s.apply(event);
            prop_assert!(turns < 10_000);
        }
        prop_assert!(done.is_some(), "the run ends");
        prop_assert_eq!(ended.len(), shapes.len(), "every step has an end");
    }
}
