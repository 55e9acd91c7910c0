"""Checks Toolyard's receipts with scitt-cose. Prints a line for each check, as ../external.sh wants it."""

import base64
import json
import sys

from scitt_cose.receipt import verify_receipt

failed = False


def check(what: str, holds: bool) -> None:
    global failed
    failed = failed or not holds
    print(("ok  " if holds else "FAILED  ") + what)


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        receipt = json.load(file)
    cose = base64.b64decode(receipt["cose"])
    leaf = receipt["leaf"].encode()
    good = verify_receipt(cose, leaf_entry_hex=leaf.hex(), log_public_key_pem=receipt["keyPem"])
    check(f"scitt-cose verifies the receipt of run {receipt['runId']}: {good.errors}", good.ok)
    check("its leaf is where the receipt says", good.leaf_index == receipt["index"])
    check("its subject is the run", good.subject == f"run {receipt['runId']}")
    other = verify_receipt(cose, leaf_entry_hex=(leaf + b" ").hex(), log_public_key_pem=receipt["keyPem"])
    check("scitt-cose refuses another leaf", not other.ok)
    changed = cose[:-1] + bytes([cose[-1] ^ 1])
    broken = verify_receipt(changed, leaf_entry_hex=leaf.hex(), log_public_key_pem=receipt["keyPem"])
    check("scitt-cose refuses another signature", not broken.ok)

sys.exit(1 if failed else 0)
