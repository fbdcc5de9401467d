"""What an executor makes of answers of a planner that make no sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import Internal
from leman_executor.api.peers import PlannerClient


def test_a_plan_without_its_header_is_a_bug():
    async def nothing(*_: object) -> AsyncIterator[object]:
        return
        yield

    async def scenario() -> None:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            planner = PlannerClient(channel)
            planner._plans.CreatePlan = nothing
            await planner.create_plan(BackfillSpec("/lake", "t", "c"))

    with pytest.raises(Internal) as caught:
        asyncio.run(scenario())
    assert caught.value.reason == "PLAN_WITHOUT_HEADER"
