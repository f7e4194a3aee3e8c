"""The catalogue: a mapping from a model's name to its card, which holds all that the library asks about the model.

The module is itself the mapping, so ``regbayes.zoo["svm"]``, ``"svm" in regbayes.zoo`` and ``regbayes.zoo.names()``
work as written. Cards lie in files by family. A card of one's own joins by :func:`add`, those of an installed package
by the entry-point group ``regbayes.models``, whose entries name a card or a list of them.

>>> import regbayes
>>> regbayes.zoo.names()[:5]
['svm', 'multiclass-svm', 'svr', 'isvm', 'dpmnl']
>>> entry = regbayes.zoo["svm"]
>>> sorted(entry.kernels)
['augmentation', 'slice']
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType

from . import features, mixtures, svms, topics
from .card import Card

__all__ = ["Card", "add", "names", "remove"]

_cards: dict[str, Card] = {card.name: card for room in (svms, mixtures, topics, features) for card in room.CARDS}
_waiting = list(entry_points(group="regbayes.models"))


def _known() -> dict[str, Card]:
    """All cards; those of installed packages are read on the first look-up."""
    while _waiting:
        entry = _waiting.pop(0)  # first, for what it loads may look something up
        try:
            found = entry.load()
            for card in [found] if isinstance(found, Card) else found:
                _insert(card)
        except Exception as error:
            text = f"the entry point {entry.name!r} ({entry.value}) of the group regbayes.models is left out"
            warnings.warn(f"{text}: {type(error).__name__}: {error}", stacklevel=3)
    return _cards


def _insert(card: Card) -> None:
    if not isinstance(card, Card):
        raise ValueError(f"card must be a regbayes.zoo.Card, found {card!r}")
    if card.name in _cards:
        raise ValueError(f"the zoo has a model {card.name!r} already; give the card another name")
    _cards[card.name] = card


def _card(name: str) -> Card:
    if name not in _known():
        raise KeyError(f"no model {name!r} in the zoo; it has {', '.join(_cards)}")
    return _cards[name]


def add(card: Card) -> None:
    """Add a model of your own, under a name that is free; commands and diagnostics then know it."""
    _known()
    _insert(card)


def remove(name: str) -> None:
    """Take a model out again."""
    del _cards[_card(name).name]


def names() -> list[str]:
    """The models' names, in the catalogue's order."""
    return list(_known())


class _Zoo(ModuleType, Mapping):
    """A module that is a mapping from names to cards."""

    def __getitem__(self, name: str) -> Card:
        return _card(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_known())

    def __len__(self) -> int:
        return len(_known())

    __hash__ = ModuleType.__hash__
    __eq__ = ModuleType.__eq__


sys.modules[__name__].__class__ = _Zoo
