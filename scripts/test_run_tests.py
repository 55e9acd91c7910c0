#!/usr/bin/env python3
"""Tests run_tests.py with a cargo that builds nothing: a failing or a missing test program is never a success."""
import json, os, pathlib, stat, subprocess, sys, tempfile, unittest

SCRIPT = pathlib.Path(__file__).resolve().with_name("run_tests.py")


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class RunTests(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "deps").mkdir()

    def run_with(self, programs, cargo_code=0, arguments=()):
        """Runs the script with a cargo that names these programs: pairs of a name and a shell script."""
        lines = ["not a message of cargo"]
        for name, script in programs:
            program = executable(self.root / "deps" / name, f"#!/bin/sh\n{script}\n")
            target = {"kind": ["test"], "name": name}
            message = {"reason": "compiler-artifact", "profile": {"test": True}, "executable": str(program)}
            lines.append(json.dumps(message | {"target": target, "manifest_path": str(self.root / "Cargo.toml")}))
        (self.root / "messages").write_text("\n".join(lines) + "\n")
        cargo = executable(self.root / "cargo", f"#!/bin/sh\ncat '{self.root}/messages'\nexit {cargo_code}\n")
        environment = dict(os.environ, CARGO=str(cargo))
        return subprocess.run([sys.executable, SCRIPT, *arguments], env=environment, capture_output=True, text=True)

    def test_all_succeed(self):
        ran = self.run_with([("one", "echo 'test result: ok. 3 passed'"), ("two", "echo 'test result: ok. 1 passed'")])
        self.assertEqual(ran.returncode, 0, ran)
        self.assertIn("2 test programs", ran.stdout)
        self.assertIn("3 passed", ran.stdout)

    def test_a_program_that_fails_is_named_with_its_output(self):
        ran = self.run_with([("one", "true"), ("two", "echo the reason; exit 101")])
        self.assertEqual(ran.returncode, 1, ran)
        self.assertIn("the reason", ran.stdout)
        self.assertRegex(ran.stderr, "failed: .* two")

    def test_a_failed_build_and_an_empty_one_fail(self):
        self.assertEqual(self.run_with([("one", "true")], cargo_code=101).returncode, 1)
        self.assertEqual(self.run_with([]).returncode, 1)

    def test_arguments_after_two_dashes_reach_the_programs(self):
        ran = self.run_with([("one", 'test "$1" = --ignored')], arguments=["--at-once", "1", "--", "--ignored"])
        self.assertEqual(ran.returncode, 0, ran)

    def test_programs_run_where_their_package_lies(self):
        ran = self.run_with([("one", f'test "$(pwd -P)" = "{self.root.resolve()}" && test "$CARGO_MANIFEST_DIR" = "{self.root}"')])
        self.assertEqual(ran.returncode, 0, ran)


if __name__ == "__main__":
    unittest.main()
