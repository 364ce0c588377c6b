"""PyTorch's contenders: what is started, and what is said where PyTorch is missing; the model where it is there."""

import json
import sys

import numpy as np
import pytest

from slimdp_tf.bench.contenders import torch_ddp
from slimdp_tf.bench.setting import Setting
from slimdp_tf.bench.work import Work, draw_weights, list_shapes


@pytest.fixture
def with_torch(monkeypatch):
    monkeypatch.setattr(torch_ddp, "has_torch", lambda python: True)


def test_one_rank_per_worker(with_torch):
    addresses = {"worker0": "10.0.0.1:7", "worker1": "10.0.0.2:7"}
    programs = torch_ddp.launch_plain(Setting(2, 1, addresses, "/t/python"))
    assert [program.environment["RANK"] for program in programs] == ["0", "1"]
    assert [program.is_reporting for program in programs] == [True, False]
    assert programs[1].environment["MASTER_ADDR"] == "10.0.0.1" and programs[1].environment["MASTER_PORT"] == "7"
    assert programs[0].environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert programs[0].command[0] == "/t/python" and programs[0].command[-2:] == ["plain", "{}"]


def test_on_the_loopback(with_torch):
    programs = torch_ddp.launch_fp16(Setting(1, 1, {"worker0": "127.0.0.1:7"}))
    assert programs[0].environment["GLOO_SOCKET_IFNAME"] == "lo"


def test_options_travel(with_torch):
    launched = torch_ddp.launch_powersgd(Setting(1, 1), rank=4)[0]
    assert launched.command[-2] == "powersgd" and json.loads(launched.command[-1]) == {"rank": 4, "start": 10}
    assert json.loads(torch_ddp.launch_localsgd(Setting(1, 1))[0].command[-1]) == {"period": 16, "start": 48}


@pytest.mark.parametrize("options", [{"rank": 0}, {"rank": 1.5}, {"start": True}])
def test_options_are_checked(with_torch, options):
    with pytest.raises(ValueError, match="must be an integer of at least 1. Received: "):
        torch_ddp.launch_powersgd(Setting(1, 1), **options)


def test_missing_torch_is_explained(monkeypatch):
    monkeypatch.setattr(torch_ddp, "has_torch", lambda python: False)
    with pytest.raises(ImportError, match=r"pip install 'slimdp_tf\[torch\]'.*--torch_python.*Received: /t/python"):
        torch_ddp.launch_plain(Setting(1, 1, torch_python="/t/python"))


def test_asks_the_interpreter():
    with pytest.raises(FileNotFoundError, match="must be a Python interpreter. Received: '/no/python'"):
        torch_ddp.has_torch("/no/python")
    try:
        import torch  # noqa: F401

        assert torch_ddp.has_torch(sys.executable)
    except ImportError:
        assert not torch_ddp.has_torch(sys.executable)


def test_the_model_is_the_works(tmp_path):
    pytest.importorskip("torch")
    model = torch_ddp.make_model(Work().write(tmp_path, tmp_path))
    weights = torch_ddp.list_weights(model)
    assert [array.shape for array in weights] == list_shapes()
    assert all((a == b).all() for a, b in zip(weights, draw_weights(0), strict=True))
    assert np.isfinite(weights[0]).all()
