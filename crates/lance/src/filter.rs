//! Converts filters to SQL. Text is quoted only in this module.

use toolyard_noteindex::ChunkFilter;

/// Quotes a text as an SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Formats ids as an SQL list.
pub(crate) fn id_list(ids: impl IntoIterator<Item = u64>) -> String {
    let ids: Vec<String> = ids.into_iter().map(|id| id.cast_signed().to_string()).collect();
    ids.join(",")
}

/// The filter as SQL; `None` when it matches everything.
pub(crate) fn sql(filter: &ChunkFilter) -> Option<String> {
    let mut parts = Vec::new();
    if !filter.folders.is_empty() {
        let any = filter.folders.iter().map(|folder| {
            let below = quoted(&format!("{folder}/"));
            format!("source_file = {} OR starts_with(source_file, {below})", quoted(folder))
        });
        parts.push(format!("({})", any.collect::<Vec<_>>().join(" OR ")));
    }
    if !filter.tags.is_empty() {
        // Tags are also stored as one text, ` /a/b/ /c/`, in which a tag and its nested tags can be searched.
        let any = filter.tags.iter().map(|tag| format!("contains(tag_paths, {})", quoted(&format!(" /{tag}/"))));
        parts.push(format!("({})", any.collect::<Vec<_>>().join(" OR ")));
    }
    if let Some((from, to)) = filter.days {
        parts.push(format!("day >= {from} AND day <= {to}"));
    }
    (!parts.is_empty()).then(|| parts.join(" AND "))
}

/// Tags as one text, for [`sql`].
pub(crate) fn tag_paths(tags: &[String]) -> String {
    tags.iter().map(|tag| format!(" /{tag}/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_cannot_end_a_text() {
        let filter =
            ChunkFilter { folders: vec!["it's".to_owned()], tags: vec!["a'b".to_owned()], days: Some((-1, 5)) };
        assert_eq!(
            sql(&filter).unwrap(),
            "(source_file = 'it''s' OR starts_with(source_file, 'it''s/')) AND (contains(tag_paths, ' /a''b/')) AND day >= -1 AND day <= 5"
        );
        assert_eq!(sql(&ChunkFilter::default()), None);
        assert_eq!(tag_paths(&["a/b".to_owned(), "c".to_owned()]), " /a/b/ /c/");
    }
}
