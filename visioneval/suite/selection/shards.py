"""Shards: parts of a suite's cases for several machines. By content, so that an added case moves no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Self

from pydantic import Field, model_validator

from visioneval.errors import UsageError
from visioneval.suite.cases.case import TestCase
from visioneval.types import Frozen

MAX_SHARDS = 100_000
_Count = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class Shard(Frozen):
    """Part ``number`` of ``count``, counted from 1."""

    number: _Count
    count: _Count

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if self.number > self.count:
            raise ValueError(f"shard {self.number} of {self.count} does not exist")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``I/N``. Raises ``UsageError``."""
        match = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text.strip())
        number, count = (int(part) for part in match.groups()) if match else (0, 0)
        if count > MAX_SHARDS:
            raise UsageError(f"--shard {text:.40}: there can be {MAX_SHARDS:,} shards at most")
        if not 1 <= number <= count:
            raise UsageError(f"--shard {text:.40}: use I/N, such as 1/4, with I from 1 to N")
        return cls(number=number, count=count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def cases_of_shard(cases: Sequence[TestCase], shard: Shard) -> frozenset[str]:
    """The ids of a suite's cases that belong to a shard.

    All cells of a case stay together, and so do turns of a case, and cases that share outputs (``output_of``) or a
    prompt, whose questions they share. A group belongs to a shard by a hash of its prompts.
    """
    groups = case_groups(cases)
    keys: dict[str, str] = {}
    for case in cases:
        if case.output_of is None:  # a case that uses another's output moves with it
            prompt = sha256(case.prompt.encode()).hexdigest()
            keys[groups[case.id]] = min(keys.get(groups[case.id], prompt), prompt)
    return frozenset(case.id for case in cases if int(keys[groups[case.id]][:16], 16) % shard.count == shard.number - 1)


def case_groups(cases: Sequence[TestCase]) -> dict[str, str]:
    """By the id of each case of a suite: the name of its group.

    The cases of a group are turns of a case, or share outputs (``output_of``) or a prompt, so that their cells may ask
    a judge the same.
    """
    groups = _Groups()
    for case in cases:
        groups.join(case.id, f"prompt {sha256(case.prompt.encode()).hexdigest()}")
        if (used := case.output_of or case.previous_turn) is not None:
            groups.join(case.id, used)
    return {case.id: groups.of(case.id) for case in cases}


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name that stands for the set of ``name``."""
        root = name
        while (parent := self._parents.get(root, root)) != root:
            root = parent
        while (parent := self._parents.get(name, name)) != root:
            self._parents[name], name = root, parent
        return root

    def join(self, first: str, second: str) -> None:
        """Unites the sets of two names."""
        self._parents[self.of(first)] = self.of(second)
