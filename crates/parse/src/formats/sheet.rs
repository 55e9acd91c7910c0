//! Spreadsheets: a table for each sheet.

use super::{Converted, Limits, MAX_SHEET_CELLS, ParseFailure, word::table_row};
use calamine::{Data, Reader, open_workbook_auto_from_rs};
use std::io::Cursor;

pub(super) fn convert(bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    // The workbook library unpacks entries as a whole, so the limits are checked first to reject zip bombs.
    if bytes.starts_with(b"PK") {
        super::archive::unpack(bytes, limits, |_| {})?;
    }
    let broken = |e: &dyn std::fmt::Display| ParseFailure::new(format!("it is no readable workbook: {e}"));
    let mut book = open_workbook_auto_from_rs(Cursor::new(bytes)).map_err(|e| broken(&e))?;
    let mut markdown = String::new();
    let mut cells = 0usize;
    for name in book.sheet_names() {
        let range = book.worksheet_range(&name).map_err(|e| broken(&e))?;
        if range.is_empty() {
            continue;
        }
        markdown.push_str(&format!("## {name}\n\n"));
        let mut first = true;
        for row in range.rows() {
            cells = cells.saturating_add(row.len());
            if cells > MAX_SHEET_CELLS || markdown.len() > limits.text_bytes {
                return Err(ParseFailure::new(format!(
                    "it has more than {MAX_SHEET_CELLS} cells or its text is too large"
                )));
            }
            if row.iter().all(|cell| matches!(cell, Data::Empty)) {
                continue;
            }
            let texts: Vec<String> = row.iter().map(cell_text).collect();
            table_row(&mut markdown, &texts, first);
            first = false;
        }
        markdown.push('\n');
    }
    Ok(Converted { title: None, markdown })
}

fn cell_text(cell: &Data) -> String {
    match cell {
        Data::DateTime(time) => {
            let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
            match (hour, minute, second) {
                (0, 0, 0) => format!("{year:04}-{month:02}-{day:02}"),
                _ => format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"),
            }
        }
        other => other.to_string(),
    }
}
