"""Two examples of keras.io, a rank of each: "Simple MNIST convnet" and "Text classification with Transformer".

Their layers and optimizers as published, on data that is there: the digits that netsum ships, enlarged to MNIST's 28 × 28, and
made-up reviews. Words: the example, a folder for the saved model, a factor of the published dropout, and how gradients are
added: "plain", "exact" or both.
"""

import hashlib
import json
import sys
import time
from importlib.resources import files
from typing import Any

import keras
import numpy as np
from keras import layers

import netsum.horovod as hvd

NAME, FOLDER, DROPOUT = sys.argv[1], sys.argv[2], float(sys.argv[3])
VOCABULARY, LENGTH, WIDTH, HEADS = 2000, 64, 32, 2


def digits() -> tuple[Any, Any]:
    """Return images (sample, 28, 28, 1) and their digits."""
    with files("netsum.digits").joinpath("digits.npz").open("rb") as file, np.load(file) as bundle:
        images = bundle["pixels"].reshape(-1, 8, 8).astype("float32") / 16
        order = np.random.default_rng(0).permutation(len(images))
        large = np.pad(images.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
        return large[order, :, :, None], bundle["digits"][order].astype("int32")


def reviews() -> tuple[Any, Any]:
    """Return texts (sample, place) of codes of words, some of which praise or blame, and which of both they do more."""
    data = np.random.default_rng(1)
    kinds = data.integers(0, 2, 1024)
    likely = np.where(data.random((1024, LENGTH)) < 0.05, 100 * (1 + kinds[:, None]), 300)
    return data.integers(likely, likely + 100).astype("int32"), kinds.astype("int32")


def mnist_convnet() -> Any:
    """Make the network of keras.io/examples/vision/mnist_convnet."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(0.5 * DROPOUT),
            layers.Dense(10, activation="softmax"),
        ]
    )


@keras.saving.register_keras_serializable()
class TokenAndPositionEmbedding(layers.Layer):
    """The example's first layer."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.token_emb, self.pos_emb = layers.Embedding(VOCABULARY, WIDTH), layers.Embedding(LENGTH, WIDTH)

    def build(self, input_shape: Any) -> None:
        """Make the weights."""
        self.token_emb.build(input_shape)
        self.pos_emb.build((LENGTH,))

    def call(self, x: Any) -> Any:
        """Add what a word is to where it is."""
        return self.token_emb(x) + self.pos_emb(keras.ops.arange(0, LENGTH, 1))


def text_classification() -> Any:
    """Make the network of keras.io/examples/nlp/text_classification_with_transformer."""
    inputs = layers.Input((LENGTH,))
    x = TokenAndPositionEmbedding()(inputs)
    attended = layers.Dropout(0.1 * DROPOUT)(layers.MultiHeadAttention(HEADS, WIDTH)(x, x))
    x = layers.LayerNormalization(epsilon=1e-6)(x + attended)
    fed = layers.Dense(WIDTH)(layers.Dense(WIDTH, activation="relu")(x))
    x = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(0.1 * DROPOUT)(fed))
    x = layers.Dropout(0.1 * DROPOUT)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1 * DROPOUT)(layers.Dense(20, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x))


(samples, targets), batch, make = {
    "mnist_convnet": (digits(), 64, mnist_convnet),
    "text_classification": (reviews(), 32, text_classification),
}[NAME]
TRAINED = 512


def fit(model: Any, epochs: int) -> list[float]:
    """Train on this rank's part of every batch, and return the losses of the epochs, means of all ranks."""
    rank, size = hvd.rank(), hvd.size()
    mine = np.concatenate([part[rank::size] for part in np.arange(TRAINED).reshape(-1, batch)])
    callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
    options = {"batch_size": batch // size, "epochs": epochs, "shuffle": False, "verbose": 0}
    return list(model.fit(samples[mine], targets[mine], callbacks=callbacks, **options).history["loss"])


def run(how: str) -> dict[str, Any]:
    """Train two epochs, save, load, train two more; train as long without a stop."""
    hvd.init(timeout_s=300, options=hvd.Options(exact=how == "exact"))
    keras.utils.set_random_seed(hvd.rank())
    trained = make()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam())
    trained.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    began = fit(trained, 2)
    path = f"{FOLDER}/{how}.keras"
    if hvd.rank() == 0:
        trained.save(path)
    hvd.allreduce(0.0, name="saved")
    resumed = keras.models.load_model(path)
    hvd.DistributedOptimizer(resumed.optimizer)
    since = time.perf_counter()
    losses = began + fit(resumed, 2)
    step_ms = (time.perf_counter() - since) * 1e3 / (2 * TRAINED // batch)
    weights = b"".join(np.asarray(each).tobytes() for each in resumed.get_weights())
    said = {
        "how": how,
        "losses": losses,
        "without a stop": began + fit(trained, 2),
        "accuracy": resumed.evaluate(samples[-512:], targets[-512:], verbose=0)[1],
        "weights": hashlib.sha256(weights).hexdigest(),
        "step_ms": step_ms,
    }
    hvd.shutdown()
    return said


for each in sys.argv[4:]:
    print("said: " + json.dumps(run(each)), flush=True)
