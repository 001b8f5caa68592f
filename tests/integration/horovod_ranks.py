"""A rank of tests/integration/test_horovod.py: the example of Horovod's documentation, with one import changed."""

import hashlib
import sys
from typing import Any

import keras
import numpy as np

import netsum.horovod as hvd

hvd.init(timeout_s=200)
RANK, SIZE = hvd.rank(), hvd.size()
data = np.random.default_rng(3)
inputs = data.normal(size=(96, 12)).astype("f")
targets = (inputs @ data.normal(size=(12, 3))).argmax(axis=1)


def model() -> Any:
    """Return a network, which begins differently at every rank."""
    keras.utils.set_random_seed(RANK)
    made = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    made.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return made


def fit(model: Any, epochs: int) -> Any:
    """Train on this rank's part of every global batch of 32."""
    mine = np.concatenate([part[RANK::SIZE] for part in np.arange(96).reshape(3, 32)])
    callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
    return model.fit(
        inputs[mine],
        targets[mine],
        batch_size=32 // SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    ).history


trained = model()
losses = fit(trained, 3)["loss"]
folder = hvd.broadcast_object(sys.argv[1] if RANK == 0 else None)
if RANK == 0:
    trained.save(f"{folder}/model.keras")
hvd.allreduce(0.0, name="saved")
loaded = keras.models.load_model(f"{folder}/model.keras")
hvd.DistributedOptimizer(loaded.optimizer)
losses += fit(loaded, 2)["loss"]
weights = b"".join(np.asarray(each).tobytes() for each in loaded.get_weights())
print("weights:", hashlib.sha256(weights).hexdigest())
print("losses:", *losses)
hvd.shutdown()
