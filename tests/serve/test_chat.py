"""The chat template: a stranger's program in a sandbox, and people's words as data."""

from __future__ import annotations

import pytest

from minilab.facts.errors import InputError
from minilab.serve.api_error import ApiError
from minilab.serve.chat import ChatTemplate

HELLO = [{"role": "user", "content": "hello"}]


def render(source: str | None, messages=HELLO) -> str:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).render(messages)


def test_a_model_without_a_template_gets_a_plain_one() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert render(None, messages) == "system: Be brief.\nuser: hello\nassistant:"


def test_marks_loops_and_json_work_as_in_transformers() -> None:
    """Templates in the wild use these; without them half of the models could not chat."""
    source = (
        "{{ bos_token }}{% for m in messages %}\n{% if m.role == 'tool' %}{% continue %}{% endif %}"
        "[{{ m.role }}]{{ m.content | trim }}{{ {'ä': '<'} | tojson }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    messages = [{"role": "user", "content": " hi "}, {"role": "tool", "content": "x"}]
    assert render(source, messages) == '<s>[user]hi{"ä": "<"}[assistant]'


def test_what_people_write_is_no_template() -> None:
    """Else anybody who may chat may also run code."""
    sly = [{"role": "user", "content": "{{ 7 * 7 }}{% for x in y %}"}]
    assert "{{ 7 * 7 }}{% for x in y %}" in render(None, sly)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__ }}{{ cycler.__init__.__globals__.os }}",
        "{% for i in range(10000000) %}x{% endfor %}",
    ],
    ids=["subclasses", "globals", "change", "os", "endless"],
)
def test_a_template_cannot_leave_the_sandbox(source) -> None:
    """A template comes with weights from the internet; it must not reach Python."""
    with pytest.raises(ApiError) as caught:
        render(source)
    assert caught.value.status in (400, 500)


def test_a_template_may_refuse_messages() -> None:
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
    with pytest.raises(ApiError, match="refuses these messages: system first") as caught:
        render(source)
    assert caught.value.status == 400


def test_a_template_that_is_none_is_told_with_its_line() -> None:
    with pytest.raises(InputError, match="chat template, line 2"):
        render("fine\n{% if %}")
