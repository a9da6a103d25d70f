"""What has to come out, from the orders alone: no number here has been through the broker or through Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from demo.orders import POISON, Kind, Shop

# As orders.yaml, order.json and the topic have it; a test holds them together.
WINDOW_MS: Final = 15 * 60_000
WATERMARK_MS: Final = 12 * 3_600_000
NEW_QUANTITY_MAX: Final = 8
RETRIES_MAX: Final = 3

Window = tuple[int, str]  # when it begins (ms), category


@dataclass(frozen=True, slots=True)
class Expected:
    orders: int
    poison: int
    rejected: int  # cannot be read: dead letters at once
    exhausted: int  # dead letters after the last retry
    acked: int
    nacks: int  # the last ones of dead letters among them
    deliveries: int
    rows: int  # of the pipeline's lake
    unreadable: int  # dead letters of the pipeline
    invalid: int
    unparsable: int
    breaks: int  # would not fit the new schema
    delayed: int
    revenue_cents: dict[Window, int]  # of windows that have ended


def expect(shop: Shop) -> Expected:
    orders = shop.orders
    kinds = Counter(order.kind for order in orders)
    unreadable = kinds[Kind.MISTYPED] + kinds[Kind.MALFORMED]
    nacks = sum(order.failures for order in orders) + kinds[Kind.GONE] * (RETRIES_MAX + 1)
    poison = sum(kinds[kind] for kind in POISON)
    readable = [order for order in orders if order.kind not in (Kind.MISTYPED, Kind.MALFORMED)]
    return Expected(
        orders=len(orders),
        poison=poison,
        rejected=unreadable,
        exhausted=kinds[Kind.GONE],
        acked=len(orders) - poison,
        nacks=nacks,
        deliveries=len(orders)
        + nacks
        - kinds[Kind.GONE],  # the last nack of a dead letter brings no delivery
        rows=len(readable),
        unreadable=unreadable,
        invalid=kinds[Kind.MISTYPED],
        unparsable=kinds[Kind.MALFORMED],
        breaks=sum(order.quantity > NEW_QUANTITY_MAX for order in readable),
        delayed=sum(order.delay_ms is not None for order in orders),
        revenue_cents=_revenue(shop),
    )


def _revenue(shop: Shop) -> dict[Window, int]:
    """By window and category, of the windows that the watermark has passed."""
    by_name = {product.product: product for product in shop.products}
    readable = [order for order in shop.orders if order.kind not in (Kind.MISTYPED, Kind.MALFORMED)]
    watermark_ms = max(order.at_ms for order in readable) - WATERMARK_MS
    found: Counter[Window] = Counter()
    for order in readable:
        product = by_name.get(order.product)
        if product is not None:
            window = (order.at_ms - order.at_ms % WINDOW_MS, product.category)
            found[window] += order.quantity * product.price_cents
    return {window: cents for window, cents in sorted(found.items()) if window[0] + WINDOW_MS <= watermark_ms}
