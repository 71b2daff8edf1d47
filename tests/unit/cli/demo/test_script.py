"""Goal: the prompts are static first and of the size that the demo promises."""

from __future__ import annotations

from kvorum.cli.demo import script, vocabulary
from kvorum.cli.demo.play import DemoOptions


def test_questions_are_different_and_enough() -> None:
    assert len(set(script.QUESTIONS)) == len(script.QUESTIONS)
    assert script.MAIN_QUESTIONS == 12
    options = DemoOptions()
    assert options.main_questions == 12
    assert len(options.questions) == 16
    short = DemoOptions(short=True)
    assert short.main_questions < len(short.questions) < 16


def test_what_differs_comes_last() -> None:
    for question in script.QUESTIONS:
        first, last = script.messages(question)
        assert first == {"role": "system", "content": script.KNOWLEDGE}
        assert last == {"role": "user", "content": question}
        assert len(question) < 100


def test_the_tiny_vocabulary_knows_every_word() -> None:
    words = vocabulary.words()
    assert len(words) == len(set(words))
    assert words[:3] == [vocabulary.UNKNOWN, vocabulary.START, vocabulary.END]
    assert {"Quillmere", "bicycle", "system", "assistant", "?"} <= set(words)
    assert vocabulary.tokenizer_json() == vocabulary.tokenizer_json()
