#!/usr/bin/env python3
"""Tests check_doc_tests.py: a crate cannot lose its documentation tests unnoticed."""
import pathlib, tempfile, unittest

import check_doc_tests


class CheckDocTests(unittest.TestCase):
    def check(self, source, manifest="[lib]\ndoctest = false\n"):
        with tempfile.TemporaryDirectory() as folder:
            crate = pathlib.Path(folder) / "crates/one"
            (crate / "src").mkdir(parents=True)
            (crate / "Cargo.toml").write_text(manifest)
            (crate / "src/lib.rs").write_text(source)
            return check_doc_tests.main(pathlib.Path(folder))

    def test_code_that_rustdoc_runs_is_found(self):
        for block in ("//! ```\n//! run()\n//! ```\n", "/// ```rust,no_run\n/// run()\n/// ```\n", "/// ```should_panic\n", "///\n///     run()\n"):
            self.assertEqual(self.check(block), 1, block)
        self.assertEqual(self.check('#![doc = include_str!("../README.md")]\n'), 1)

    def test_other_blocks_are_left_alone(self):
        for block in ("//! ```text\n//! a -> b\n//! ```\n", "/// ```ignore\n///     run()\n/// ```\n", "// ```\n", "/// - a list\n///     goes on\n"):
            self.assertEqual(self.check(block), 0, block)

    def test_a_crate_that_runs_them_is_not_looked_at(self):
        self.assertEqual(self.check("/// ```\n/// run()\n/// ```\n", "[lib]\n"), 0)


if __name__ == "__main__":
    unittest.main()
