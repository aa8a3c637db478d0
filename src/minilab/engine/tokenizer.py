"""Tokenizer: text to token ids and back, from tokenizer.json or from a GGUF file's own metadata.

The work is done by the ``tokenizers`` library; this module says where a tokenizer comes from.
``text_stream`` turns tokens into text one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CONTROL = 3  # token_type of llama.cpp: begin and end of text, roles of a chat


class Tokenizer:
    """Text to ids and ids to text.

    Attributes:
        backend: the ``tokenizers.Tokenizer`` behind it.
        eos_token_ids: tokens that end a text.
        chat_template: jinja2 source that turns messages into a prompt; ``None`` without.
        special_ids: tokens that are marks and not text (begin, end, roles).
    """

    def __init__(
        self,
        backend: Backend,
        eos_token_ids: Iterable[int] = (),
        chat_template: str | None = None,
    ) -> None:
        self.backend = backend
        self.eos_token_ids = tuple(eos_token_ids)
        self.chat_template = chat_template
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(key for key, token in added.items() if token.special)
        self._alphabet = _byte_alphabet() if isinstance(backend.decoder, decoders.ByteLevel) else {}

    @property
    def vocab_size(self) -> int:
        """Number of tokens, the added ones included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    @property
    def byte_level(self) -> bool:
        """Whether every token is a string of bytes (GPT-2's way, which most models follow)."""
        return bool(self._alphabet)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of ``text``; with the begin token where the model wants one.

        A chat prompt made by a template already holds its marks: say False there.
        """
        return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token of a byte-level vocabulary stands for."""
        token = self.backend.id_to_token(token_id) or ""
        try:
            return bytes(self._alphabet[sign] for sign in token)
        except KeyError:  # an added token is written as it is
            return token.encode()

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """From a checkpoint's tokenizer.json, with what tokenizer_config.json says beside it.

        Raises:
            InputError: no tokenizer.json there, or one that cannot be read.
        """
        folder = Path(path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(
                f"{folder}: no tokenizer.json; save the model's fast tokenizer there, "
                "or give prompts as token ids"
            )
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise InputError(f"{file}: cannot be read ({error})") from None
        beside = folder / "tokenizer_config.json"
        told = read_json(beside) if beside.is_file() else {}
        return cls(backend, _ends(folder, told, backend), _template(folder, told))

    @classmethod
    def from_gguf(cls, fields: Mapping[str, Any], where: str = "GGUF") -> Tokenizer:
        """From the metadata of a GGUF file, name to value.

        Raises:
            InputError: a kind of tokenizer that is not built here.
        """
        prefix = "tokenizer.ggml."
        kind, split = fields.get(prefix + "model"), fields.get(prefix + "pre", "gpt-2")
        if kind != "gpt2" or split not in ("gpt-2", "default", "smollm"):
            raise InputError(
                f"{where}: tokenizer {kind!r} with pre-tokenizer {split!r}; the engine builds "
                "byte-level BPE (gpt2) split as gpt-2 or smollm; use the model's folder with "
                "tokenizer.json and safetensors"
            )
        tokens: list[str] = fields[prefix + "tokens"]
        merges = [tuple(pair.split(" ", 1)) for pair in fields[prefix + "merges"]]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        types = fields.get(prefix + "token_type", ())
        marks = [token for token, sort in zip(tokens, types, strict=False) if sort == _CONTROL]
        backend = _byte_level(vocabulary, merges, marks, digits=split == "smollm")
        begin, end = fields.get(prefix + "bos_token_id"), fields.get(prefix + "eos_token_id")
        if fields.get(prefix + "add_bos_token") and begin is not None:
            mark = tokens[int(begin)]
            backend.post_processor = processors.TemplateProcessing(
                single=f"{mark} $A", special_tokens=[(mark, int(begin))]
            )
        ends = () if end is None else (int(end),)
        return cls(backend, ends, fields.get("tokenizer.chat_template"))

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """One token per byte (ids 0..255), then end of text (256) and two marks for chats."""
        vocabulary = _byte_alphabet()
        marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        vocabulary |= {mark: 256 + number for number, mark in enumerate(marks)}
        return cls(_byte_level(vocabulary, [], marks), (256, 258), CHATML)


def _byte_level(
    vocabulary: dict[str, int],
    merges: list[Any],
    marks: list[str],
    digits: bool = False,
) -> Backend:
    """Byte-level BPE; ``digits`` splits numbers into single digits first, as SmolLM does."""
    backend = Backend(models.BPE(vocabulary, merges))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if digits:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), split]
        )
    else:
        backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    return backend


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable sign of each byte: itself where it is visible, else 256, 257, ..."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    signs = {chr(byte): byte for byte in visible}
    return signs | {chr(256 + number): byte for number, byte in enumerate(hidden)}


def _ends(folder: Path, told: Mapping[str, Any], backend: Backend) -> list[int]:
    """End tokens: what generation_config.json lists and what the tokenizer names."""
    file = folder / "generation_config.json"
    listed = read_json(file).get("eos_token_id") if file.is_file() else None
    ends = listed if isinstance(listed, list) else [listed]
    named = told.get("eos_token")
    if isinstance(named, dict):
        named = named.get("content")
    if named:
        ends = [*ends, backend.token_to_id(named)]
    return sorted({end for end in ends if end is not None})


def _template(folder: Path, told: Mapping[str, Any]) -> str | None:
    """The chat template: a file of its own, or a field, or the field's entry "default"."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    given = told.get("chat_template")
    if isinstance(given, list):
        named = {entry["name"]: entry["template"] for entry in given}
        given = named.get("default") or next(iter(named.values()), None)
    return given
