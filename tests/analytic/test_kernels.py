"""Kernels against explicit loops."""

import numpy as np
import pytest
import torch

from ergnn.analytic import kernels
from ergnn.analytic.kernels import Kernel
from ergnn.config.errors import InputError


@pytest.mark.parametrize("s", [0.0, 0.7, 2.0])
def test_kernels_equal_explicit_loops(s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernels.ROW_BLOCK, "cpu", 3)
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (8, 5))
    for one, two in ((u, v), (u, u), (v, u)):
        expected = [
            [float(a @ b) if s == 0 else np.exp(-(s**2) * float((a - b) @ (a - b)) / 2) for b in two] for a in one
        ]
        np.testing.assert_allclose(Kernel(s)(one, two).numpy(), np.array(expected), atol=1e-12)
        assert Kernel(s)(one.float(), two.float()).dtype == torch.float64
    assert (Kernel().name, Kernel(1.0).name) == ("linear", "rbf")
    with pytest.raises(InputError, match="s is -1"):
        Kernel(-1.0)
