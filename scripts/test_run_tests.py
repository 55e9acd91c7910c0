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
        environment = dict(os.environ, CARGO=str(cargo), TESTED_CHECKOUT=str(self.root / "checkout"))
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

    def checkout(self):
        folder = self.root / "checkout"
        (folder / "crates/one/src").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", folder], check=True)
        (folder / ".gitignore").write_text("ignored\n")
        (folder / "page.md").write_text("a page")
        (folder / "crates/one/src/lib.rs").write_text("// compiled")
        return folder

    def cached(self, programs):
        """Which programs ran and which were cached."""
        ran = self.run_with(programs, arguments=["--cached", "--at-once", "1"])
        lines = [line for line in ran.stdout.splitlines() if " test " in line and ": " in line]
        return {line.split(" test ")[1].split(":")[0]: "cached" in line for line in lines}, ran.returncode

    def test_a_program_that_passed_is_cached_until_something_changes_that_it_reads(self):
        folder = self.checkout()
        programs = [("one", "echo 'test result: ok. 1 passed'"), ("two", "exit 1"), ("three", "# runs helper-program")]
        executable(self.root / "helper-program", "#!/bin/sh\n# one\n")
        new, passed, helped = {"one": False, "two": False, "three": False}, {"one": True, "three": True}, {"one": True}
        self.assertEqual(self.cached(programs), (new, 1))
        self.assertEqual(self.cached(programs), (new | passed, 1), "a failed one is never cached")
        (folder / "crates/one/src/lib.rs").write_text("// compiled, and changed")
        (folder / "ignored").write_text("not read")
        self.assertEqual(self.cached(programs)[0], new | passed)
        executable(self.root / "helper-program", "#!/bin/sh\n# two\n")
        self.assertEqual(self.cached(programs)[0], new | helped, "a program that it runs has changed")
        (folder / "page.md").write_text("another page")
        self.assertEqual(self.cached(programs)[0], new)
        (folder / "untracked.json").write_text("{}")
        self.assertEqual(self.cached(programs)[0], new)
        self.assertEqual(self.cached(programs)[0], new | passed)
        programs[0] = ("one", "echo 'test result: ok. 2 passed'")
        self.assertEqual(self.cached(programs)[0], new | {"three": True})
        os.environ["TOOLYARD_SOMETHING"] = "1"
        self.addCleanup(os.environ.pop, "TOOLYARD_SOMETHING")
        self.assertEqual(self.cached(programs)[0], new)

    def test_a_program_that_passed_while_a_file_was_changed_is_not_cached(self):
        folder = self.checkout()
        changing = [("one", f"date +%N > '{folder}/page.md'")]
        self.assertEqual(self.cached(changing)[0], {"one": False})
        self.assertEqual(self.cached(changing)[0], {"one": False})

    def test_without_the_option_everything_runs(self):
        self.checkout()
        programs = [("one", "echo 'test result: ok. 1 passed'")]
        self.cached(programs)
        self.assertNotIn("cached", self.run_with(programs).stdout)

    def test_programs_run_where_their_package_lies(self):
        ran = self.run_with([("one", f'test "$(pwd -P)" = "{self.root.resolve()}" && test "$CARGO_MANIFEST_DIR" = "{self.root}"')])
        self.assertEqual(ran.returncode, 0, ran)


if __name__ == "__main__":
    unittest.main()
