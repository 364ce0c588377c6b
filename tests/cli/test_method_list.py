"""Lists of methods: read without running anything in them."""

import pytest

from slimdp_tf.cli.method_list import MethodCall, read_methods

KNOWN = ["plump", "quant", "slim"]


def test_reads_names_calls_and_labels():
    text = "plump, slim(alpha=.1,memory='a,b (c'), mine = slim(q=2, c='auto'),my_package.my_method(on=True, n=None)"
    assert read_methods(text, KNOWN) == [
        MethodCall("plump", "plump", {}),
        MethodCall("slim(alpha=0.1, memory=a,b (c)", "slim", {"alpha": 0.1, "memory": "a,b (c"}),
        MethodCall("mine", "slim", {"q": 2, "c": "auto"}),
        MethodCall("my_package.my_method(on=True, n=None)", "my_package.my_method", {"on": True, "n": None}),
    ]


def test_all_stands_for_every_method():
    assert [call.name for call in read_methods("all,other=slim(p=2)", KNOWN)] == [*KNOWN, "slim"]


def test_empty_brackets_are_the_defaults():
    assert read_methods("slim()", KNOWN) == [MethodCall("slim", "slim", {})]


@pytest.mark.parametrize(
    "text", ["slim(0.1)", "slim(alpha=0.1", "slim(**x)", "f()()", "'slim'", "slim[0]", "import os", "a=b=slim", "1+1"]
)
def test_other_forms_are_refused(text):
    with pytest.raises(ValueError, match="must be written as name, name\\(option=value, ...\\)"):
        read_methods(text, KNOWN)


@pytest.mark.parametrize("value", ["carry", "__import__('os').getcwd()", "[x for x in y]", "1+x"])
def test_values_are_literals(value):
    with pytest.raises(ValueError, match="value of memory must be a number, True, False, None or text in quotes"):
        read_methods(f"slim(memory={value})", KNOWN)


def test_forgotten_quotes_are_guessed():
    with pytest.raises(ValueError, match="Did you mean memory='carry'"):
        read_methods("slim(memory=carry)", KNOWN)


@pytest.mark.parametrize("text", ["", " , "])
def test_nothing_is_refused(text):
    with pytest.raises(ValueError, match="at least one"):
        read_methods(text, KNOWN)


def test_the_same_label_twice_is_refused():
    with pytest.raises(ValueError, match="Received twice: plump"):
        read_methods("plump,slim,plump", KNOWN)
