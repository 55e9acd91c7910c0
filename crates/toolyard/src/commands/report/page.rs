//! A report as a page, in Markdown and in HTML. Titles and reasons are agents' words, so both forms escape them.

use super::{AgentReport, Report, Totals};
use crate::terminal::counted;
use std::fmt::Write as _;

fn figures(totals: &Totals) -> String {
    format!(
        "{}, {} failed, {} refused, {} changed",
        counted(totals.runs, "run"),
        totals.failed,
        counted(totals.refused, "call"),
        counted(totals.files_changed, "file")
    )
}

/// The page in Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let mut text =
        format!("# What agents did\n\nFrom {} to {}: {}.\n", report.since, report.until, figures(&report.totals));
    if report.is_cut {
        text.push_str("\nThere were more runs; the oldest are left out.\n");
    }
    for agent in &report.agents {
        markdown_agent(&mut text, agent);
    }
    text
}

fn markdown_agent(text: &mut String, agent: &AgentReport) {
    // Writing to a String cannot fail.
    _ = write!(text, "\n## {} ({})\n\n{}.\n", plain(&agent.agent), plain(&agent.door), figures(&agent.totals));
    if !agent.tools.is_empty() {
        text.push_str("\n| tool | calls |\n| --- | ---: |\n");
        for (tool, calls) in &agent.tools {
            _ = writeln!(text, "| {} | {calls} |", plain(tool));
        }
    }
    if !agent.files.is_empty() {
        text.push_str("\nFiles changed:\n\n");
        for file in &agent.files {
            _ = writeln!(text, "- {}", plain(file));
        }
    }
    if !agent.troubles.is_empty() {
        text.push_str("\nRefused or failed:\n\n");
        for trouble in &agent.troubles {
            _ = writeln!(
                text,
                "- {} {}: {} (`toolyard runs show {}`)",
                trouble.at,
                plain(&trouble.title),
                plain(&trouble.reason),
                trouble.run_id
            );
        }
    }
}

/// Text that Markdown does not read as anything else.
fn plain(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '!' => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The page in HTML, with nothing from elsewhere.
pub(super) fn html(report: &Report) -> String {
    let mut text = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>What agents did</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
         td,th{text-align:left;padding:.1rem 1rem .1rem 0}</style></head><body>\n<h1>What agents did</h1>\n",
    );
    _ = writeln!(text, "<p>From {} to {}: {}.</p>", report.since, report.until, figures(&report.totals));
    if report.is_cut {
        text.push_str("<p>There were more runs; the oldest are left out.</p>\n");
    }
    for agent in &report.agents {
        _ = writeln!(
            text,
            "<h2>{} ({})</h2>\n<p>{}.</p>",
            safe(&agent.agent),
            safe(&agent.door),
            figures(&agent.totals)
        );
        text.push_str("<table><tr><th>tool</th><th>calls</th></tr>\n");
        for (tool, calls) in &agent.tools {
            _ = writeln!(text, "<tr><td>{}</td><td>{calls}</td></tr>", safe(tool));
        }
        text.push_str("</table>\n<ul>\n");
        for file in &agent.files {
            _ = writeln!(text, "<li>changed {}</li>", safe(file));
        }
        for trouble in &agent.troubles {
            let (title, reason) = (safe(&trouble.title), safe(&trouble.reason));
            _ = writeln!(text, "<li>{} {title}: {reason} ({})</li>", trouble.at, trouble.run_id);
        }
        text.push_str("</ul>\n");
    }
    text.push_str("</body></html>\n");
    text
}

fn safe(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
