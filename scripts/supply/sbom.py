#!/usr/bin/env python3
"""Writes a software bill of materials (CycloneDX 1.6, JSON) of the program to standard output.

usage: cargo metadata --locked --format-version 1 | sbom.py Cargo.lock > toolyard.cdx.json

Packages, licences and edges come from `cargo metadata`, checksums from Cargo.lock. The same inputs give the same bytes:
there is no timestamp, and the serial number is derived from Cargo.lock. A package that only builds or tests need has the
scope "excluded". The result is checked against the required fields before it is written.
"""
import hashlib
import json
import pathlib
import re
import sys
import uuid

PROGRAM = "toolyard"


def checksums(lock):
    """(name, version) -> SHA-256 of the package file, from Cargo.lock."""
    found = {}
    for block in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "([^"]*)"$', block, flags=re.M))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def licence(text):
    """Cargo's older `MIT/Apache-2.0` as the SPDX expression it means."""
    return " OR ".join(part.strip() for part in text.split("/"))


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def shipped(metadata, root):
    """Ids of the packages that are linked into the program: reached from it by normal dependencies alone."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    reached, queue = {root}, [root]
    while queue:
        for dependency in nodes[queue.pop()]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] not in reached:
                reached.add(dependency["pkg"])
                queue.append(dependency["pkg"])
    return reached


def component(package, sums, scope):
    made = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "scope": scope,
        "purl": reference(package),
    }
    if package.get("description"):
        made["description"] = " ".join(package["description"].split())
    if package.get("license"):
        made["licenses"] = [{"expression": licence(package["license"])}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return made


def bill(metadata, lock):
    sums = checksums(lock)
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(id for id in metadata["workspace_members"] if packages[id]["name"] == PROGRAM)
    linked = shipped(metadata, root)
    components = [
        component(package, sums, "required" if id in linked else "excluded")
        for id, package in packages.items()
        if id != root
    ]
    program = component(packages[root], sums, "required") | {"type": "application"}
    program.pop("scope")
    edges = [
        {
            "ref": reference(packages[node["id"]]),
            "dependsOn": sorted({reference(packages[dep["pkg"]]) for dep in node["deps"]}),
        }
        for node in metadata["resolve"]["nodes"]
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "toolyard:" + hashlib.sha256(lock.encode()).hexdigest())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "scripts/supply/sbom.py"}]},
            "component": program,
        },
        "components": sorted(components, key=lambda c: c["bom-ref"]),
        "dependencies": sorted(edges, key=lambda e: e["ref"]),
    }


def problems(made, lock):
    """What is missing from a bill: required fields, packages of Cargo.lock, hashes, licences, ends of edges."""
    found = []
    for key in ("bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"):
        if key not in made:
            found.append(f"{key} is missing")
    if found:
        return found
    everything = [made["metadata"]["component"], *made["components"]]
    references = [c["bom-ref"] for c in everything]
    if len(set(references)) != len(references):
        found.append("a bom-ref is used twice")
    sums = checksums(lock)
    named = {(c["name"], c["version"]) for c in everything}
    found += [f"{name} {version} is in Cargo.lock and not in the bill" for name, version in sums.keys() - named]
    for c in everything:
        where = f"{c.get('name')} {c.get('version')}"
        found += [f"{where}: {key} is missing" for key in ("type", "name", "version", "purl") if not c.get(key)]
        if (c["name"], c["version"]) in sums and not c.get("hashes"):
            found.append(f"{where}: its hash is missing")
        if not c.get("licenses"):
            found.append(f"{where}: its licence is missing")
    known = set(references)
    for edge in made["dependencies"]:
        found += [f"{edge['ref']}: an edge to or from an unknown package" for ref in [edge["ref"], *edge["dependsOn"]] if ref not in known]
    return sorted(set(found))


def main():
    lock = pathlib.Path(sys.argv[1]).read_text()
    made = bill(json.load(sys.stdin), lock)
    wrong = problems(made, lock)
    for problem in wrong:
        print(f"error: {problem}", file=sys.stderr)
    if wrong:
        return 1
    json.dump(made, sys.stdout, indent=1, ensure_ascii=False)
    print()
    scopes = [c["scope"] for c in made["components"]]
    print(f"{len(scopes)} components, {scopes.count('required')} of them in the program", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
