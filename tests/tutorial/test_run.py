#!/usr/bin/env python3
"""Tests of run.py with small pages: a right page passes, and each kind of wrong page fails."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run

RIGHT = """# A page

```sh
NAME=world
echo "hello $NAME"; echo "id 42, made now"; echo a; echo b; echo end
```

It prints:

```text
hello world
id …, made now
…
end
```

## Later

```sh terminal-2 keeps-running
# A comment is no heading.
echo ready; sleep 30
```

```text terminal-2
ready
```
"""


def carry_out(text, heading=None):
    return run.carry_out(text, sys.executable, heading)


class Pages(unittest.TestCase):
    def test_a_right_page_passes(self):
        self.assertEqual(carry_out(RIGHT), 3)

    def test_a_section_is_run_alone(self):
        self.assertEqual(carry_out(RIGHT, "Later"), 2)
        with self.assertRaisesRegex(run.Differs, "no section"):
            carry_out(RIGHT, "Never")

    def test_another_output_is_found_with_its_line(self):
        with self.assertRaisesRegex(run.Differs, "line 3: the page says"):
            carry_out(RIGHT.replace("hello world\n", "hello moon\n"))

    def test_more_output_than_the_page_says_is_found(self):
        with self.assertRaisesRegex(run.Differs, "the page says"):
            carry_out(RIGHT.replace("…\nend", "end"))

    def test_a_command_that_fails_is_found(self):
        with self.assertRaisesRegex(run.Differs, "exit 1: false"):
            carry_out("```sh\nfalse\necho on\n```\n\n```text\non\n```\n")

    def test_a_server_that_fails_is_found(self):
        with self.assertRaisesRegex(run.Differs, "a command failed"):
            carry_out(RIGHT.replace("echo ready; sleep 30", "false"))

    def test_a_page_that_says_nothing_is_refused(self):
        with self.assertRaisesRegex(run.Differs, "no block says"):
            carry_out("```sh\ntrue\n```\n")


if __name__ == "__main__":
    unittest.main()
