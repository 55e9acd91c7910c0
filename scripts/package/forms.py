"""The forms of a package: tarball, .deb, npm, wheel and OCI image."""
import base64
import gzip
import hashlib
import json
import subprocess
from pathlib import Path

import content
from archives import Entry, ar, tar, tar_gz, zipped

HERE = Path(__file__).parent


def pretty(value):
    return (json.dumps(value, indent=2) + "\n").encode()


def tarball(build):
    """One folder to unpack anywhere; install.sh copies it to a prefix."""
    top = f"toolyard-{build.version}-{build.target.rust}"
    entries = {f"{top}/libexec/toolyard/{name}": Entry(body, 0o755) for name, body in build.programs.items()}
    entries[f"{top}/bin/toolyard"] = Entry(link="../libexec/toolyard/toolyard")
    entries |= {f"{top}/{path}": entry for path, entry in build.documents.items()}
    entries[f"{top}/install.sh"] = Entry((HERE / "install.sh").read_bytes(), 0o755)
    return {f"{top}.tar.gz": tar_gz(entries, build.epoch)}


def deb(build):
    """A Debian package. The unit is the user's own: nothing runs until the user says so."""
    files = {f"./usr/lib/toolyard/{name}": Entry(body, 0o755) for name, body in build.programs.items()}
    files["./usr/bin/toolyard"] = Entry(link="../lib/toolyard/toolyard")
    files["./usr/lib/systemd/user/toolyard.service"] = content.unit("/usr/bin/toolyard")
    for path, entry in build.documents.items():
        if path.startswith("share/man/"):
            files[f"./usr/{path}.gz"] = Entry(gzip.compress(entry.content, 9, mtime=build.epoch))
        elif path.endswith("/LICENSE"):
            files["./usr/share/doc/toolyard/copyright"] = entry
        else:
            files[f"./usr/{path}"] = entry
    size = sum(len(entry.content) for entry in files.values()) // 1024
    glibc = ".".join(map(str, build.target.glibc))
    control = f"""Package: toolyard
Version: {build.version}
Architecture: {build.target.deb}
Maintainer: Toolyard authors <authors@toolyard.invalid>
Installed-Size: {size}
Depends: libc6 (>= {glibc}), libgcc-s1
Recommends: ca-certificates, git
Section: utils
Priority: optional
Description: {content.DESCRIPTION}
 Toolyard registers the tools of AI agents, finds the right one among
 thousands, decides who may use it, runs it, and keeps a signed record.
 Agents reach it over MCP, OpenClaw's Gateway protocol, HTTP and the
 command line.
"""
    sums = "".join(f"{hashlib.md5(entry.content).hexdigest()}  {path[2:]}\n"
                   for path, entry in sorted(files.items()) if entry.link is None)
    meta = {"./control": Entry(control.encode()), "./md5sums": Entry(sums.encode())}
    members = [("debian-binary", b"2.0\n"), ("control.tar.gz", tar_gz(meta, build.epoch)),
               ("data.tar.gz", tar_gz(files, build.epoch))]
    return {f"toolyard_{build.version}_{build.target.deb}.deb": ar(members, build.epoch)}


def npm(build):
    """`toolyard`, a launcher, and one package per platform with the programs, which npm installs where it fits."""
    platform = f"toolyard-{build.target.npm_os}-{build.target.npm_cpu}"
    shared = {"version": build.version, "license": "Apache-2.0"}
    main = {
        "name": "toolyard", **shared, "description": content.DESCRIPTION,
        "bin": {"toolyard": "toolyard.js"}, "files": ["toolyard.js"], "engines": {"node": ">=18"},
        "optionalDependencies": {platform: build.version},
    }
    native = {
        "name": platform, **shared, "description": f"The programs of toolyard for {build.target.rust}",
        "os": [build.target.npm_os], "cpu": [build.target.npm_cpu], "libc": ["glibc"], "files": ["bin"],
    }
    licence = build.documents["share/doc/toolyard/LICENSE"]
    launcher = {"package/package.json": Entry(pretty(main)), "package/LICENSE": licence,
                "package/toolyard.js": Entry((HERE / "launcher.js").read_bytes(), 0o755),
                "package/README.md": Entry((HERE / "npm.md").read_bytes())}
    programs = {"package/package.json": Entry(pretty(native)), "package/LICENSE": licence}
    programs |= {f"package/bin/{name}": Entry(body, 0o755) for name, body in build.programs.items()}
    return {f"toolyard-{build.version}.tgz": tar_gz(launcher, build.epoch),
            f"{platform}-{build.version}.tgz": tar_gz(programs, build.epoch)}


def wheel(build):
    """A wheel whose scripts are the programs themselves, so that they lie side by side in the environment's bin."""
    info = f"toolyard-{build.version}.dist-info"
    metadata = (f"Metadata-Version: 2.4\nName: toolyard\nVersion: {build.version}\nSummary: {content.DESCRIPTION}\n"
                "License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.8\n")
    tags = f"Wheel-Version: 1.0\nGenerator: toolyard\nRoot-Is-Purelib: false\nTag: py3-none-{build.target.wheel}\n"
    entries = {f"toolyard-{build.version}.data/scripts/{name}": Entry(body, 0o755)
               for name, body in build.programs.items()}
    entries[f"{info}/METADATA"] = Entry(metadata.encode())
    entries[f"{info}/WHEEL"] = Entry(tags.encode())
    entries[f"{info}/licenses/LICENSE"] = build.documents["share/doc/toolyard/LICENSE"]
    record = "".join(f"{path},sha256={digest(entry.content)},{len(entry.content)}\n"
                     for path, entry in sorted(entries.items()))
    entries[f"{info}/RECORD"] = Entry(f"{record}{info}/RECORD,,\n".encode())
    return {f"toolyard-{build.version}-py3-none-{build.target.wheel}.whl": zipped(entries, build.epoch)}


def digest(body):
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


def libraries(folder):
    """The shared libraries that the programs load, from the machine that builds, and the loader."""
    found = {}
    for name in content.PROGRAMS:
        listed = subprocess.run(["ldd", Path(folder) / name], check=True, capture_output=True, text=True).stdout
        for line in listed.splitlines():
            paths = [word for word in line.split() if word.startswith("/")]
            if paths:
                found[paths[0].lstrip("/")] = Entry(Path(paths[0]).resolve().read_bytes(), 0o755)
    return found


def oci(build):
    """An OCI image layout, packed as one tar: glibc and certificates in one layer, Toolyard in the next."""
    base = libraries(build.folder)
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if bundle.is_file():
        base["etc/ssl/certs/ca-certificates.crt"] = Entry(bundle.read_bytes())
    base["etc/passwd"] = Entry(b"toolyard:x:10001:10001::/data:/usr/bin/toolyard\n")
    base["etc/group"] = Entry(b"toolyard:x:10001:\n")
    base["tmp/.keep"] = Entry(b"", 0o644)
    own = {f"usr/lib/toolyard/{name}": Entry(body, 0o755) for name, body in build.programs.items()}
    own["usr/bin/toolyard"] = Entry(link="../lib/toolyard/toolyard")
    own["usr/share/doc/toolyard/LICENSE"] = build.documents["share/doc/toolyard/LICENSE"]
    blobs, layers, ids = {}, [], []

    def keep(body):
        name = hashlib.sha256(body).hexdigest()
        blobs[f"blobs/sha256/{name}"] = Entry(body)
        return f"sha256:{name}"

    for entries in (base, own):
        plain = tar(entries, build.epoch)
        packed = gzip.compress(plain, 9, mtime=build.epoch)
        ids.append("sha256:" + hashlib.sha256(plain).hexdigest())
        layers.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": keep(packed),
                       "size": len(packed)})
    config = pretty({
        "architecture": build.target.oci, "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/toolyard"], "Cmd": ["up"], "User": "10001:10001",
                   "Env": ["PATH=/usr/bin", "HOME=/data", "TOOLYARD_HOME=/data", "TMPDIR=/data"],
                   "Volumes": {"/data": {}}, "WorkingDir": "/data", "StopSignal": "SIGTERM",
                   "Labels": {"org.opencontainers.image.version": build.version,
                              "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
    manifest = pretty({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                       "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": keep(config),
                                  "size": len(config)}, "layers": layers})
    index = pretty({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": keep(manifest), "size": len(manifest),
        "platform": {"architecture": build.target.oci, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": build.version}}]})
    blobs |= {"oci-layout": Entry(pretty({"imageLayoutVersion": "1.0.0"})), "index.json": Entry(index)}
    return {f"toolyard-{build.version}-{build.target.oci}.oci.tar": tar(blobs, build.epoch)}


FORMS = {"tarball": tarball, "deb": deb, "npm": npm, "wheel": wheel, "oci": oci}
