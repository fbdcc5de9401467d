"""What an executor makes of answers of a planner that make no sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from leman_core.model.plan import BackfillSpec, Plan
from leman_core.model.service_errors import Internal
from leman_executor.api.peers import PlannerClient
from leman_planner.planner_service import plan_messages
from tests.unit.planner.planner_helpers import fragment, plan, range_key, resolved


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


@pytest.mark.parametrize("batches", [True, False])
def test_tasks_are_read_from_batches_and_as_a_planner_of_the_release_before_sends_them(batches):
    made = plan(resolved([fragment(i) for i in range(5)]), found=[range_key(3, 0, 50)])
    asked = []

    async def answer(request: object) -> AsyncIterator[object]:
        asked.append(request)
        for message in plan_messages(made, batches=batches):
            yield message

    async def scenario() -> Plan:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            planner = PlannerClient(channel)
            planner._plans.CreatePlan = answer
            return await planner.create_plan(BackfillSpec("/lake", "t", "c"))

    assert asyncio.run(scenario()) == made
    assert asked[0].reads_batches
