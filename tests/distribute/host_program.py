"""One program for every host, as a user writes it; TF_CONFIG says which task this host has.

TF_CONFIG={...} python -m tests.distribute.host_program FOLDER [ENDING]

The chief saves what it trained and ends well; "trains" goes on for ever, "fails" raises an error in its second round:
both make FOLDER/training then.
"""

import json
import pathlib
import sys

import keras
import numpy as np

import slimdp_tf

ROUNDS, BATCH = 24, 4


def make_data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 6)).astype(np.float32)
    return x, (x @ rng.standard_normal((6, 2))).astype(np.float32)


def make_model() -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def announce(folder: pathlib.Path, round_number: int, ending: str) -> None:
    """In the second round it is said that training is under way, and one ending has come."""
    if round_number == 1:
        (folder / "training").touch()
        if ending == "fails":
            raise RuntimeError("the program failed")


def main(folder: pathlib.Path, ending: str = "saves") -> None:
    """Trains on the cluster of TF_CONFIG; the chief saves the model and says what it saw."""
    strategy = slimdp_tf.SlimDPStrategy(method=slimdp_tf.methods.slim(alpha=0.6, beta=0.4, p=2, q=8), seed=3)
    with strategy.scope():
        model = make_model()
    x, y = make_data(ROUNDS * 2 * BATCH * strategy.workers)
    if ending != "saves":
        strategy.on_round(lambda record: announce(folder, record.round, ending))
    epochs = 10**6 if ending == "trains" else 1
    model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    model.save(folder / "model.keras")
    seen = {
        "workers": [record.workers for record in strategy.records],
        "ps": strategy.ps,
        "push_bytes": strategy.traffic.push_bytes,
        "loss": model.evaluate(x, y, verbose=0),
    }
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
