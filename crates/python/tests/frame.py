"""What the module needs of a DataFrame."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Frame:
    """Values and names of columns."""

    def __init__(self, values: NDArray[Any], columns: list[Any]) -> None:
        self.values, self.columns, self.shape = values, columns, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype)
