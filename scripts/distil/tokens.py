"""Writes what the teacher's tokenizer makes of some texts, for the tests of crates/text.

    python tokens.py texts.jsonl ../../crates/text/tests/it/tokens.tsv
"""

import json
import random
import sys

from export import is_known_script
from teacher import tokenizer

ODD = [
    "Caf\u00e9 na\u00efve \u0141\u00f3d\u017a \u00dcber stra\u00dfe", "\u4f60\u597d\uff0c\u4e16\u754c API2", "\u67e5\u8be2\u5929\u6c14",
    "\u092e\u094c\u0938\u092e \u0915\u0940 \u091c\u093e\u0928\u0915\u093e\u0930\u0940", "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "e-mail: a.b+c@example.org, https://x.example/y?z=1#w", "100% \u20ac5 \u00a37 ~8 ^9 `x` $HOME", "don't can't it's y'all",
    "getHTTPResponse2 snake_case kebab-case dotted.name", "\u201cquotes\u201d \u2018single\u2019 \u2013 dash \u2014 em \u2026 dots",
    "soft\u00adhyphen zero\u200bwidth nb\u00a0space", "\u2122 \u00ae \u00a9 \u00b0C \u00b5m x\u00b2 \u00bd", "\U0001f600 smile \U0001f680", "A" * 99 + " " + "b" * 120,
    "\ufb01ne \u0133 \u01c6", "I\u0307stanbul \u0130stanbul ISTANBUL", "x\u0301\u0302y", "...!!!???", "1,234.56 3.14e-10 0xFF",
]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = [json.loads(line)["text"] for line in open(sys.argv[1])]
    odd = [text for text in ODD if is_known_script(text)]
    texts = odd + [text for text in random.Random(3).sample(lines, 260) if len(text) < 160 and is_known_script(text)]
    cut = tokenizer()
    with open(sys.argv[2], "w") as out:
        for text in texts:
            pieces = [piece for piece in cut.encode(text, add_special_tokens=False).tokens if piece != "[UNK]"]
            out.write(" ".join(text.split("\t")).replace("\n", " ") + "\t" + " ".join(pieces) + "\n")


if __name__ == "__main__":
    main()
