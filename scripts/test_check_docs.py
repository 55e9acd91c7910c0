#!/usr/bin/env python3
"""Tests of check_docs.py with wrong samples: each kind of mistake is found, and right text is not."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_docs


def found(text):
    return [number for number, _ in check_docs.roadmap_words(text)]


class RoadmapWords(unittest.TestCase):
    def test_words_of_a_roadmap_are_found(self):
        for line in ("Today it works.", "This is not yet there.", "It does not use the key yet.", "It no longer does."):
            self.assertEqual(found(line), [1], line)

    def test_code_quotes_and_the_roadmap_section_are_left_alone(self):
        for text in ("`today`", 'it says "not yet"', "```sh\necho today\n```", "# Roadmap\n\nNot yet: a console."):
            self.assertEqual(found(text), [], text)

    def test_a_line_number_counts_fenced_lines(self):
        self.assertEqual(found("```\na\nb\n```\ntoday"), [5])


class Index(unittest.TestCase):
    def test_a_page_that_no_index_names_is_found(self):
        pages = {"docs/README.md": "[a](guide/a.md) [decisions](decisions/README.md)", "docs/guide/a.md": "", "docs/guide/b.md": "",
                 "docs/decisions/README.md": "[one](one.md)", "docs/decisions/one.md": "", "docs/decisions/two.md": ""}
        self.assertEqual([name for name, _ in check_docs.unlisted(pages)], ["docs/decisions/two.md", "docs/guide/b.md"])


class Commands(unittest.TestCase):
    def test_commands_of_shell_blocks_are_found_with_their_lines(self):
        text = "a\n\n```sh\nTOOLYARD_HOME=x toolyard runs list | head   # comment\nls && toolyard plan \\\n  check F\n```\n"
        self.assertEqual(list(check_docs.commands(text)), [(4, ["runs", "list"]), (5, ["plan", "check", "F"])])

    def test_other_blocks_and_other_programs_are_not(self):
        self.assertEqual(list(check_docs.commands("```json\ntoolyard x\n```\n```sh\ntoolyard-bench all\n```\n")), [])


if __name__ == "__main__":
    unittest.main()
