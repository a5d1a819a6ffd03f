"""What a checkpoint says of the model that it is of."""

from types import SimpleNamespace

from flexfloor.models.config import ModelConfig
from flexfloor.worker import Worker


def test_a_model_is_the_same_under_every_backend_and_no_other():
    def identity(**fields):
        config = SimpleNamespace(model=ModelConfig(**fields))
        tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 1, "c": 2})
        return Worker.model_identity.fget(SimpleNamespace(config=config, tokenizer=tokenizer))

    assert identity(backend="torch") == identity(backend="auto")
    assert identity()["vocab_size"] == 3 and identity()["dtype"] == "float32"
    assert identity(num_layers=3) != identity()
