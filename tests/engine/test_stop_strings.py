"""Stop strings: found across cuts, never shown in part, the same however the text is cut."""

from __future__ import annotations

import random

import pytest

from minilab.engine.generation import Generation
from minilab.engine.sampling import SamplingParams
from minilab.engine.stop_strings import StopStrings
from minilab.engine.tokenizer import Tokenizer
from minilab.facts.errors import InputError


def shown(pieces: list[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    watch = StopStrings(stops, include)
    text = ""
    for piece in pieces:
        text += watch.push(piece)
        if watch.found is not None:
            return text, watch.found
    return text + watch.finish(), None


def test_a_stop_string_cut_into_tokens_is_found_and_not_shown() -> None:
    """The bug: comparing token by token, or showing "#" before "##" comes."""
    watch = StopStrings(["###"])
    assert [watch.push(piece) for piece in ("one#", "two#", "#", "#", "x")] == [
        "one",
        "#two",
        "",
        "",
        "",
    ]
    assert watch.found == "###"


def test_what_was_held_back_comes_at_the_end() -> None:
    assert shown(["a", "#", "#"], ["###"]) == ("a##", None)


def test_held_text_may_hold_the_begin_of_the_true_stop() -> None:
    """Looking only at the first possible beginning misses "aab" in "aaab"."""
    assert shown(list("xaaab!"), ["aab"]) == ("xa", "aab")


def test_the_first_complete_stop_wins_then_the_longest() -> None:
    assert shown(["abcd"], ["abcd", "bc"]) == ("a", "bc")
    assert shown(["abcd"], ["d", "cd"]) == ("ab", "cd")
    assert shown(["abcd"], ["bc"], include=True) == ("abc", "bc")


def test_cuts_change_nothing() -> None:
    """Oracle: one character at a time, looking at the whole text so far."""
    rng = random.Random(2)
    for _ in range(2000):
        text = "".join(rng.choices("ab#", k=12))
        stops = ["".join(rng.choices("ab#", k=rng.randint(1, 4))) for _ in range(2)]
        want: tuple[str, str | None] = (text, None)
        for end in range(1, len(text) + 1):
            if hits := [stop for stop in stops if text[:end].endswith(stop)]:
                longest = max(hits, key=len)
                want = (text[: end - len(longest)], longest)
                break
        pieces, rest = [], text
        while rest:
            cut = rng.randint(1, 4)
            pieces.append(rest[:cut])
            rest = rest[cut:]
        assert shown(pieces, stops) == want, (pieces, stops)


def test_no_part_of_a_stop_string_is_ever_shown() -> None:
    """What was shown must be a beginning of the final text at every moment."""
    rng = random.Random(3)
    tokenizer = Tokenizer.of_bytes()
    for _ in range(200):
        said = "".join(rng.choices(["a", "b", "é", "🙂", "##"], k=10)) + "é##"
        params = SamplingParams(max_tokens=100, stop="é##")
        text = Generation([1], params, tokenizer)
        seen = []
        for byte in said.encode():
            text.push(byte, ())
            seen.append(text.text)
            if text.finish_reason:
                break
        assert text.finish_reason == "stop" and text.stop_reason == "é##"
        assert text.text == said[: said.index("é##")]
        assert all(text.text.startswith(part) for part in seen)


def test_what_ended_a_text_is_shown_only_if_asked_for() -> None:
    tokenizer = Tokenizer.of_bytes()
    cases = [
        (SamplingParams(stop_token_ids=[0x42]), "A", "stop", 0x42),
        (
            SamplingParams(stop_token_ids=[0x42], include_stop_str_in_output=True),
            "AB",
            "stop",
            0x42,
        ),
        (SamplingParams(stop=["B"], include_stop_str_in_output=True), "AB", "stop", "B"),
        (SamplingParams(stop="BC", max_tokens=2), "AB", "length", None),
    ]
    for params, words, reason, why in cases:
        text = Generation([1], params, tokenizer)
        for token in (0x41, 0x42):
            text.push(token, (256,))
        assert (text.text, text.finish_reason, text.stop_reason) == (words, reason, why)
        assert text.output == [0x41, 0x42]


def test_an_end_token_stops_unless_ignored_and_half_a_character_is_told() -> None:
    tokenizer = Tokenizer.of_bytes()
    text = Generation([1], SamplingParams(), tokenizer)
    for token in (0x41, 0xC3, 256):
        text.push(token, (256,))
    assert (text.text, text.finish_reason, text.stop_reason) == ("A\ufffd", "stop", None)
    text = Generation([1], SamplingParams(ignore_eos=True, max_tokens=3), tokenizer)
    for token in (256, 0x41, 0x42):
        text.push(token, (256,))
    assert (text.text, text.finish_reason) == ("AB", "length")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InputError, match="stop string is empty"):
        StopStrings(["a", ""])
