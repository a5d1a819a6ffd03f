import pytest
import torch
import torch.nn.functional as F

from flexfloor.rollout.linear import pack


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 200])
def test_is_the_plain_product(dtype, rows):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 40, generator=generator, dtype=torch.float64).to(dtype)
    x = torch.randn(rows, 40, generator=generator, dtype=torch.float64).to(dtype)
    with torch.inference_mode():
        found = pack(weight)(x)
    expected = F.linear(x.double(), weight.double())
    assert found.shape == (rows, 24) and found.dtype is dtype
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 0.1}[dtype]
    assert torch.allclose(found.double(), expected, atol=tolerance)


def test_holds_the_weights_of_the_moment_it_was_made():
    weight = torch.ones(2, 2)
    product = pack(weight)
    assert product(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    weight.mul_(2)
    assert pack(weight)(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
