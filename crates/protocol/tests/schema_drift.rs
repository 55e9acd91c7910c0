//! `schema/` must be what the types say. Run with `TOOLYARD_BLESS=1` to write it anew.

use std::path::Path;

#[toolyard_shows::shows("002-1-10", "002-3.3-12", "002-3.3-13", "002-3.3-14", "002-3.3-15", "002-3.3-16", "002-3.3-17")]
#[test]
fn committed_schemas_match_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    let bless = std::env::var_os("TOOLYARD_BLESS").is_some();
    for (name, schema) in toolyard_protocol::schema::all() {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if bless {
            std::fs::write(dir.join(name), &text).unwrap();
        }
        let committed = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        assert!(committed == text, "schema/{name} is out of date: run `make schema`");
    }
}
