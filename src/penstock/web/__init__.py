"""Topics over HTTP: followed as server-sent events, published to by POST. Needs the extra `penstock[web]`."""

from penstock.web.gateway import Gateway, create_app
from penstock.web.options import WebOptions

__all__ = ["Gateway", "WebOptions", "create_app"]
