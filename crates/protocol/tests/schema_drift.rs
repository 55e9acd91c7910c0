//! `schema/` must be what the types say. Run with `TOOLYARD_BLESS=1` to write it anew.

use std::path::Path;

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
