"""What the shop sells, to whom, and what goes wrong with which order. The same in every run."""

from dataclasses import dataclass
from datetime import timedelta

from penstock.options import Priority, Retry

ORDERS, STOCK, PARCELS = "orders", "stock", "parcels"
BILLING, SHIPPING, STOREFRONT = "billing", "shipping", "storefront"
RETRY = Retry(attempts=3, initial=timedelta(milliseconds=100), jitter=False)
_ITEMS = ("lamp", "chair", "teapot", "clock", "mirror")
_CUSTOMERS = 97


@dataclass
class Order:
    number: int
    customer: str
    item: str
    total: int


@dataclass
class StockChanged:
    item: str
    by: int
    order: int


@dataclass
class Parcel:
    order: int


def order(number: int) -> Order:
    total = -5 if is_nonsense(number) else 10 + number % 490
    return Order(number, f"customer-{number % _CUSTOMERS}", _ITEMS[number % len(_ITEMS)], total)


def is_flaky(number: int) -> bool:
    """The bank is too busy for it, once."""
    return number % 50 == 7


def is_refused(number: int) -> bool:
    """The bank fails on it until it is mended."""
    return number % 500 == 13


def is_nonsense(number: int) -> bool:
    """No bank will ever take it."""
    return number % 1000 == 99


def priority_of(number: int) -> Priority:
    """One in ten goes by express; three can wait."""
    kind = number % 10
    return Priority.HIGH if kind == 0 else Priority.LOW if kind > 6 else Priority.NORMAL
