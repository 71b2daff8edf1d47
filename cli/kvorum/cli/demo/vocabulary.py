"""Vocabulary of the tiny model: the words and marks of the demo's own text, one token each."""

from __future__ import annotations

import json
import re
from typing import Final

from kvorum.cli.demo import script

UNKNOWN: Final = "<unk>"
START: Final = "<start>"
END: Final = "<end>"

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "<start>{{ message['role'] }} {{ message['content'] }}<end>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant {% endif %}"
)

_PIECES: Final = re.compile(r"\w+|[^\w\s]+")
_ROLES: Final = "system user assistant"


def words() -> list[str]:
    """Return every token in the order of its id, the special ones first."""
    text = " ".join((_ROLES, script.KNOWLEDGE, *script.QUESTIONS))
    return [UNKNOWN, START, END, *sorted(set(_PIECES.findall(text)))]


def tokenizer_json() -> str:
    """Return the definition of the tokenizer in the format of the `tokenizers` library."""
    ids = {word: index for index, word in enumerate(words())}
    special = [
        {
            "id": ids[word],
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for word in (UNKNOWN, START, END)
    ]
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": UNKNOWN},
    }
    return json.dumps(definition, ensure_ascii=False)
