"""Usage: messages, bytes and storage per tenant, topic and hour; and what groups have read."""

from goqueue.pipeline.jobs.usage.job import UsageRequest, run
from goqueue.pipeline.jobs.usage.measures import by_hour, consumed, sized

__all__ = ["UsageRequest", "by_hour", "consumed", "run", "sized"]
