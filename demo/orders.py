"""A day of orders in a small shop, the same for the same seed.

Customers are not equal: a few order most of what is ordered. Some orders are to be handled first, some only later. A few are poison:
no JSON at all, JSON that is no order, or orders for a product that is no longer sold, which fail however often they are tried.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

ORDERS_MIN, ORDERS_MAX = 100, 1_000_000
OPENING: Final = datetime(2026, 3, 2, 10, tzinfo=UTC)
OPEN_MS: Final = 4 * 3_600_000
NEXT_MORNING_MS: Final = (
    24 * 3_600_000
)  # after the opening: an order that lets the last windows of the day end
GONE_PRODUCT: Final = "p-00"  # in no price list any more
CUSTOMER_COUNT: Final = 200
DELAYS_MS: Final = (2_000, 4_000)
FAILURES_MAX: Final = 2  # of an order that succeeds in the end; less than the topic's retries
PEAK_MS: Final = 9_000_000  # half past twelve
LATENESS_MS_MAX: Final = 90_000  # of orders that come straight
_SKEW: Final = 1.1  # the n-th customer orders 1 / n**1.1 as often as the first
_QUANTITIES: Final = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 10)
_COUNTRIES: Final = ("DE", "FR", "GB", "JP", "US")
_TIERS: Final = ("basic", "silver", "gold")
_ASSORTMENT: Final = {
    "coffee": ("espresso beans", "filter beans", "decaf beans"),
    "tea": ("green tea", "black tea", "herbal tea"),
    "equipment": ("hand grinder", "kettle", "moka pot"),
    "sweets": ("dark chocolate", "biscuits", "nougat"),
}
_PRICES: Final = {
    "coffee": (690, 1_890),
    "tea": (390, 1_290),
    "equipment": (1_290, 2_990),
    "sweets": (190, 890),
}


class Kind(StrEnum):
    GOOD = "good"
    FLAKY = "flaky"  # the payment times out a few times, then works
    GONE = "gone"  # for a product that is no longer sold: fails always
    MISTYPED = "mistyped"  # JSON, but no order
    MALFORMED = "malformed"  # no JSON


POISON: Final = (Kind.GONE, Kind.MISTYPED, Kind.MALFORMED)
_SHARES: Final = {Kind.FLAKY: 0.04, Kind.GONE: 0.01, Kind.MISTYPED: 0.005, Kind.MALFORMED: 0.005}
_DELAYED_SHARE: Final = 0.03
_EXPRESS_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Product:
    product: str
    name: str
    category: str
    price_cents: int


@dataclass(frozen=True, slots=True)
class Customer:
    customer: str
    country: str
    tier: str


@dataclass(frozen=True, slots=True)
class Order:
    number: int
    kind: Kind
    customer: str
    product: str
    quantity: int
    at_ms: int
    failures: int  # how often its payment times out
    priority: str
    delay_ms: int | None
    trace_id: str
    span_id: str

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"

    @property
    def value(self) -> str:
        fields: dict[str, object] = {
            "id": self.number,
            "customer": self.customer,
            "product": self.product,
            "quantity": self.quantity,
            "at": _instant(self.at_ms),
        }
        if self.kind is Kind.MISTYPED:
            fields["quantity"] = "a few"
        text = json.dumps(fields)
        return text[: len(text) * 2 // 3] if self.kind is Kind.MALFORMED else text


@dataclass(frozen=True, slots=True)
class Shop:
    """What the shop knows, and the orders in the order they are sent. The last is the next morning's."""

    customers: Sequence[Customer]
    products: Sequence[Product]
    orders: Sequence[Order]

    def write_tables(self, folder: Path) -> None:
        """What the pipeline enriches orders with, as CSV."""
        _write_csv(folder / "customers.csv", ("customer", "country", "tier"), self.customers)
        _write_csv(folder / "products.csv", ("product", "name", "category", "price_cents"), self.products)


def open_shop(seed: int, count: int) -> Shop:
    """A shop with that many orders."""
    if not ORDERS_MIN <= count <= ORDERS_MAX:
        raise ValueError(f"orders is {count}; it must be {ORDERS_MIN} to {ORDERS_MAX}")
    chance = random.Random(seed)
    products = _products(chance)
    customers = [
        Customer(f"c-{index:03}", chance.choice(_COUNTRIES), chance.choice(_TIERS))
        for index in range(1, CUSTOMER_COUNT + 1)
    ]
    weights = [1 / rank**_SKEW for rank in range(1, CUSTOMER_COUNT + 1)]
    buyers = chance.choices(customers, weights, k=count)
    times = [*sorted(_time_of_day(chance) for _ in range(count - 1)), NEXT_MORNING_MS]
    kinds = [*_kinds(chance, count - 1), Kind.GOOD]
    orders = [
        _order(chance, number, kind, buyer, products, at_ms)
        for number, (kind, buyer, at_ms) in enumerate(zip(kinds, buyers, times, strict=True), start=1)
    ]
    day, morning = orders[:-1], orders[-1]
    day.sort(key=lambda order: order.at_ms + chance.uniform(0, LATENESS_MS_MAX))
    return Shop(customers, products, [*day, morning])


def _products(chance: random.Random) -> list[Product]:
    named = [(name, category) for category, names in _ASSORTMENT.items() for name in names]
    return [
        Product(f"p-{index:02}", name, category, chance.randrange(*_PRICES[category], 10))
        for index, (name, category) in enumerate(named, start=1)
    ]


def _time_of_day(chance: random.Random) -> int:
    """Some all day, most around noon."""
    if chance.random() < 0.3:
        return chance.randrange(OPEN_MS)
    return min(OPEN_MS - 1, int(chance.triangular(0, OPEN_MS, PEAK_MS)))


def _kinds(chance: random.Random, count: int) -> list[Kind]:
    """Each kind as often as its share says, and at least twice; in any order."""
    special = [kind for kind, share in _SHARES.items() for _ in range(max(2, round(count * share)))]
    kinds = [*special, *[Kind.GOOD] * (count - len(special))]
    chance.shuffle(kinds)
    return kinds


def _order(
    chance: random.Random, number: int, kind: Kind, buyer: Customer, products: Sequence[Product], at_ms: int
) -> Order:
    is_late = chance.random() < _DELAYED_SHARE and at_ms != NEXT_MORNING_MS
    is_express = chance.random() < _EXPRESS_SHARE
    usual = {"gold": "high", "silver": "normal", "basic": "low"}[buyer.tier]
    return Order(
        number=number,
        kind=kind,
        customer=buyer.customer,
        product=GONE_PRODUCT if kind is Kind.GONE else chance.choice(products).product,
        quantity=chance.choice(_QUANTITIES),
        at_ms=int(OPENING.timestamp() * 1_000) + at_ms,
        failures=chance.randint(1, FAILURES_MAX) if kind is Kind.FLAKY else 0,
        priority="critical" if is_express else usual,
        delay_ms=chance.randint(*DELAYS_MS) if is_late else None,
        trace_id=f"{chance.getrandbits(128) | 1:032x}",
        span_id=f"{chance.getrandbits(64) | 1:016x}",
    )


def _instant(at_ms: int) -> str:
    return (
        datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _write_csv(file: Path, names: Sequence[str], rows: Sequence[Customer] | Sequence[Product]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)
