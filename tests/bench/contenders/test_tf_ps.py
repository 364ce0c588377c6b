"""TensorFlow's own parameter servers: what is started. Its run: tests/bench/test_run.py."""

import inspect

from slimdp_tf.bench.contenders import tf_ps
from slimdp_tf.bench.setting import Setting


def test_programs():
    *serving, chief = tf_ps.launch(Setting(2, 2))
    assert len(serving) == 4 and all("tf_tasks" in program.command[2] for program in serving)
    assert chief.is_reporting and chief.command[2] == "slimdp_tf.bench.contenders.tf_ps"


def test_it_is_the_stock_strategy_and_coordinator():
    source = inspect.getsource(tf_ps)
    assert "tf.distribute.ParameterServerStrategy(" in source and "ClusterCoordinator(" in source
    assert "slimdp_tf.SlimDPStrategy" not in source
