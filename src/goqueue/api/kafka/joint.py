"""EnrolInJoint and EndJoint: our own, for writers who commit what many of them wrote in one decision (ADR 27).

Their keys are far above Kafka's, which clients that do not know them pass over.
"""

from __future__ import annotations

from typing import Any

from goqueue.api.kafka.call import Answer, Api, Call
from goqueue.api.kafka.context import Context, coordinator_code
from goqueue.api.kafka.error_text import text_of
from goqueue.model.errors import GoQueueError, InvalidRequest, TransactionAbortable
from goqueue.node.transactions.requests import AlreadyCommitted, ProducerEpoch, Winner
from goqueue.wire.schema import responses

_N = responses("enrol_in_joint")
_E = responses("end_joint")


class JointApi:
    def __init__(self, context: Context) -> None:
        self._joints = context.node.transactions.joints

    def apis(self) -> list[Api]:
        return [
            Api("enrol_in_joint", 0, 0, self.enrol_in_joint),
            Api("end_joint", 0, 0, self.end_joint),
        ]

    async def enrol_in_joint(self, call: Call, request: Any) -> Answer:
        try:
            reply = await self._joints.enrol(
                request.joint_id, request.batch_id, request.member, request.timeout_ms
            )
        except GoQueueError as error:
            return _N.EnrolInJointResponse(error_code=coordinator_code(error), error_message=text_of(error))
        if isinstance(reply, AlreadyCommitted):
            return _N.EnrolInJointResponse(is_committed=True)
        return _N.EnrolInJointResponse(
            transactional_id=reply.transactional_id,
            producer_id=reply.producer.producer_id,
            producer_epoch=reply.producer.epoch,
        )

    async def end_joint(self, call: Call, request: Any) -> Answer:
        try:
            return _E.EndJointResponse(was_committed=await self._end(request))
        except GoQueueError as error:
            is_about_winner = isinstance(error, TransactionAbortable)
            return _E.EndJointResponse(
                error_code=coordinator_code(error),
                error_message=text_of(error),
                refused_transactional_id=error.details["transactional_id"] if is_about_winner else None,
            )

    async def _end(self, request: Any) -> bool:
        winners = [
            Winner(one.transactional_id, ProducerEpoch(one.producer_id, one.producer_epoch))
            for one in request.winners
        ]
        if request.is_commit:
            return await self._joints.commit(request.joint_id, request.batch_id, winners)
        if winners:
            raise InvalidRequest(f"an abort has no winners, {len(winners)} are named")
        return await self._joints.abort(request.joint_id, request.batch_id)
