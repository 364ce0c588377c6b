import pytest

from slimdp_tf.cli import bench_step


def test_epochs_take_turns_and_the_first_does_not_count(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(bench_step.time, "perf_counter", lambda: clock[0])

    def epoch(name, seconds):
        def run():
            order.append(name)
            clock[0] += 100.0 if order.count(name) == 1 else seconds

        return run

    assert bench_step.time_in_turns([epoch("a", 2.0), epoch("b", 5.0)], repeats=3) == [2.0, 5.0]
    assert order == ["a", "b"] * 4


@pytest.mark.parametrize("name", bench_step.BUILDERS)
def test_models_are_compiled(name):
    assert float(bench_step.compile_model(name).optimizer.learning_rate.numpy()) == pytest.approx(0.01)
