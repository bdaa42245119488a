"""Templates: features, rejected constructs, and bounded cost."""

from __future__ import annotations

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

HINT = ": write an expression as '{{ NAME }}', with two braces on each side"
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


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain { text } with 100% of # signs", "plain { text } with 100% of # signs"),
        ("A sign for {{ brand }}.\n", "A sign for Butter & Flour.\n"),
        ("{{ expect.text.required | join(' / ') }}", "A & B / C"),
        ("{{ expect.text.required[1] }}{{ metadata['font'] }}", "CFutura"),
        ("{{ case.counts.items() | list | length }} {{ case.counts['items'] }} {{ case.counts.size }}", "2 3 L"),
        ("{% for k, v in metadata.items() if v %}{{ loop.index }}:{{ k }} {% endfor %}", "1:font 2:sizes "),
        ("{{ (brand.upper() ~ '!') | replace('&', 'and') }}", "BUTTER and FLOUR!"),
        ("{% if 'text' in case.tags and 1 + 1 == 2 %}yes{% else %}no{% endif %}", "yes"),
        ("{{ 'a' if nothing is defined else 'b' }}{{ nothing | default('c') }}", "bc"),
        ("{{ '-' * 5 }}{{ 7 % 4 }}{{ 7 // 2 }}{{ [1, 2] | tojson }}", "-----33[1, 2]"),
        ("{% for n in range(3) %}{{ n }}{% endfor %}", "012"),
        ("{# a note #}{{ 'ab' | upper }}", "AB"),
        ("{{ '{{ brand }}' }}", "{{ brand }}"),
        ("a {{- brand -}} b", "aButter & Flourb"),
        ("{{ metadata.sizes | sum }}", "6"),
        (
            "{{ 7 | pad }} {{ 7 | pad(3) }} {{ -7 | pad(4) }} {{ 1234 | pad(3) }} {{ '7a' | pad(4) }} {{ 7.0 | pad(3) }}",
            "07 007 -007 1234 007a 007",
        ),
        ("{{ ('[1, {\"a\": [2, null]}]' | fromjson)[1].a }}", "[2, None]"),
        ("{% for n, s in metadata.sizes | zip(['S', 'M', 'L']) %}{{ n }}{{ s }} {% endfor %}", "1S 2M 3L "),
        ("{{ [] | zip([]) }}{{ [1] | zip | tojson }}{{ ['a'] | zip([1], [2]) | tojson }}", '[][[1]][["a", 1, 2]]'),
    ],
)
def test_rendering(text: str, rendered: str) -> None:
    assert render(text, VALUES) == rendered


ZIP = "the template cannot be rendered: zip() needs lists; use fromjson for a list in a text"
PAD = "the template cannot be rendered: pad() needs a whole number of characters from 0 to 100"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{ brnad }}",
            "undefined template variable: 'brnad' is not set (did you mean 'brand'?)",
        ),
        (
            "{% for x in nope %}{% endfor %}",
            "undefined template variable: 'nope' is not set (known: brand, case, expect, metadata)",
        ),
        ("{{ metadata.fnt }}", "undefined template variable: there is no 'fnt' (did you mean 'font'?)"),
        ("{{ brand.foo }}", "undefined template variable: there is no 'foo' in a text"),
        ("{{ [metadata.fnt] }}", "undefined template variable: there is no 'fnt' (did you mean 'font'?)"),
        ("{{ {'a': nope} ~ '' }}", "undefined template variable: 'nope' is not set (known: brand, case, expect, metadata)"),
        ("{{ lipsum() }}", "undefined template variable: 'lipsum' is not set (known: brand, case, expect, metadata)"),
        ("{{ a b }}\n", "template, line 1: expected token 'end of print statement', got 'b'" + HINT),
        ("{{ brand }}\n\n{{ brand", "template, line 3: unexpected end of template, expected 'end of print statement'" + HINT),
        ("\n{% if x %}", "template, line 2: Unexpected end of template. Jinja was looking for the following tags: "
         "'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'."),
        ("{{ brand | joined }}", "template, line 1: there is no filter 'joined' (did you mean 'join'?)"),
        ("{{ brand | shout }}", "template, line 1: there is no filter 'shout' (did you mean 'sort'?)"),
        ("{{ [1, 2] | random }}", "template, line 1: there is no filter 'random'"),
        ("{{ '{' | fromjson }}", "the template cannot be rendered: fromjson() of what is not JSON: {"),
        ("{{ 'NaN' | fromjson }}", "the template cannot be rendered: fromjson() of what is not JSON: NaN"),
        ("{{ '1e999' | fromjson }}", "the template cannot be rendered: fromjson() of what is not JSON: 1e999"),
        ("{{ [1] | fromjson }}", "the template cannot be rendered: fromjson() needs a text"),
        ("{{ ('[' * 99999) | fromjson }}", "the template is nested too deeply"),
        ("{{ ('9' * 5000) | fromjson }}", "the template cannot be rendered: a number has too many digits"),
        ("{{ [1, 2, 3] | zip([1, 2]) }}", "the template cannot be rendered: zip() of lists with 3 and 2 items"),
        ("{{ '[1]' | zip([1]) }}", ZIP),
        ("{{ [1] | zip('a') }}", ZIP),
        ("{{ [1] | zip(3) }}", ZIP),
        ("{{ 3 | zip }}", ZIP),
        ("{{ none | zip([1]) }}", ZIP),
        ("{{ 7 | pad(101) }}", f"{PAD}, not 101"),
        ("{{ 7 | pad(-1) }}", f"{PAD}, not -1"),
        ("{{ 7 | pad('x') }}", f"{PAD}, not 'x'"),
        ("{{ 7 | pad(1.5) }}", f"{PAD}, not 1.5"),
        ("{{ 7 | pad(true) }}", f"{PAD}, not True"),
        ("{{ 7 | pad(3, 4) }}", "the template cannot be rendered: pad() takes one number, the number of characters"),
        ("{{ 1 / 0 }}", "the template cannot be rendered: division by zero"),
        ("{% macro a() %}{% endmacro %}", "template, line 1: 'macro' is not allowed in a suite's templates"),
        ("{% set a = 1 %}", "template, line 1: 'assign' is not allowed in a suite's templates"),
        ("{% for a in [1] recursive %}{% endfor %}", "template, line 1: recursive loops are not allowed"),
        ("{{ case.__class__ }}", "the template cannot be rendered: access to attribute '__class__' of 'dict' object is unsafe."),
        ("{{ ', '.join(case.tags) }}", "the template cannot be rendered: 'join' cannot be called in a template"),
        ("{{ 'x'.ljust }}", "the template cannot be rendered: 'ljust' is a method: write ['ljust'] for the value of that name, or ljust() to call it"),
        ("{{ case.clear() }}", "the template cannot be rendered: access to attribute 'clear' of 'dict' object is unsafe."),
        ("{{ " + "9" * 5000 + " }}", "the template cannot be rendered: a number has too many digits"),
        ("{{ 9 ** 9999 > 1 }}", "the template cannot be rendered: a number has more than 4,096 bits"),
        ("{{ 9 ** 1200 * 9 ** 1200 > 1 }}", "the template cannot be rendered: a number has more than 4,096 bits"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "the template is nested too deeply"),
        ("{{ 1 }}" + "x" * 1_000_000, "the template has more than 1,000,000 characters"),
    ],
)  # fmt: skip
def test_invalid_templates_are_refused(text: str, message: str) -> None:
    assert refusal(text) == message


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
