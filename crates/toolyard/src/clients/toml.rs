//! Edits TOML files so that everything else in them stays as it was written.

use toml_edit::{Array, DocumentMut, Item, Table, value};

/// Reads a file's text.
pub(crate) fn read(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| format!("it is no TOML: {}", error.message()))
}

/// The table at a path, made where it is missing.
pub(crate) fn table<'a>(document: &'a mut DocumentMut, path: &[&str]) -> Result<&'a mut Table, String> {
    let mut table = document.as_table_mut();
    for name in path {
        let item = table.entry(name).or_insert_with(|| {
            let mut made = Table::new();
            made.set_implicit(true);
            Item::Table(made)
        });
        table = item.as_table_mut().ok_or_else(|| format!("{name:?} is not a table"))?;
    }
    Ok(table)
}

/// Removes an entry of the table at a path, and the tables above it that are empty then.
pub(crate) fn remove(document: &mut DocumentMut, path: &[&str], name: &str) {
    remove_in(document.as_table_mut(), path, name);
}

fn remove_in(table: &mut Table, path: &[&str], name: &str) {
    let Some((first, rest)) = path.split_first() else {
        table.remove(name);
        return;
    };
    let Some(inner) = table.get_mut(first).and_then(Item::as_table_mut) else { return };
    remove_in(inner, rest, name);
    if inner.is_empty() {
        table.remove(first);
    }
}

/// A list of texts.
pub(crate) fn texts(words: &[String]) -> Item {
    value(words.iter().map(String::as_str).collect::<Array>())
}
