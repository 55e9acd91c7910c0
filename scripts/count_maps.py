#!/usr/bin/env python3
"""Counts JSON that has no type, and fails above a ceiling.

Counted in crates/*/src:
  json!    `json!(..)`: an object written without a type.
  maps     `Map<String, Value>` as a type.
  aliases  a name for that type (`Object` of crates/service, `Payload` of crates/mcp): other people's payloads.
  indexed  a JSON object read by a word: `x["key"]`, `.get("key")`, `.get_mut`, `.pointer`, `.remove`, `.contains_key`.

Not counted: comments and strings; code under `#[cfg(test)]`, files that only tests compile, and `bench`, which drives the
program from outside as a test does; a tool's arguments and data (what is called `args`, `arguments` or `data`: a tool may
have any); `.get` on what is not JSON (headers, attributes, environment); and the files in OPEN, each with its reason.

    python3 scripts/count_maps.py            the three sums, checked against CEILING
    python3 scripts/count_maps.py --files    the same by file, and what OPEN leaves out
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What must not grow.
CEILING = {"json!": 60, "maps": 59, "indexed": 40, "aliases": 90}

WIRE = "another system's messages"
SCHEMA = "JSON Schemas, which have no fixed fields"
ARGUMENTS = "the arguments and the data of any tool"
OPEN = {
    "crates/bridge/src/frames.rs": WIRE,
    "crates/bridge/src/plugin/": WIRE + ": Claude Code's MCP",
    "crates/context/src/wire/": WIRE + ": OpenViking's",
    "crates/mcp/src/wire/": WIRE + ": MCP's",
    "crates/mcp/src/revision.rs": WIRE + ": what revisions of MCP write differently",
    "crates/mcp/src/client/offers.rs": WIRE + ": what an MCP server says of its tools, forwarded as it is",
    "crates/mcp/src/client/definition.rs": WIRE + ": what an MCP server says of its tools",
    "crates/mcp/src/server/tools.rs": WIRE + ": tools/call and its results, forwarded as they are",
    "crates/hooks/src/payload.rs": WIRE + ": events of coding agents' hooks",
    "crates/hooks/src/classify.rs": WIRE + ": inputs of coding agents' tools",
    "crates/toolyard/src/clients/": WIRE + ": settings files of clients, of which most is kept as it is",
    "crates/knowledge/src/embed/": WIRE + ": Ollama's and OpenAI's HTTP interfaces",
    "crates/catalog/src/registry/marks.rs": SCHEMA,
    "crates/catalog/src/policy/secrets.rs": "the arguments of tools, in which rules name secrets",
    "crates/engine/src/secrets.rs": "the arguments of tools, in which secrets are replaced",
    "crates/engine/src/secrets/": "the arguments of tools, in which secrets are replaced",
    "crates/catalog/src/registry/schema.rs": SCHEMA,
    "crates/catalog/src/search/index.rs": SCHEMA,
    "crates/catalog/src/surface/directory.rs": SCHEMA,
    "crates/engine/src/builtin.rs": SCHEMA,
    "crates/engine/src/builtin/schema.rs": SCHEMA,
    "crates/engine/src/plan/schema_path.rs": SCHEMA,
    "crates/engine/src/plan/check/": SCHEMA,
    "crates/protocol/src/schema.rs": SCHEMA,
    "crates/protocol/src/schema_text.rs": SCHEMA,
    "crates/service/src/params/check.rs": SCHEMA,
    "crates/toolyard/src/config/page.rs": SCHEMA,
    "crates/toolyard/src/method_reference.rs": SCHEMA,
    "crates/toolyard/src/typescript.rs": SCHEMA,
    "crates/toolyard/src/config/secrets.rs": SCHEMA,
    "crates/toolyard/src/config/patch.rs": "JSON merge patches over the configuration, which may name any key",
    "crates/toolyard/src/shared_config/split.rs": "JSON merge patches over the configuration, which may name any key",
    "crates/toolyard/src/commands/config.rs": "JSON merge patches over the configuration, which may name any key",
    "crates/plugins/src/install/dependencies.rs": WIRE + ": npm's lockfiles, of which most is kept as it is",
    "crates/fuzz-targets/": "drives the parsers from outside, as a test does",
    "crates/engine/src/plan/reference/resolve.rs": ARGUMENTS,
    "crates/engine/src/plan/executor/": ARGUMENTS,
    "crates/toolsearch/src/arguments.rs": ARGUMENTS,
    "crates/toolsearch/src/code.rs": ARGUMENTS,
    "crates/vault/src/tools/": ARGUMENTS,
}

# Receivers that are no JSON.
NOT_JSON = r"(?:headers?(?:\(\))?|attributes?|attrs|rels|env|vars|query|metadata(?:\(\))?|FOLDED)"

PATTERNS = {
    "json!": re.compile(r"\bjson!\s*[(\[{]"),
    "maps": re.compile(r"\bMap\s*<\s*String\s*,\s*(?:serde_json::)?Value\s*>"),
    "indexed": re.compile(
        r"(?<=[\w\])])\[\"s\"\]|\.(?:get|get_mut|pointer|remove|contains_key)\(\s*\"s\"\s*\)"
    ),
}
# Tool arguments: `args: Option<&'a Map<String, Value>>`, `args.get("path")`.
ARGUMENT = re.compile(
    r"\b(?:args|arguments|data)\b\s*[:=]\s*(?:&|mut\b|'\w+|Option\s*<|Arc\s*<|Some\(|\s)*(?:serde_json::)?"
    r"Map\s*<\s*String\s*,\s*Value\s*>|\bargs(?:\.\w+\(\s*\"s\"\s*\)|\[\"s\"\])"
)
ALIAS = re.compile(r"\btype\s+(\w+)\s*=\s*(?:serde_json::)?Map\s*<\s*String\s*,\s*(?:serde_json::)?Value\s*>")


def without_text(source):
    """The source without comments, and with every string literal as `"s"`; lines keep their numbers."""
    out, at, end = [], 0, len(source)
    raw = re.compile(r'b?r(#*)"')
    char = re.compile(r"b?'(\\.[^']*|[^'\\])'")
    while at < end:
        if source.startswith("//", at):
            stop = source.find("\n", at)
            at = end if stop < 0 else stop
            continue
        if source.startswith("/*", at):
            stop = source.find("*/", at)
            stop = end if stop < 0 else stop + 2
            out.append("\n" * source.count("\n", at, stop))
            at = stop
            continue
        in_word = at > 0 and (source[at - 1].isalnum() or source[at - 1] == "_")
        literal = None if in_word else raw.match(source, at)
        if literal:
            close = '"' + literal.group(1)
            stop = source.find(close, literal.end())
            stop = end if stop < 0 else stop + len(close)
            out.append('"s"' + "\n" * source.count("\n", at, stop))
            at = stop
            continue
        if source[at] == '"':
            stop = at + 1
            while stop < end and source[stop] != '"':
                stop += 2 if source[stop] == "\\" else 1
            out.append('"s"' + "\n" * source.count("\n", at, stop))
            at = stop + 1
            continue
        literal = None if in_word else char.match(source, at)
        if literal:
            out.append("' '")
            at = literal.end()
            continue
        out.append(source[at])
        at += 1
    return "".join(out)


TESTED = re.compile(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?")


def without_tests(code):
    """The code without items under `#[cfg(test)]`, and the modules among them that lie in files of their own."""
    modules = []
    while found := TESTED.search(code):
        module = re.match(r"mod (\w+);", code[found.end() :])
        if module:
            modules.append(module.group(1))
        at, depth = found.end(), 0
        while at < len(code):
            letter = code[at]
            at += 1
            if letter in "{([":
                depth += 1
            elif letter in "})]":
                depth -= 1
                if depth == 0 and letter == "}":
                    break
            elif letter in ";," and depth == 0:
                break
        code = code[: found.start()] + code[at:]
    return code, modules


def sources():
    """Every file of crates/*/src with its code, without what only tests compile."""
    texts, tests = {}, set()
    for path in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        code, modules = without_tests(without_text(path.read_text()))
        folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        for module in modules:
            tests |= {folder / f"{module}.rs", folder / module}
        texts[path] = code
    return {path: code for path, code in texts.items() if not any(test in (path, *path.parents) for test in tests)}


def reason(name):
    return next((why for place, why in OPEN.items() if name == place or (place.endswith("/") and name.startswith(place))), None)


def counts(code, aliases):
    code = ARGUMENT.sub("", code)
    code = re.sub(r"\b" + NOT_JSON + r"\s*\.(?:get|remove|contains_key)\(\s*\"s\"\s*\)", "", code)
    found = {kind: len(pattern.findall(code)) for kind, pattern in PATTERNS.items()}
    found["aliases"] = sum(len(re.findall(rf"(?<![\w:.]){alias}(?![\w:])", code)) for alias in aliases)
    return found


def main():
    texts = sources()
    # An alias counts wherever its crate uses it, unless it is named for a tool's arguments.
    aliases = {}
    for path, code in texts.items():
        crate = path.relative_to(ROOT).parts[1]
        named = (name for name in ALIAS.findall(code) if name not in ("Args", "Arguments"))
        aliases.setdefault(crate, set()).update(named)
    rows, left_out = [], []
    for path, code in texts.items():
        name = str(path.relative_to(ROOT))
        row = counts(code, aliases.get(path.relative_to(ROOT).parts[1], ()))
        if any(row.values()):
            (left_out if reason(name) else rows).append((name, row))
    if "--files" in sys.argv:
        for title, listed in (("counted", rows), ("left out", left_out)):
            print(title)
            for name, row in listed:
                numbers = "".join(f"{row[kind]:5}" for kind in CEILING)
                print(f"{numbers}  {name}  {reason(name) or ''}".rstrip())
    sums = {kind: sum(row[kind] for _, row in rows) for kind in CEILING}
    print(", ".join(f"{kind} {sum}" for kind, sum in sums.items()))
    above = [f"{kind}: {sums[kind]} of at most {most}" for kind, most in CEILING.items() if sums[kind] > most]
    if above:
        print("JSON without types has grown: " + "; ".join(above) + ". Give what is ours a struct (see AGENTS.md).")
    missing = [place for place in OPEN if not (ROOT / place).exists()]
    if missing:
        print("OPEN names what is not there: " + ", ".join(missing))
    return 1 if above or missing else 0


if __name__ == "__main__":
    sys.exit(main())
