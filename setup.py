"""Packaging: `pip install -e '.[cpu,dev]'`. TensorFlow is the user's choice of tensorflow or tensorflow-cpu."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
TENSORFLOW_RANGE = ">=2.20,<2.22"


def read_version() -> str:
    """The version in slimdp_tf/version.py, read without importing TensorFlow."""
    text = (ROOT / "slimdp_tf" / "version.py").read_text(encoding="utf-8")
    return re.search(r'__version__ = "([^"]+)"', text).group(1)


def read_description() -> str:
    """The README, where there is one."""
    path = ROOT / "README.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


setuptools.setup(
    name="slimdp_tf",
    version=read_version(),
    description="Train Keras models on TensorFlow parameter servers with a tenth of the bytes: Slim-DP and its kin",
    long_description=read_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=[*setuptools.find_packages(include=["slimdp_tf", "slimdp_tf.*"]), "slimdp_tf.configs"],
    package_dir={"slimdp_tf.configs": "configs"},
    python_requires=">=3.10,<3.14",
    # No TensorFlow here: tensorflow and tensorflow-cpu hold the same files, and a second one would overwrite the first.
    install_requires=[
        "absl-py>=2.0",
        "keras>=3.12,<3.16",
        "matplotlib>=3.8",
        "ml-collections>=1.0",
        "numpy>=1.26",
        "tensorboard>=2.20",
    ],
    extras_require={
        "tensorflow": [f"tensorflow{TENSORFLOW_RANGE}"],
        "cpu": [f"tensorflow-cpu{TENSORFLOW_RANGE}"],
        "dev": [
            "hypothesis>=6.100",
            "pytest>=9",
            "pytest-rerunfailures>=16",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff==0.17.*",  # the formatter's taste changes between versions
        ],
        "torch": ["torch>=2.4"],
    },
    entry_points={
        "console_scripts": [
            "slimdp-train = slimdp_tf.cli.train:run",
            "slimdp-compare = slimdp_tf.cli.compare:run",
            "slimdp-launch = slimdp_tf.cli.launch:run",
            "slimdp-bench-network = slimdp_tf.cli.bench_network:run",
            "slimdp-bench-rules = slimdp_tf.cli.bench_rules:run",
            "slimdp-bench-step = slimdp_tf.cli.bench_step:run",
            "slimdp-bench-exchange = slimdp_tf.cli.bench_exchange:run",
            "slimdp-plan = slimdp_tf.cli.plan:run",
            "slimdp-soak = slimdp_tf.cli.soak:run",
        ]
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
