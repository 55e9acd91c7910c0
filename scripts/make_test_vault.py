#!/usr/bin/env python3
"""Writes a vault of notes for tests: several languages, links, tags, code, odd names, huge and empty files.

    make_test_vault.py OUT [--notes 320] [--seed 7] [--mean-bytes 1200]

The same arguments give the same bytes. Everything here is made up.
"""
import argparse
import pathlib
import random

TOPICS = {
    "garden": "soil compost tomato seedling watering pruning mulch greenhouse beans frost harvest trellis slugs rain barrel",
    "bicycle": "chain brake saddle wheel spoke tyre pump gear pedal frame lock helmet route hill workshop",
    "cooking": "oven bread yeast flour onion garlic simmer stock knife pan recipe butter salt roast dough",
    "music": "guitar chord melody rhythm tempo scale rehearsal record bass drums harmony tune string concert practice",
    "work": "meeting deadline review budget client draft release roadmap ticket estimate interview report quarter owner scope",
    "travel": "train ticket hostel museum harbour passport luggage border mountain ferry map delay platform coast itinerary",
    "health": "sleep exercise stretching breathing appointment posture knee running headache vitamin energy routine rest doctor walk",
    "computing": "server index latency cache thread query schema backup branch merge compiler kernel socket vector parser",
    "reading": "novel chapter author essay library character plot poem translation history biography shelf margin quote review",
    "home": "roof window paint heating lamp shelf kitchen carpet drill screw leak insulation garage neighbour lease",
}
GLUE = ("the and with for about after before because while then again still often never always maybe today yesterday "
        "small large early late good better careful quick simple old new second first last other same").split()
VERBS = "needs got moved fixed bought tried found kept lost learned checked planned wrote asked finished started".split()
SENTENCES = {
    "de": ["Heute habe ich den Garten umgegraben und die Tomaten gepflanzt.", "Die Straße nach Köln war gesperrt, also fuhr ich mit dem Zug.",
           "Der Kuchen ist mir verbrannt; nächstes Mal weniger Hitze.", "Übermorgen kommt die Müllabfuhr früher als sonst."],
    "fr": ["Le train pour Lyon était en retard de vingt minutes.", "J'ai acheté du pain, du fromage et des pommes au marché.",
           "La fenêtre de la cuisine laisse passer l'air froid.", "Il faut rappeler le médecin avant vendredi."],
    "es": ["El perro del vecino ladra todas las noches.", "Mañana vamos a la playa si no llueve.", "La receta lleva ajo, aceite y limón."],
    "ja": ["今日は天気がよかったので公園を散歩しました。", "黒い猫が庭で寝ていた。", "新しい自転車を買う予定です。", "東京駅で友達に会った。"],
    "zh": ["今天天气很好,我们去公园散步。", "他买了一辆蓝色的自行车。", "会议改到星期三下午。", "厨房的水龙头漏水了。"],
    "ko": ["오늘은 날씨가 좋아서 공원에 갔다.", "새 자전거를 사고 싶다.", "회의는 수요일로 옮겨졌다."],
    "hi": ["आज मौसम बहुत अच्छा है।", "मैंने नई साइकिल खरीदी।", "बैठक बुधवार को होगी।", "रसोई का नल टपक रहा है।"],
    "ar": ["الطقس جميل اليوم وذهبنا إلى الحديقة.", "اشتريت دراجة جديدة.", "تأجل الاجتماع إلى يوم الأربعاء."],
    "ru": ["Сегодня хорошая погода, мы гуляли в парке.", "Я купил новый велосипед.", "Встреча перенесена на среду."],
    "th": ["วันนี้อากาศดีมาก", "ฉันซื้อจักรยานคันใหม่"],
}
CODE = ["```rust\nfn main() {\n    println!(\"{}\", answer_{n}());\n}\n```", "```sh\nrsync -av --delete notes/ backup_{n}/\n```",
        "```python\ndef total_{n}(rows):\n    return sum(r.amount for r in rows)\n```", "    indented = code_{n}\n"]
ODD_NAMES = ["100% sure", "a & b", "it's", "näïve café", "日本語のノート", "हिन्दी", "emoji 🙂 note", "trailing.dots..", "UPPER lower",
             "quote \"inside\"", "semi;colon", "equals=sign", "plus+plus", "(brackets) [square]", "tilde~", "hash # sign", "comma, comma",
             "x" * 120, "dash — dash", "%41 percent", "dollar $5", "back`tick"]


def sentence(rng, topic):
    words = TOPICS[topic].split()
    parts = [rng.choice(GLUE), rng.choice(words), rng.choice(VERBS), rng.choice(GLUE), rng.choice(words)]
    for _ in range(rng.randint(2, 9)):
        parts.append(rng.choice(words if rng.random() < 0.4 else GLUE))
    text = " ".join(parts)
    return text[0].upper() + text[1:] + "."


def body(rng, number, names, mean):
    topic, other = rng.sample(sorted(TOPICS), 2)
    wanted = max(80, int(rng.expovariate(1 / mean)))
    lines, size, level = [], 0, 1
    while size < wanted:
        kind = rng.random()
        if kind < 0.12:
            level = rng.randint(1, min(4, level + 1))
            block = "#" * level + " " + rng.choice(TOPICS[topic].split()).capitalize() + " " + str(rng.randint(1, 99))
        elif kind < 0.20:
            block = "\n".join(f"- {sentence(rng, other)}" for _ in range(rng.randint(2, 5)))
        elif kind < 0.26:
            block = rng.choice(CODE).replace("{n}", str(number))
        elif kind < 0.32:
            language = rng.choice(sorted(SENTENCES))
            block = " ".join(rng.sample(SENTENCES[language], 2))
        elif kind < 0.40 and names:
            link = rng.choice(names)
            block = f"See [[{link}]] and [the other]({rng.choice(names).replace(' ', '%20')}.md). {sentence(rng, topic)}"
        elif kind < 0.44:
            block = f"#{topic} #{topic}/{rng.choice(TOPICS[topic].split())}"
        elif kind < 0.47:
            block = "| item | amount |\n|---|---|\n" + "\n".join(f"| {w} | {rng.randint(1, 90)} |" for w in rng.sample(TOPICS[topic].split(), 3))
        elif kind < 0.49:
            block = rng.choice(["Anna owes me $%d since May." % rng.randint(5, 90), "Therapy moved to Tuesday.", "Paid 40 € for the repair."])
        else:
            block = " ".join(sentence(rng, topic) for _ in range(rng.randint(1, 6)))
        lines.append(block)
        size += len(block.encode())
    return topic, "\n\n".join(lines) + "\n"


def front_matter(rng, topic, number):
    if rng.random() < 0.5:
        return ""
    lines = ["---"]
    if rng.random() < 0.5:
        lines.append(f"title: {topic.capitalize()} note {number}")
    lines.append(rng.choice([f"tags: [{topic}, made-up]", f"tags:\n  - {topic}\n  - made-up", f"tags: {topic}"]))
    if rng.random() < 0.4:
        lines.append(f"aliases: [\"{topic} {number}\", A{number}]")
    if rng.random() < 0.3:
        lines.append(f"created: 20{rng.randint(18, 25)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}")
    return "\n".join(lines + ["---", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--notes", type=int, default=320)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--mean-bytes", type=int, default=1200)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    folders = ["", "Projects", "Projects/2024", "Journal", "People", "日記", "Area 51", "deep/er/and/deeper"]
    names, count = [], 0

    def put(path, data):
        nonlocal count
        target = args.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if isinstance(data, bytes) else data.encode())
        count += 1

    for name in ODD_NAMES:
        topic, text = body(rng, count, names, args.mean_bytes)
        put(f"Odd/{name}.md", front_matter(rng, topic, count) + text)
        names.append(name)
    put("Empty.md", b"")
    put("Blank.md", b"\n\n   \n")
    put("Only front matter.md", "---\nmood: calm\nplace: [home]\n---\n")
    put("Byte order mark.md", "\ufeff# Marked\nText after the mark.\n")
    put("CRLF.md", "# Lines\r\nend\r\nas they\r\ndid once.\r\n")
    put("Unclosed.md", "---\nnever: closed\n\n```\nstill code\n")
    put("Latin1.md", "caf\xe9 cr\xe8me\n".encode("latin-1"))
    put("Binary.md", bytes(range(256)) * 8)
    put("One line.md", "word " * 4000)
    put("No spaces.md", "長い文章が続く" * 800)
    put("Huge.md", "".join(f"## Part {i}\n{sentence(rng, 'reading')} {sentence(rng, 'travel')}\n\n" for i in range(6000)))
    put("Templates/Daily.md", "# {{date}}\n\n## Plan\n")
    put(".obsidian-ragignore", "Templates/\n")
    put(".obsidian/app.json", "{}")
    put("zzz-Archive/Old.md", "Archived and never indexed.\n")
    put("picture.png", bytes(64))
    number = 0
    while count < args.notes + 4:
        number += 1
        folder = rng.choice(folders)
        if folder == "Journal":
            name = f"20{rng.randint(22, 25)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
            text = f"#DayInShort\n{sentence(rng, 'home')}\n\n#Evening\n{sentence(rng, 'reading')}\n\n" + body(rng, number, names, args.mean_bytes / 2)[1]
            if (args.out / f"Journal/{name}.md").exists():
                continue
        else:
            topic, text = body(rng, number, names, args.mean_bytes)
            name = f"{topic.capitalize()} {number}"
            text = front_matter(rng, topic, number) + text
        put(f"{folder}/{name}.md" if folder else f"{name}.md", text)
        names.append(name)
    print(count)


if __name__ == "__main__":
    main()
