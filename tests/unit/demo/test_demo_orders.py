"""The demo's orders and what is expected of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import demo
import pytest
import yaml
from demo.expected import NEW_QUANTITY_MAX, RETRIES_MAX, WATERMARK_MS, WINDOW_MS, expect
from demo.orders import FAILURES_MAX, GONE_PRODUCT, POISON, Kind, Shop, open_shop

FOLDER = Path(demo.__file__).parent


@pytest.fixture(scope="module")
def shop() -> Shop:
    return open_shop(seed=3, count=1_000)


def test_same_seed_makes_the_same_shop_and_another_seed_another(shop: Shop) -> None:
    assert open_shop(seed=3, count=1_000) == shop
    assert open_shop(seed=4, count=1_000).orders != shop.orders


def test_every_kind_of_order_occurs_even_in_a_small_shop() -> None:
    kinds = Counter(order.kind for order in open_shop(seed=1, count=100).orders)
    assert set(kinds) == set(Kind)


def test_shop_of_no_orders_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(ValueError, match="orders is 99; it must be 100 to"):
        open_shop(seed=1, count=99)


def test_values_are_what_their_kind_says(shop: Shop) -> None:
    for order in shop.orders:
        if order.kind is Kind.MALFORMED:
            with pytest.raises(json.JSONDecodeError):
                json.loads(order.value)
            continue
        value = json.loads(order.value)
        assert isinstance(value["quantity"], int) is (order.kind is not Kind.MISTYPED)
        assert (value["product"] == GONE_PRODUCT) is (order.kind is Kind.GONE)


def test_some_customers_order_much_more_than_others(shop: Shop) -> None:
    counts = [count for _, count in Counter(order.customer for order in shop.orders).most_common()]
    assert counts[0] > 5 * counts[len(counts) // 2]


def test_traces_and_numbers_are_unique(shop: Shop) -> None:
    assert len({order.trace_id for order in shop.orders}) == len(shop.orders)
    assert sorted(order.number for order in shop.orders) == list(range(1, len(shop.orders) + 1))


def test_next_morning_comes_last_and_leaves_only_its_own_window_open(shop: Shop) -> None:
    last = shop.orders[-1]
    assert last.kind is Kind.GOOD
    assert last.delay_ms is None
    assert last.at_ms == max(order.at_ms for order in shop.orders)
    starts = {start for start, _ in expect(shop).revenue_cents}
    assert starts == {
        order.at_ms - order.at_ms % WINDOW_MS for order in shop.orders[:-1] if order.kind is Kind.GOOD
    }


def test_orders_that_fail_for_a_while_succeed_before_their_last_retry() -> None:
    assert FAILURES_MAX <= RETRIES_MAX


def test_expected_numbers_add_up(shop: Shop) -> None:
    expected = expect(shop)
    assert expected.poison == sum(order.kind in POISON for order in shop.orders)
    assert expected.acked + expected.poison == expected.orders == 1_000
    assert expected.rejected + expected.exhausted == expected.poison
    assert expected.rows + expected.invalid + expected.unparsable == expected.orders
    assert expected.deliveries == expected.acked + expected.rejected + expected.nacks


def test_expected_revenue_is_all_that_was_sold_on_the_day(shop: Shop) -> None:
    prices = {product.product: product.price_cents for product in shop.products}
    sold = [order for order in shop.orders[:-1] if order.kind in (Kind.GOOD, Kind.FLAKY)]
    assert sum(expect(shop).revenue_cents.values()) == sum(
        order.quantity * prices[order.product] for order in sold
    )


def test_pipeline_and_schemas_say_what_is_expected_of_them() -> None:
    pipeline = yaml.safe_load((FOLDER / "orders.yaml").read_text())
    assert pipeline["sources"][0]["watermark"]["delay"] == f"{WATERMARK_MS // 3_600_000} hours"
    assert f"window(at, '{WINDOW_MS // 60_000} minutes')" in pipeline["views"][1]["sql"]
    old, new = (
        json.loads((FOLDER / name).read_text())["properties"] for name in ("order.json", "order-v2.json")
    )
    assert new["quantity"].pop("maximum") == NEW_QUANTITY_MAX
    assert new == old


def test_tables_are_written_with_a_header_and_a_line_for_each(shop: Shop, tmp_path: Path) -> None:
    shop.write_tables(tmp_path)
    lines = (tmp_path / "products.csv").read_text().splitlines()
    assert lines[0] == "product,name,category,price_cents"
    assert len(lines) == 1 + len(shop.products)
    assert len((tmp_path / "customers.csv").read_text().splitlines()) == 1 + len(shop.customers)
