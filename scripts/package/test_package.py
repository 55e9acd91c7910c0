#!/usr/bin/env python3
"""Tests of the packaging scripts with small stand-ins for the programs: layout, checksums, and the same bytes twice."""
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import archives  # noqa: E402
import content  # noqa: E402
import forms  # noqa: E402
import make  # noqa: E402
from targets import TARGETS  # noqa: E402

EPOCH = 1_700_000_000


def build():
    programs = {name: f"program {name}".encode() for name in content.PROGRAMS}
    documents = {"share/man/man1/toolyard.1": archives.Entry(b".TH toolyard"),
                 "share/doc/toolyard/LICENSE": archives.Entry(b"licence")}
    return make.Build(Path("/bin"), TARGETS["x86_64-unknown-linux-gnu"], "1.2.3", EPOCH, programs, documents)


def names(body):
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return {member.name: member for member in archive}


class Packages(unittest.TestCase):
    def setUp(self):
        # The image takes the libraries of the programs, which stand-ins do not have.
        self.libraries, forms.libraries = forms.libraries, lambda _: {"lib/ld.so": archives.Entry(b"ld", 0o755)}

    def tearDown(self):
        forms.libraries = self.libraries

    def test_every_form_comes_out_the_same_twice(self):
        for name, form in forms.FORMS.items():
            self.assertEqual(form(build()), form(build()), name)

    def test_a_tarball_has_programs_a_link_and_the_installer(self):
        (name, body), = forms.tarball(build()).items()
        found = names(body)
        top = name.removesuffix(".tar.gz")
        self.assertEqual(found[f"{top}/bin/toolyard"].linkname, "../libexec/toolyard/toolyard")
        for program in content.PROGRAMS:
            self.assertEqual(found[f"{top}/libexec/toolyard/{program}"].mode, 0o755)
        self.assertEqual({member.mtime for member in found.values()}, {EPOCH})

    def test_dpkg_reads_the_deb(self):
        (name, body), = forms.deb(build()).items()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(body)
            said = subprocess.run(["dpkg-deb", "--info", path], check=True, capture_output=True, text=True).stdout
            self.assertIn("Package: toolyard", said)
            listed = subprocess.run(["dpkg-deb", "--contents", path], check=True, capture_output=True, text=True).stdout
            self.assertIn("./usr/bin/toolyard -> ../lib/toolyard/toolyard", listed)
            self.assertIn("./usr/lib/systemd/user/toolyard.service", listed)

    def test_a_wheels_record_fits_its_files(self):
        (_, body), = forms.wheel(build()).items()
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            record = archive.read("toolyard-1.2.3.dist-info/RECORD").decode().splitlines()
            for line in record[:-1]:
                path, sum_, size = line.rsplit(",", 2)
                inside = archive.read(path)
                self.assertEqual((f"sha256={forms.digest(inside)}", str(len(inside))), (sum_, size), path)
            self.assertEqual(len(record), len(archive.namelist()))

    def test_npm_names_the_platform_package_in_the_same_version(self):
        made = forms.npm(build())
        self.assertEqual(set(made), {"toolyard-1.2.3.tgz", "toolyard-linux-x64-1.2.3.tgz"})
        with tarfile.open(fileobj=io.BytesIO(made["toolyard-1.2.3.tgz"])) as archive:
            package = json.load(archive.extractfile("package/package.json"))
        self.assertEqual(package["optionalDependencies"], {"toolyard-linux-x64": "1.2.3"})

    def test_an_image_names_blobs_that_are_there(self):
        (_, body), = forms.oci(build()).items()
        with tarfile.open(fileobj=io.BytesIO(body)) as image:
            blob = lambda digest: image.extractfile("blobs/" + digest.replace(":", "/")).read()
            index = json.load(image.extractfile("index.json"))
            manifest = json.loads(blob(index["manifests"][0]["digest"]))
            config = json.loads(blob(manifest["config"]["digest"]))
            for layer, plain in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
                packed = blob(layer["digest"])
                self.assertEqual((len(packed), "sha256:" + hashlib.sha256(gzip.decompress(packed)).hexdigest()),
                                 (layer["size"], plain))

    def test_a_program_that_needs_a_newer_glibc_is_refused(self):
        with self.assertRaisesRegex(content.Problem, "needs glibc 2.40"):
            content.check_glibc({"toolyard": b"\0GLIBC_2.17\0GLIBC_2.40\0"}, build().target)
        content.check_glibc({"toolyard": b"\0GLIBC_2.36\0"}, build().target)

    def test_a_missing_program_is_named(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(content.Problem, "toolyard is missing"):
            content.programs(folder)


if __name__ == "__main__":
    unittest.main()
