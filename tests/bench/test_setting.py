"""What contenders are told, and the environment of their programs."""

import sys

from slimdp_tf.bench.setting import Setting, clean_environment


def test_hosts_and_cluster():
    setting = Setting(
        2, 1, {"worker0": "10.0.0.1:5", "worker1": "10.0.0.2:5", "ps0": "10.0.0.3:5", "chief": "10.0.0.4:5"}
    )
    assert setting.hosts == ["worker0", "worker1", "ps0", "chief"]
    assert setting.cluster == {"chief": ["10.0.0.4:5"], "worker": ["10.0.0.1:5", "10.0.0.2:5"], "ps": ["10.0.0.3:5"]}


def test_addresses_may_be_unknown():
    assert Setting(1, 1).cluster["ps"] == ["ps0:2222"]


def test_commands():
    setting = Setting(1, 1)
    assert setting.run_module("a.b", "c") == [sys.executable, "-m", "a.b", "c"]
    python, alone, *rest = setting.run_alone("a.b", "c", python="/opt/torch/bin/python")
    assert (python, rest) == ("/opt/torch/bin/python", ["a.b", "c"]) and alone.endswith("bench/alone.py")


def test_environment(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("KEPT", "yes")
    environment = clean_environment({"RANK": "3"})
    assert not {"HTTPS_PROXY", "no_proxy", "TF_CONFIG"} & set(environment)
    assert (environment["KEPT"], environment["RANK"], environment["OMP_NUM_THREADS"]) == ("yes", "3", "1")
