"""Which event loop runs here."""

from __future__ import annotations

import asyncio

import pytest

from gridengine.worker.running_loop import in_trio


async def there() -> bool:
    return in_trio()


def test_trio_is_told_from_asyncio_and_from_none() -> None:
    trio = pytest.importorskip("trio")
    assert trio.run(there)
    assert not asyncio.run(there())
    assert not in_trio()
