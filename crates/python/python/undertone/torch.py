"""PyTorch modules as models for training (needs PyTorch: ``pip install 'undertone[torch]'``)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._train import Examples, Schedule

TEACHER_DECAY = 0.97
"""The decay of a mean teacher in each step: its new parameters are 0.97 of its own and 0.03 of the
student's."""


class TorchModel:
    """A :class:`torch.nn.Module` as a model for :func:`undertone.train`.

    ``module`` gives logits of shape [rows, classes]. It takes rows of shape [rows, features], or
    [rows, \\*shape] if ``shape`` is given, such as ``(1, 8, 8)`` for images.

    ``embed`` is the inner layer whose output is a row's embedding: its name as in
    ``module.named_modules()``, or a function ``embed(module, rows)`` that returns a tensor.
    Embeddings are flattened. ``augment(rows, generator)`` returns augmented rows of the same shape,
    drawn from a :class:`torch.Generator` on the CPU; by default there is no augmentation.

    ``update`` takes one step of plain stochastic gradient descent for each batch, with weight
    decay. The parameters are those of the module, then its floating-point buffers, such as the
    means and variances of normalisation layers. Integer buffers stay as they are.

    With ``teacher`` there is a mean teacher: a moving average of the module over its steps
    (:data:`TEACHER_DECAY`). The loss of a batch gains the squared difference between both sides'
    probabilities, averaged over rows and classes, times the schedule's consistency. The two see
    different augmentations. ``predict`` asks the teacher, ``embed`` the module.

    >>> import torch, undertone
    >>> from undertone.torch import TorchModel
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> model = TorchModel(module, embed="1")
    >>> model.params().shape, model.embed(np.zeros((5, 4), np.float32)).shape
    ((67,), (5, 8))
    """

    def __init__(
        self,
        module: torch.nn.Module,
        embed: str | Callable[[torch.nn.Module, Tensor], Tensor],
        *,
        augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
        shape: Sequence[int] | None = None,
        device: str | torch.device = "cpu",
        teacher: bool = False,
        chunk: int = 512,
    ) -> None:
        if isinstance(embed, str):
            module.get_submodule(embed)
        self.module = module.to(device)
        self.teacher = copy.deepcopy(self.module).requires_grad_(False) if teacher else None
        self._layer = embed
        self._augment = augment
        self._shape = None if shape is None else tuple(shape)
        self._device = torch.device(device)
        self._chunk = chunk

    def _modules(self) -> list[torch.nn.Module]:
        return [self.module] if self.teacher is None else [self.module, self.teacher]

    @staticmethod
    def _tensors(module: torch.nn.Module) -> list[Tensor]:
        tensors = [*module.parameters(), *module.buffers()]
        return [tensor for tensor in tensors if tensor.is_floating_point()]

    def params(self) -> NDArray[np.float32]:
        """All parameters; those of the teacher come last."""
        parts = [
            tensor.detach().reshape(-1).to("cpu", torch.float32)
            for module in self._modules()
            for tensor in self._tensors(module)
        ]
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    def set_params(self, params: NDArray[np.float32]) -> None:
        """Replaces all parameters."""
        tensors = [tensor for module in self._modules() for tensor in self._tensors(module)]
        due = sum(tensor.numel() for tensor in tensors)
        if len(params) != due:
            raise ValueError(f"{len(params)} parameters; the module has {due}")
        source, at = torch.from_numpy(np.array(params, np.float32)), 0
        with torch.no_grad():
            for tensor in tensors:
                part = source[at : at + tensor.numel()]
                tensor.copy_(part.view_as(tensor))
                at += tensor.numel()

    def _rows(self, rows: NDArray[np.float32]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
        return tensor if self._shape is None else tensor.reshape(len(rows), *self._shape)

    def _in_chunks(
        self, module: torch.nn.Module, rows: NDArray[np.float32], work: Callable[[Tensor], Tensor]
    ) -> NDArray[np.float32]:
        was_training, done = module.training, []
        module.eval()
        try:
            with torch.no_grad():
                for chunk in self._rows(rows).split(self._chunk):
                    out = work(chunk.to(self._device))
                    done.append(out.reshape(len(chunk), -1).to("cpu", torch.float32))
        finally:
            module.train(was_training)
        return np.asarray(torch.cat(done).numpy(), np.float32)

    def _embedded(self, rows: Tensor) -> Tensor:
        if not isinstance(self._layer, str):
            embedded: Tensor = self._layer(self.module, rows)
            return embedded
        kept: list[Tensor] = []

        def keep(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
            kept.append(output)

        hook = self.module.get_submodule(self._layer).register_forward_hook(keep)
        try:
            self.module(rows)
        finally:
            hook.remove()
        if not kept:
            raise ValueError(f"the module does not call its layer {self._layer!r}")
        return kept[-1]

    def embed(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The embedding of each row."""
        return self._in_chunks(self.module, rows, self._embedded)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probability of each class for each row."""
        module = self.module if self.teacher is None else self.teacher
        return self._in_chunks(module, rows, lambda chunk: module(chunk).softmax(dim=1))

    def update(self, examples: Examples, schedule: Schedule) -> None:
        """Trains on the batches of the schedule."""
        rows = self._rows(examples.rows)
        generator = torch.Generator().manual_seed(schedule.random_state)
        optimizer = torch.optim.SGD(
            self.module.parameters(),
            lr=schedule.learning_rate,
            weight_decay=schedule.weight_decay,
        )

        def inputs(numbers: Tensor) -> Tensor:
            batch: Tensor = rows[numbers]
            if self._augment is not None:
                batch = self._augment(batch, generator)
            moved: Tensor = batch.to(self._device)
            return moved

        self.module.train()
        for each, classes, weights in schedule.batches(examples):
            numbers = torch.from_numpy(each)
            logits = self.module(inputs(numbers))
            losses = torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(classes).to(self._device), reduction="none"
            )
            loss = (losses * torch.from_numpy(weights).to(self._device)).sum() / len(each)
            if self.teacher is not None and schedule.consistency > 0:
                self.teacher.train()
                with torch.no_grad():
                    goal = self.teacher(inputs(numbers)).softmax(dim=1)
                difference = (logits.softmax(dim=1) - goal).square().mean()
                loss = loss + schedule.consistency * difference
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if self.teacher is not None:
                with torch.no_grad():
                    pairs = zip(
                        self._tensors(self.teacher), self._tensors(self.module), strict=True
                    )
                    for mean, tensor in pairs:
                        mean.lerp_(tensor, 1 - TEACHER_DECAY)
