"""A dataset of torch as an array of samples that is read in pieces."""

import math
import sys

import numpy as np

from .arrays import as_array, plain_array, without_names


def from_dataset(X):
    """A `torch.utils.data.Dataset` as `DatasetRows`; anything else as it is."""
    module = sys.modules.get("torch.utils.data")
    if module is not None and isinstance(X, module.DataLoader):
        raise TypeError(
            "X must be an array or a dataset; got a DataLoader. Pass its `dataset`: "
            "the batches of a fit are its own."
        )
    if module is None or not isinstance(X, module.Dataset):
        return X
    if isinstance(X, module.IterableDataset) or not hasattr(X, "__len__"):
        raise TypeError(
            "X must be a dataset with a length and samples by index; got "
            f"{type(X).__name__}."
        )
    return DatasetRows(X)


def samples_of(X):
    """X as an array, or a dataset as rows that are read when they are needed.

    In a list of pairs, the samples are the first parts: for a fold, scikit-learn makes
    such a list of a dataset of pairs.
    """
    if isinstance(X, list) and X and _is_pair(X[0]):
        X = [item[0] for item in X]
    return as_array(from_dataset(X))


def _is_pair(item) -> bool:
    """Whether an item is a sample and a label of another shape, or (sample,)."""
    if not isinstance(item, list | tuple) or not item:
        return False
    if isinstance(item[0], list | tuple) or np.ndim(item[0]) == 0:
        return False
    if len(item) == 1:
        return isinstance(item, tuple)
    try:
        return np.shape(item[0]) != np.shape(item[1])
    except ValueError:  # a ragged list, as of boxes
        return True


def rows_of(X):
    """X as an array of numbers, or the rows of a dataset."""
    if isinstance(X, DatasetRows):
        return X
    X = np.asarray(X)
    return X.astype(np.float64) if X.dtype == object else X


class DatasetRows:
    """The samples of a dataset of torch, as rows of an array that is not in memory.

    ``dataset[i]`` is an array, a tensor or an image, or a tuple that begins with one.
    All have the shape and the type of the first.
    """

    def __init__(self, dataset):
        if not len(dataset):
            raise ValueError("X must hold samples; got a dataset of length 0.")
        self.dataset = dataset
        first = self._item(0)
        if not first.ndim or first.dtype.kind not in "buif":
            raise ValueError(
                "X must hold images or vectors of numbers; got "
                f"{first.dtype} of shape {first.shape} in sample 0."
            )
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._indices = np.arange(len(dataset))

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows) -> np.ndarray:
        indices = self._indices[rows]
        if not indices.ndim:
            return self[[int(indices)]][0]
        values = np.empty((len(indices), *self.shape[1:]), self.dtype)
        for row, i in zip(values, indices.tolist(), strict=True):
            item = self._item(i)
            if (item.shape, item.dtype) != (row.shape, row.dtype):
                raise ValueError(
                    "X must hold samples of one shape and type; got "
                    f"{row.shape} and {row.dtype} in sample 0, {item.shape} and "
                    f"{item.dtype} in sample {i}."
                )
            row[...] = item
        return values

    def _item(self, i: int) -> np.ndarray:
        item = self.dataset[i]
        if isinstance(item, list | tuple):
            if not len(item):
                raise ValueError(f"Sample {i} of X must begin with its values; got ().")
            item = item[0]
        name = f"Sample {i} of X"
        return np.asarray(plain_array(without_names(item, name), name))
