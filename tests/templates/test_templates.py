"""Templates: features, rejected constructs, and bounded cost."""

from __future__ import annotations

import json
import pickle
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.errors import TemplateError
from visioneval.suite.loading.row_cases import literal
from visioneval.templates import render as render_module
from visioneval.templates import sandbox, steps
from visioneval.templates.render import MAX_CHARACTERS, ReadOnceLoader, Templates, render
from visioneval.templates.steps import counted, suite_counted, take_from_suite

VALUES: dict[str, Any] = {
    "brand": "Butter & Flour",
    "metadata": {"font": "Futura", "sizes": [1, 2, 3], "none": None},
    "expect": {"text": {"required": ["A & B", "C"]}},
    "case": {"id": "one", "tags": ["text"], "counts": {"items": 3, "size": "L"}},
}


def refusal(text: str) -> str:
    with pytest.raises(TemplateError) as caught:
        render(text, VALUES)
    return str(caught.value)


def test_a_file_is_compiled_once_for_all_folders_and_charged_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared.j2").write_text("{{ brand }} is open.")
    taken: list[int] = []
    monkeypatch.setattr(sandbox, "take_from_suite", taken.append)
    monkeypatch.setattr(sandbox, "_COMPILED", {})
    environments = [sandbox.Sandbox(ReadOnceLoader((tmp_path / name, tmp_path))) for name in "ab"]
    templates = [environment.get_template("shared.j2") for environment in environments]
    assert len(sandbox._COMPILED) == 1
    assert taken == [sandbox.COMPILING * len(list(environments[0].lex("{{ brand }} is open.")))] * 2
    with counted():
        assert {template.render(VALUES) for template in templates} == {"Butter & Flour is open."}
    (tmp_path / "shared.j2").write_text("{% set brand = 1 %}")
    for _ in range(2):
        with pytest.raises(jinja2.TemplateSyntaxError, match="'assign' is not allowed"):
            sandbox.Sandbox(ReadOnceLoader((tmp_path,))).get_template("shared.j2")
    assert len(sandbox._COMPILED) == 1


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """What a run renders is what its records name, on all workers, whoever edits or deletes the file meanwhile."""
    (tmp_path / "main.j2").write_text("{% include 'part.j2' %}!")
    (tmp_path / "part.j2").write_text("{{ brand }}")
    before = Templates((tmp_path,))
    digest = before.digest("main.j2")
    (tmp_path / "part.j2").write_text("New {{ brand }}")
    assert Templates((tmp_path,)).digest("main.j2") != digest
    assert Templates((tmp_path,)).render("main.j2", VALUES) == "New Butter & Flour!"
    (tmp_path / "part.j2").unlink()
    for templates in (before, pickle.loads(pickle.dumps(before))):
        assert templates.digest("main.j2") == digest
        assert templates.render("main.j2", VALUES) == "Butter & Flour!"


def cases_in(name: str) -> list[list[str]]:
    """Templates, as JSON, each with what it gives in the line after it."""
    return [entry.strip().split("\n    ") for entry in (Path(__file__).parent / name).read_text("utf-8").split("\n\n")]


@pytest.mark.parametrize(("text", "rendered"), cases_in("rendered.txt"))
def test_rendering(text: str, rendered: str) -> None:
    assert render(json.loads(text), VALUES) == json.loads(rendered)


@pytest.mark.parametrize(("text", "message"), cases_in("refused.txt"))
def test_invalid_templates_are_refused(text: str, message: str) -> None:
    assert refusal(json.loads(text)) == message


def test_large_templates_are_refused() -> None:
    digits = "the template cannot be rendered: a number has too many digits"
    assert refusal("{{ " + "9" * 5000 + " }}") == digits
    assert refusal("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}") == "the template is nested too deeply"
    assert refusal("{{ 1 }}" + "x" * 1_000_000) == "the template has more than 1,000,000 characters"


DOUBLINGS = 60


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ ['x'] * 1000000000 }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 9 ** 999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
        "{{ ('x' * 1000000) | join('y' * 1000000) }}",
        "{{ ('x' * 20000) | replace('x', 'y' * 20000) }}",  # fits into memory, unlike the one above
        "{{ ('x' * 20000) | join('y' * 20000) }}",
        "{% for a in range(9000) %}" + "{% if a %}{% endif %}" * 200 + "{% endfor %}",
        "{{ range(1000000000) | list }}",
        "{{ ['x' * 9999] * 9999 }}",
        "{{ (['x' * 9999] * 999) | join }}",
        "{{ ('x' * 9999)" + " ~ ('x' * 9999)" * 9999 + " }}",
        "{{ ('x' * 9999)" + " + ('x' * 9999)" * 9999 + " }}",
        "{{ [" + "'x' * 9999, " * 8000 + "] }}",
        "{{ ('x' * 9999)" + " ~ ('x' * 9999)" * 400 + " }}",
        "{% for a in 'x' * 9999 %}{% for b in 'x' * 9999 %}{% endfor %}{% endfor %}",
        "{% for a in [['x', 'x', 'x']] %}"
        + "{% for a in [[a, a, a]] %}" * 18
        + "{{ a == [1] }}{{ a }}"
        + "{% endfor %}" * 19,
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ 1 | pad(1000000000) }}",
        "{% for a in range(99) %}{{ ('[' ~ '1,' * 99999 ~ '1]') | fromjson | length }}{% endfor %}",
        "{% for a in range(9999) %}{{ range(999) | zip(range(999)) | length }}{% endfor %}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ [1] | batch(1000000000, 'x') | list }}",
        "{{ 'x' | indent(1000000000) }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{% set a = 'x' %}" + "{% set a = a ~ a %}" * DOUBLINGS,
        "{% set a = 'x' %}" + "{% set a = a + a %}" * DOUBLINGS,
        "{% set a = [1] %}" + "{% set a = a + a %}" * DOUBLINGS,
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * DOUBLINGS + "{{ a == [1] }}",
        "{% set a = 9 %}" + "{% set a = a * a %}" * DOUBLINGS,
        "{{ 'x' * 9999 }}" * 101,
        "{{ lipsum(n=1000000) }}",
        "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    ],
)
def test_template_cost_is_bounded(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(text)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 1024 * (1024 if before > 10**8 else 1)


def test_zeros_are_padded_by_a_filter_of_their_own() -> None:
    """``format`` can make a long text of a short one, so it is refused."""
    assert refusal("{{ '%03d' | format(7) }}").startswith("template, line 1: there is no filter 'format'")
    assert refusal("{{ '{}'.format(7) }}").endswith("'format' cannot be called in a template")


def test_a_long_text_without_signs_is_no_template() -> None:
    assert len(render("x" * 2 * MAX_CHARACTERS, {})) == 2 * MAX_CHARACTERS


def test_a_long_value_may_be_printed() -> None:
    assert render("{{ text }}", {"text": "x" * (MAX_CHARACTERS - 1)}).startswith("xx")


def test_a_long_value_may_not_be_printed_many_times() -> None:
    with pytest.raises(TemplateError, match=r"^the rendered template has more than 1,000,000 characters$"):
        render("{{ text }}" * 20, {"text": "x" * (MAX_CHARACTERS // 20 + 1)})


@given(st.text(max_size=60))
def test_the_text_of_a_dataset_renders_unchanged(text: str) -> None:
    assert render(literal(text), {}) == text


@given(st.text(alphabet="{}%# '\"\\\nab", max_size=30))
def test_braces_of_a_dataset_render_to_themselves(text: str) -> None:
    assert render(literal(text), {}) == text


@given(st.text(alphabet="{}%#-+ '\"abx~*|.()[]0", max_size=40))
def test_a_template_renders_or_is_refused_in_one_line(text: str) -> None:
    try:
        render(text, {"a": "1", "b": {"x": [1]}})
    except TemplateError as error:
        message = str(error)
        assert message
        assert "\n" not in message


@given(
    st.lists(
        st.sampled_from(["{{ a }}", "{{a}}", "{{ b.x }}", "{", "}", " ", "-", "{{ '}}' }}", "%}", "x\n"]), max_size=8
    )
)
def test_a_split_template_renders_like_the_original(parts: list[str]) -> None:
    text, seen = "".join(parts), {"a": "1", "b": {"x": [1]}}

    def outcome(template: str) -> str | None:
        try:
            return render(template, seen)
        except TemplateError:
            return None

    assert outcome(text) == outcome("{# whole #}" + text)


def test_templates_that_include_each_other_many_times_are_checked_once_each(tmp_path: Path) -> None:
    for level in range(12):
        (tmp_path / f"{level}.j2").write_text(f"{{% include '{level + 1}.j2' %}}{{{{ brand }}}}" * 10)
    (tmp_path / "12.j2").write_text("{{ metadata }}")
    templates = Templates((tmp_path,))
    assert templates.names_in("0.j2")[0] == {"brand", "metadata"}
    with pytest.raises(TemplateError, match="more than 1,000,000 steps of work"):
        templates.render("0.j2", VALUES)


@pytest.mark.parametrize("include", ["", "{% include 'other.j2' %}"])
def test_a_number_of_too_many_digits_is_an_error_of_the_template(tmp_path: Path, include: str) -> None:
    (tmp_path / "main.j2").write_text(f"{include}{{{{ {'9' * 5000} }}}}")
    (tmp_path / "other.j2").write_text("")
    templates = Templates((tmp_path,))
    reads = [lambda: templates.names_in("main.j2"), lambda: templates.render("main.j2", VALUES)]
    for read in [*reads, lambda: templates.files("main.j2")] if include else reads:
        with pytest.raises(TemplateError, match="cannot be rendered: a number has too many digits"):
            read()


def test_nothing_is_rendered_once_the_budget_of_the_suite_is_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render("{{ brand }}", VALUES)  # compiled now, which would be charged to the suite
    monkeypatch.setattr(render_module, "_joined", lambda parts, _: rendered.append("x") or "")
    with suite_counted(0):
        take_from_suite(steps.SUITE_TEMPLATES * 1_000_000)
        assert render("{{ brand }}", VALUES) == ""
        with suppress(steps.TooMuchWorkError):
            take_from_suite(1)
        with pytest.raises(TemplateError, match="the suite's templates take more than 50,000,000 steps of work"):
            render("{{ brand }}", VALUES)
    assert len(rendered) == 1


def test_a_method_is_not_printed() -> None:
    message = (
        "the template cannot be rendered: 'items' is a method: write ['items'] for the value of that name, or items()"
    )
    assert refusal("{{ case.counts.items }}") == f"{message} to call it"
    assert render("{{ case.counts['items'] }}", VALUES) == "3"
