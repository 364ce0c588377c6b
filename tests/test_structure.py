"""docs/design.md, sections 3, 4 and 7, as tests: what may import what, and where each kind of thing may stand."""

from __future__ import annotations

import ast
import re

import pytest

from tests import sources

PRODUCT = sources.list_files("slimdp_tf")
CONFIGS = sources.list_files("configs")
TOOLS = sources.list_files("tools")
TESTS = sources.list_files("tests")
EVERYTHING = [*PRODUCT, *CONFIGS, *TOOLS, *TESTS, "setup.py"]

# From the bottom up: a module imports from its own layer and from those below. The longest prefix that fits counts.
LAYERS = [
    (
        "slimdp_tf.version",
        "slimdp_tf.environment",
        "slimdp_tf.types",
        "slimdp_tf.pieces",
        "slimdp_tf.chunks",
        "slimdp_tf.ranking",
    ),
    ("slimdp_tf.rules", "slimdp_tf.testing"),
    ("slimdp_tf.channel",),
    ("slimdp_tf.method",),
    ("slimdp_tf.methods",),
    ("slimdp_tf.exchange", "slimdp_tf.inspection", "slimdp_tf.arrival"),
    ("slimdp_tf.simulate", "slimdp_tf.simulate_arrivals"),
    ("slimdp_tf.planning",),
    ("slimdp_tf.distribute",),
    ("slimdp_tf.training",),
    ("slimdp_tf.cli", "slimdp_tf.bench", "configs"),
    ("slimdp_tf", "tools"),
]
# What task_process.py knows of TensorFlow: it must not import _tf.py, which imports all of it.
SERVING = [f"tensorflow.python.{name}" for name in ("tf2", "framework.errors", "training.server_lib")]
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
MEASURE = "slimdp_tf.measure"  # beside the layers: imports nothing of slimdp_tf, imported by simulate and above

LONG_FILES_ALLOWED = ("slimdp_tf/distribute/_tf.py",)  # everything that is TensorFlow's inside, and nothing else
WITHOUT_TWIN_ALLOWED = ("__init__.py", "__main__.py", "version.py")
NAMES_THAT_SAY_NOTHING = {"util", "utils", "common", "helper", "helpers", "base", "misc", "_src"}
# In pieces, so that this file passes its own test.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")


def for_each(files: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", files)


def refuse(file: str, faults: list[tuple[int, str]]) -> None:
    """Fails with one `file:line: what` for each fault."""
    if faults:
        pytest.fail("\n".join(f"{file}:{line}: {what}" for line, what in faults), pytrace=False)


def find_owner(name: str) -> str:
    """The module that a dotted name belongs to: slimdp_tf.types.State -> slimdp_tf.types."""
    while name and name not in sources.list_modules():
        name = name.rpartition(".")[0]
    return name


def find_level(module: str) -> int | None:
    """How high a module stands in LAYERS; slimdp_tf itself (its __init__.py) is at the top, unlisted ones nowhere."""
    prefix = module
    while prefix:
        if prefix in LEVELS and (prefix != "slimdp_tf" or module == "slimdp_tf"):
            return LEVELS[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def list_own_imports(file: str) -> list[tuple[int, str]]:
    """(line, module of slimdp_tf or configs) that a file imports."""
    owners = [(line, find_owner(name)) for line, name in sources.list_imports(file)]
    return [(line, owner) for line, owner in owners if owner]


@for_each([*PRODUCT, *CONFIGS])
def test_has_a_layer(file):
    module = sources.module_name(file)
    if find_level(module) is None and not is_within(module, MEASURE):
        refuse(file, [(1, f"{module} stands in no layer: place it in docs/design.md, section 4, and in LAYERS")])


@for_each([*PRODUCT, *CONFIGS])
def test_imports_go_down_only(file):
    module = sources.module_name(file)
    level = find_level(module)
    if level is None:
        return  # measure, whose own test follows; anything else has failed above
    faults = []
    for line, imported in list_own_imports(file):
        if is_within(imported, MEASURE):
            if level < LEVELS["slimdp_tf.simulate"]:
                faults.append((line, f"{module} imports {imported}: measure is for simulate and above"))
        elif (other := find_level(imported)) is None or other > level:
            faults.append((line, f"{module} imports {imported}, which stands above it"))
    refuse(file, faults)


@for_each([file for file in PRODUCT if file.startswith("slimdp_tf/measure/")])
def test_measure_stands_alone(file):
    imports = list_own_imports(file)
    refuse(file, [(line, f"measure imports {name}") for line, name in imports if not is_within(name, MEASURE)])


@for_each([file for file in PRODUCT if file.startswith("slimdp_tf/rules/")])
def test_rules_do_not_import_one_another(file):
    allowed = "slimdp_tf.rules.bits"  # how small codes are packed is for every codec
    faults = [
        (line, f"imports {name}: rules are composed in methods/, they do not know one another")
        for line, name in list_own_imports(file)
        if name.startswith("slimdp_tf.rules.") and name not in (allowed, sources.module_name(file))
    ]
    refuse(file, faults)


@for_each([*PRODUCT, *CONFIGS])
def test_keras_is_imported_in_training_only(file):
    if file.startswith(("slimdp_tf/training/", "slimdp_tf/cli/", "slimdp_tf/bench/contenders/")):
        return
    lines = {line for line, name in sources.list_names(file) if re.match(r"(keras|(tf|tensorflow)\.keras)(\.|$)", name)}
    if file == "slimdp_tf/__init__.py":
        functions = [node for node in ast.walk(sources.parse(file)) if isinstance(node, ast.FunctionDef)]
        lines -= {line for node in functions for line in range(node.lineno, node.end_lineno + 1)}
    home = "keras belongs in slimdp_tf/training, slimdp_tf/cli and slimdp_tf/bench/contenders"
    refuse(file, [(line, home) for line in sorted(lines)])


@for_each([*PRODUCT, *CONFIGS])
@pytest.mark.parametrize(
    ("private", "home"),
    [
        (r"(tf|tensorflow)\.python(\.|$)", "slimdp_tf/distribute/_tf.py"),
        (r"keras\.src(\.|$)", "slimdp_tf/training/keras_bridge.py"),
    ],
    ids=["tensorflow.python", "keras.src"],
)
def test_private_names_have_one_home(file, private, home):
    admitted = SERVING if file == "slimdp_tf/distribute/task_process.py" else []
    names = [(line, name) for line, name in sources.list_names(file) if file != home and name not in admitted]
    refuse(file, [(line, f"{name}: internals belong in {home}") for line, name in names if re.match(private, name)])


@for_each([*PRODUCT, *CONFIGS])
def test_private_attributes_are_its_own(file):
    if file == "slimdp_tf/training/keras_bridge.py" or file.startswith("slimdp_tf/distribute/"):
        return  # their tests pin each: test_keras_bridge.py, test__tf.py
    foreign = [(line, name) for line, name in sources.list_private(file) if name not in sources.list_own(file)]
    refuse(
        file, [(line, f"{name} is not its own: what is Keras's belongs in keras_bridge.py") for line, name in foreign]
    )


@for_each([*PRODUCT, *CONFIGS])
def test_devices_and_variables_stand_in_distribute_only(file):
    if file.startswith("slimdp_tf/distribute/"):
        return
    texts = [(line, text) for line, text in sources.list_texts(file) if "/job:" in text or "device:CPU" in text]
    faults = [(line, f"the device string {text!r} belongs in slimdp_tf/distribute") for line, text in texts]
    for node in ast.walk(sources.parse(file)):
        if isinstance(node, ast.Call) and sources.dotted(node.func) in ("tf.Variable", "tensorflow.Variable"):
            faults.append((node.lineno, "tf.Variable( belongs in slimdp_tf/distribute"))
    refuse(file, faults)


@for_each([*PRODUCT, *CONFIGS, *TOOLS])
def test_has_no_assert(file):
    nodes = [node for node in ast.walk(sources.parse(file)) if isinstance(node, ast.Assert)]
    refuse(file, [(node.lineno, "assert: raise ValueError or TypeError in words") for node in nodes])


def list_method_names() -> set[str]:
    """The names of the factories in methods/: plump, quant, slim."""
    files = [file for file in PRODUCT if file.startswith("slimdp_tf/methods/")]
    return {node.name for file in files for node in sources.parse(file).body if isinstance(node, ast.FunctionDef)}


@for_each([*PRODUCT, *CONFIGS])
def test_never_asks_for_a_methods_name(file):
    names = list_method_names()
    faults = []
    for node in ast.walk(sources.parse(file)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *[case.pattern for case in node.cases]]
        else:
            continue
        asked = [sources.dotted(side) for side in sides if sources.dotted(side).endswith(".name")]
        texts = {inner.value for side in sides for inner in ast.walk(side) if isinstance(inner, ast.Constant)}
        if any("method" in chain for chain in asked) or (asked and texts & names):
            faults.append((node.lineno, "asks for a method's name: let a rule decide"))
    refuse(file, faults)


@for_each(EVERYTHING)
def test_is_named_for_what_it_holds(file):
    hollow = NAMES_THAT_SAY_NOTHING & set(file.removesuffix(".py").split("/"))
    refuse(file, [(1, f"{name!r} says nothing: name it for what it holds") for name in sorted(hollow)])


@for_each([*PRODUCT, *CONFIGS, *TOOLS])
def test_is_at_most_250_lines_long(file):
    length = len(sources.read(file).splitlines())
    if length > 250 and file not in LONG_FILES_ALLOWED:
        refuse(file, [(251, f"{length} lines, at most 250: it holds more than one thing")])


@for_each([file for file in PRODUCT if file.rpartition("/")[2] not in WITHOUT_TWIN_ALLOWED])
def test_has_a_twin_test(file):
    folder, _, name = file.removeprefix("slimdp_tf/").rpartition("/")
    wanted = "/".join(["tests", *folder.split("/"), f"test_{name}"]).replace("//", "/")
    if wanted not in TESTS:
        refuse(file, [(1, f"has no test: expected {wanted}")])
    nodes = ast.walk(sources.parse(wanted))
    named = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if not any(name.startswith(("test_", "Test")) for name in named):
        refuse(wanted, [(1, "holds no test")])


@for_each(PRODUCT)
def test_says_what_it_is(file):
    tree = sources.parse(file)
    faults = [] if ast.get_docstring(tree) else [(1, "the module has no docstring")]
    for node in tree.body:
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_named and not node.name.startswith("_") and not ast.get_docstring(node):
            faults.append((node.lineno, f"{node.name} has no docstring"))
    refuse(file, faults)


@for_each(EVERYTHING)
def test_is_finished(file):
    lines = enumerate(sources.read(file).splitlines(), start=1)
    refuse(file, [(number, f"unfinished: {line.strip()}") for number, line in lines if UNFINISHED.search(line)])


@for_each(sorted({file.rpartition("/")[0] for file in PRODUCT}))
def test_folder_is_a_package(file):
    if f"{file}/__init__.py" not in PRODUCT:
        refuse(file, [(1, "has no __init__.py: it would be left out of the installed package")])
