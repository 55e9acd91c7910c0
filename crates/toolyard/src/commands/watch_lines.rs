//! The lines of `toolyard top` and `toolyard runs watch`, for a terminal of a given width. A pipe gets whole lines.

use crate::{
    output::{self, Paint},
    terminal::{self, Size, counted, cut, fit, length, time},
};
use jiff::Timestamp;
use toolyard_service::{approvals::people::Question, local::ProcessStatus, runs::RunSummary};

/// From this width on, a line has room for the id of a run and its figures.
const WIDE: usize = 120;
/// The width of a pipe's lines: nothing is cut.
const UNCUT: usize = usize::MAX;
/// Open questions in the overview.
const SHOWN_QUESTIONS: usize = 5;
/// Lines of the overview that are neither runs nor questions: the first line, and the one on which the cursor stays.
const OTHER_LINES: usize = 2;
/// Columns of a status; the longest is `cancelled`.
const STATUS: usize = 9;
/// Columns of a time.
const TIME: usize = 12;

/// What a line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An overview: figures first, the id only where there is room.
    Top,
    /// News that somebody may want to look up: the id first.
    Watch,
}

/// A run on one line.
pub(super) fn run_line(run: &RunSummary, shape: Shape, size: Option<Size>, paint: Paint) -> String {
    let columns = size.map_or(UNCUT, |size| size.columns);
    let counts = run.counts.clone().unwrap_or_default();
    let subject = counts.subject.filter(|_| counts.calls <= 1).map(|subject| format!(" {subject}")).unwrap_or_default();
    let title = output::plain(&format!("{}{subject}", run.title));
    let mut notes = Vec::new();
    if counts.waiting > 0 {
        notes.push("waits for an answer".to_owned());
    }
    if counts.failed > 0 {
        notes.push(format!("{} failed", counts.failed));
    }
    let notes = if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) };
    let status = |word: &str| paint.status(word) + &" ".repeat(STATUS.saturating_sub(word.len()));
    let status = status(run.status.as_str());
    if columns < WIDE && shape == Shape::Watch {
        let room = columns.saturating_sub(run.run_id.to_string().len() + STATUS + 4);
        return format!("{}  {status}  {}", run.run_id, cut(&(title + &notes), room));
    }
    let began = fit(&time(run.started_at, Timestamp::now()), TIME);
    let took = run.duration_ms.map(length).unwrap_or_default();
    if columns < WIDE {
        let start = format!("{began}  {status}  {took:>11}");
        let room = columns.saturating_sub(TIME + STATUS + 11 + 6);
        return format!("{start}  {}", cut(&(title + &notes), room));
    }
    let (calls, door) = (counted(counts.calls, "call"), fit(&counts.door, 8));
    let start = format!("{began}  {status}  {took:>11}  {calls:>11}  {door}");
    let used = TIME + STATUS + 11 + 11 + 8 + 8;
    if columns == UNCUT {
        return format!("{}  {start}  {title}{notes}", run.run_id);
    }
    let id = run.run_id.to_string();
    let room = columns.saturating_sub(used + id.len() + 4);
    format!("{start}  {}  {}", fit(&(title + &notes), room), paint.dim(&id))
}

/// The lines of the overview, at most as many as the terminal has.
pub(super) fn overview(
    state: &ProcessStatus,
    questions: &[Question],
    runs: &[RunSummary],
    size: Option<Size>,
) -> Vec<String> {
    let paint = Paint::stdout();
    let columns = size.map_or(UNCUT, |size| size.columns);
    let now = Timestamp::now();
    let began = Timestamp::from_millisecond(now.as_millisecond() - state.uptime_ms.cast_signed()).unwrap_or(now);
    let figures = format!(
        "up since {}, {} under way, {} open, {}",
        time(began, now),
        counted(state.active_runs, "run"),
        counted(questions.len(), "question"),
        counted(state.tools, "tool"),
    );
    let name = format!("Toolyard {}", state.process.version);
    let room = columns.saturating_sub(name.len() + 2);
    let mut lines = vec![format!("{}  {}", paint.bold(&name), cut(&figures, room))];
    for question in questions.iter().take(SHOWN_QUESTIONS) {
        let what = question.paths.first().unwrap_or(&question.description);
        let asked = output::visible(&format!("{} {}  {what}", question.agent, question.tool));
        let answer = format!("toolyard approvals show {}", question.id);
        let room = columns.saturating_sub(terminal::width(&answer) + "asks  ".len() + 2);
        let is_cut = columns != UNCUT && room < MIN_ASKED;
        let (asked, answer) = match is_cut {
            // A narrow terminal has no room for both: the command is on a line of its own.
            true => (cut(&asked, columns.saturating_sub(6)), format!("\n      {answer}")),
            false if columns == UNCUT => (asked, format!("  {answer}")),
            false => (fit(&asked, room), format!("  {answer}")),
        };
        lines.extend(format!("{}  {asked}{answer}", paint.yellow("asks")).split('\n').map(str::to_owned));
    }
    if questions.len() > SHOWN_QUESTIONS {
        lines.push(format!("      {} more: toolyard approvals list", questions.len() - SHOWN_QUESTIONS));
    }
    let room = size.map_or(usize::MAX, |size| size.lines.saturating_sub(lines.len() + OTHER_LINES));
    lines.extend(runs.iter().take(room).map(|run| run_line(run, Shape::Top, size, paint)));
    if runs.is_empty() {
        lines.push("no run yet: toolyard call util.slugifyTitle --args '{\"title\":\"Hello\"}'".to_owned());
    }
    lines
}

/// Fewer columns than this do not say what is asked.
const MIN_ASKED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::store::RunKind;
    use toolyard_protocol::{RunId, RunStatus};
    use toolyard_service::RunCounts;

    fn run(title: &str, failed: u64) -> RunSummary {
        let id = RunId::from_uuid(uuid::Uuid::from_u128(0x01a1_ef77_0000_7000_8000_0000_0000_506e));
        let counts = RunCounts { calls: 2, failed, door: "cli".to_owned(), ..RunCounts::default() };
        RunSummary {
            run_id: id,
            kind: RunKind::Plan,
            status: RunStatus::Finished,
            title: title.to_owned(),
            started_at: Timestamp::now(),
            ended_at: None,
            duration_ms: Some(118),
            session: None,
            counts: Some(counts),
        }
    }

    const LONG: &str = "Move every note about the garden and keep each link to it alive, also those in the archive";

    #[test]
    fn a_line_fits_the_terminal() {
        for (columns, shape) in [(80, Shape::Top), (80, Shape::Watch), (140, Shape::Top), (140, Shape::Watch)] {
            let size = Some(Size { columns, lines: 24 });
            let line = run_line(&run(LONG, 1), shape, size, Paint::never());
            assert!(terminal::width(&line) <= columns, "{columns}: {line}");
            let has_id = line.contains("506e");
            assert_eq!(has_id, columns >= WIDE || shape == Shape::Watch, "{columns}: {line}");
        }
    }

    #[test]
    fn a_pipe_gets_the_whole_line() {
        let line = run_line(&run(LONG, 1), Shape::Watch, None, Paint::never());
        assert!(line.contains(LONG) && line.ends_with("1 failed") && line.contains("2 calls"), "{line}");
    }
}
