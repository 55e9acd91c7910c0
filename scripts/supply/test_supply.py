#!/usr/bin/env python3
"""Tests of the supply-chain scripts, and of what they guard: pinned packages of the tests have hashes.

usage: python3 scripts/supply/test_supply.py
"""
import json
import re
import unittest

import advisories
import sbom
from semver import Version, requirement


def holds(text, version):
    return requirement(text)(Version.parse(version))


class Semver(unittest.TestCase):
    def test_order_is_that_of_semver(self):
        ordered = ["0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11",
                   "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0"]
        versions = [Version.parse(text) for text in ordered]
        self.assertEqual(sorted(reversed(versions)), versions)
        self.assertEqual(Version.parse("1.1.8+spec-1.1.0"), Version.parse("1.1.8"))
        for bad in ["1", "1.2", "v1.2.3", "1.2.3.4", ""]:
            with self.assertRaises(ValueError, msg=bad):
                Version.parse(bad)

    def test_requirements(self):
        yes = [(">= 0.9.1", "0.9.1"), (">=1.2", "1.2.0"), (">= 1", "2.0.0"), ("< 0.5.0", "0.4.99"), ("<= 0.3.9", "0.3.9"),
               ("= 1.2.3", "1.2.3"), ("=1.2", "1.2.7"), ("> 1.2.3", "1.2.4"), ("> 1.2", "1.3.0"), ("<= 1.2", "1.2.9"),
               ("^1.2.3", "1.9.0"), ("1.2.3", "1.2.4"), ("^0.2.3", "0.2.9"), ("^0.0.3", "0.0.3"), ("^0", "0.9.0"),
               ("~1.2.3", "1.2.9"), ("~1", "1.9.0"), ("^ 1.2.3", "1.2.3"), (">= 1.2.0, < 1.3.0", "1.2.5"),
               ("< 1.3.0, >= 1.2.0", "1.2.5"), (">= 1.2.0 ", "1.2.0"), (">= 1.1.0", "1.1.8+spec-1.1.0")]
        no = [(">= 0.9.1", "0.9.0"), ("< 0.5.0", "0.5.0"), ("<= 0.3.9", "0.3.10"), ("= 1.2.3", "1.2.4"), ("=1.2", "1.3.0"),
              ("> 1.2.3", "1.2.3"), ("> 1.2", "1.2.9"), ("<= 1.2", "1.3.0"), ("^1.2.3", "2.0.0"), ("^1.2.3", "1.2.2"),
              ("^0.2.3", "0.3.0"), ("^0.0.3", "0.0.4"), ("~1.2.3", "1.3.0"), (">= 1.2.0, < 1.3.0", "1.3.0")]
        for text, version in yes:
            self.assertTrue(holds(text, version), f"{version} satisfies {text}")
        for text, version in no:
            self.assertFalse(holds(text, version), f"{version} does not satisfy {text}")
        for bad in ["", "latest", ">= ", ">=1.2.x", "1.2.3 || 2.0.0"]:
            with self.assertRaises(ValueError, msg=bad):
                requirement(bad)

    def test_a_doubtful_prerelease_is_never_safe(self):
        self.assertFalse(holds(">= 1.2.0", "1.2.0-rc.1"), "before the fix")
        self.assertFalse(holds("< 1.2.0", "1.2.0-rc.1"), "the affected release was prepared there")
        self.assertFalse(holds("^1.2.0", "2.0.0-alpha"))
        self.assertTrue(holds(">= 1.2.0", "1.3.0-beta"))
        self.assertTrue(holds(">= 1.2.0-rc.1", "1.2.0-rc.2"))
        self.assertTrue(holds("< 1.2.0-rc.2", "1.2.0-rc.1"), "a requirement that names a pre-release is literal")


LOCK = """version = 4

[[package]]
name = "ours"
version = "0.1.0"
dependencies = ["bad"]

[[package]]
name = "bad"
version = "1.4.0"
source = "registry+index"
checksum = "aa"

[[package]]
name = "old"
version = "0.3.9"
source = "registry+index"
checksum = "bb"
"""


def advisory(id, package, kind, patched=(), unaffected=()):
    return {"id": id, "package": package, "date": "2026-01-01", "kind": kind, "patched": list(patched), "unaffected": list(unaffected)}


class Advisories(unittest.TestCase):
    def check(self, allowed, *entries):
        return advisories.check(advisories.locked_packages(LOCK), allowed, {"advisories": list(entries)})

    def test_only_packages_from_elsewhere_are_checked(self):
        self.assertEqual(advisories.locked_packages(LOCK), [("bad", "1.4.0"), ("old", "0.3.9")])
        with self.assertRaises(ValueError):
            advisories.locked_packages("version = 4\n")

    def test_a_vulnerable_version_fails_and_a_patched_one_does_not(self):
        problems, _ = self.check({}, advisory("RUSTSEC-2026-0001", "bad", "vulnerability", [">= 1.4.1"], ["< 1.0.0"]))
        self.assertEqual(len(problems), 1)
        self.assertIn("bad 1.4.0", problems[0])
        for patched, unaffected in [([">= 1.4.0"], []), (["^1.3.9", ">= 2.0.0"], []), ([], ["<= 1.4.0"])]:
            entry = advisory("RUSTSEC-2026-0001", "bad", "vulnerability", patched, unaffected)
            self.assertEqual(self.check({}, entry), ([], []))
        self.assertEqual(self.check({}, advisory("RUSTSEC-2026-0001", "ours", "vulnerability")), ([], []))

    def test_an_unmaintained_package_needs_an_entry_with_a_reason_and_a_date(self):
        entry = advisory("RUSTSEC-2026-0002", "old", "unmaintained")
        self.assertEqual(len(self.check({}, entry)[0]), 1)
        problems, notes = self.check({"RUSTSEC-2026-0002": "pulled in by x (reviewed 2026-11-17)"}, entry)
        self.assertEqual((problems, len(notes)), ([], 1))
        self.assertIn("reviewed", self.check({"RUSTSEC-2026-0002": "because"}, entry)[0][0])

    def test_an_entry_that_no_longer_applies_fails(self):
        reason = "x (reviewed 2026-11-17)"
        problems, _ = self.check({"RUSTSEC-2026-0003": reason}, advisory("RUSTSEC-2026-0003", "gone", "unmaintained"))
        self.assertIn("applies to no locked package", problems[0])
        fixed = advisory("RUSTSEC-2026-0003", "old", "unmaintained", [">= 0.3.0"])
        self.assertEqual(len(self.check({"RUSTSEC-2026-0003": reason}, fixed)[0]), 1)

    def test_a_vulnerability_cannot_be_ignored(self):
        entry = advisory("RUSTSEC-2026-0004", "bad", "vulnerability")
        problems, _ = self.check({"RUSTSEC-2026-0004": "x (reviewed 2026-11-17)"}, entry)
        self.assertIn("cannot be ignored", problems[0])

    def test_the_list_is_read_from_deny_toml(self):
        text = '[bans]\ndeny = [\n]\n\n[advisories]\nversion = 2\nignore = [\n  # why\n  { id = "RUSTSEC-2026-0001", reason = "a (b)" },\n]\n\n[licenses]\n'
        self.assertEqual(advisories.ignored(text), {"RUSTSEC-2026-0001": "a (b)"})
        self.assertEqual(advisories.ignored("[bans]\n"), {})
        with self.assertRaises(ValueError):
            advisories.ignored('[advisories]\nignore = [\n  "RUSTSEC-2026-0001",\n]\n')

    def test_every_entry_of_the_database_can_be_read(self):
        database = json.loads((advisories.HERE / "advisories.json").read_text())
        self.assertGreater(len(database["advisories"]), 1000)
        for entry in database["advisories"]:
            for text in entry["patched"] + entry["unaffected"]:
                requirement(text)


class Sbom(unittest.TestCase):
    metadata = {
        "packages": [
            {"id": "a", "name": "toolyard", "version": "0.1.0", "license": "Apache-2.0", "description": "The\n program."},
            {"id": "b", "name": "bad", "version": "1.4.0", "license": "MIT/Apache-2.0"},
            {"id": "c", "name": "old", "version": "0.3.9", "license": "MIT"},
        ],
        "workspace_members": ["a"],
        "resolve": {"nodes": [
            {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": None}]}, {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "b", "deps": []},
            {"id": "c", "deps": []},
        ]},
    }

    def test_a_bill_names_what_it_must_and_is_the_same_each_time(self):
        made = sbom.bill(self.metadata, LOCK)
        self.assertEqual(sbom.problems(made, LOCK), [])
        self.assertEqual(json.dumps(made), json.dumps(sbom.bill(self.metadata, LOCK)))
        bad, old = made["components"]
        self.assertEqual(bad["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(bad["hashes"], [{"alg": "SHA-256", "content": "aa"}])
        self.assertEqual((bad["scope"], old["scope"]), ("required", "excluded"))
        self.assertEqual(made["dependencies"][2]["dependsOn"], ["pkg:cargo/bad@1.4.0", "pkg:cargo/old@0.3.9"])

    def test_what_is_missing_is_found(self):
        made = sbom.bill(self.metadata, LOCK)
        del made["components"][0]["hashes"], made["components"][1]["licenses"]
        made["dependencies"][0]["dependsOn"] = ["pkg:cargo/unknown@1.0.0"]
        more = LOCK + '\n[[package]]\nname = "third"\nversion = "1.0.0"\nsource = "registry+index"\nchecksum = "cc"\n'
        self.assertEqual(len(sbom.problems(made, more)), 4)
        del made["components"]
        self.assertEqual(sbom.problems(made, LOCK), ["components is missing"])


class TestPackages(unittest.TestCase):
    """What the tests install from npm and PyPI is pinned with hashes, and names no registry."""

    def test_npm_packages_are_locked(self):
        locks = sorted(advisories.ROOT.glob("tests/**/package-lock.json"))
        manifests = sorted(advisories.ROOT.glob("tests/**/package.json"))
        self.assertEqual([p.parent for p in locks], [p.parent for p in manifests])
        self.assertGreaterEqual(len(locks), 5)
        for path in locks:
            lock = json.loads(path.read_text())
            wanted = json.loads(path.with_name("package.json").read_text())["dependencies"]
            self.assertEqual(lock["packages"][""]["dependencies"], wanted, path)
            for name, version in wanted.items():
                self.assertRegex(version, r"^\d+\.\d+\.\d+[\w.-]*$", f"{path}: {name} is not one version")
            for place, entry in lock["packages"].items():
                if place and not entry.get("inBundle"):
                    self.assertRegex(entry.get("integrity", ""), r"^sha512-", f"{path}: {place}")
                self.assertNotIn("resolved", entry, f"{path}: {place} names where it came from")

    def test_pypi_packages_are_locked(self):
        files = sorted(advisories.ROOT.glob("tests/**/requirements*.txt"))
        self.assertGreaterEqual(len(files), 3)
        for path in files:
            text = path.read_text()
            self.assertNotRegex(text, r"https?://|--(extra-)?index-url|--find-links", path)
            logical = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
            for line in logical:
                self.assertRegex(line, r"^[\w.\[\],-]+==\S+.* --hash=sha256:[0-9a-f]{64}", path)

    def test_scripts_install_nothing_else(self):
        for path in sorted(advisories.ROOT.glob("tests/**/*.sh")):
            for line in path.read_text().replace("\\\n", " ").splitlines():
                if line.lstrip().startswith(("#", "echo")):
                    continue
                self.assertNotRegex(line, r"\bnpm (install|add|i|exec)\b|\bnpx\b", f"{path}: use npm ci")
                if re.search(r"pip\"? install\b", line):
                    self.assertIn("--require-hashes", line, path)


if __name__ == "__main__":
    unittest.main()
