"""Where the manager's server is, when nobody hands it a client."""

import os
from collections.abc import Mapping
from urllib.parse import quote

from penstock.backend.address import DEFAULT_PORT, URL_VARIABLE, parse

_OLD_VARIABLE = "REDIS_URL"


def server_url(environ: Mapping[str, str] = os.environ) -> str:
    """$PENSTOCK_URL, else $REDIS_URL, else what $REDIS_HOST, $REDIS_PORT and $REDIS_PASSWORD say, else localhost.

    A private server is never started unless a URL asks for one: agents that share nothing would not notice. Raises
    `ConfigurationError`, which names the variable and no piece of its value.
    """
    for variable in (URL_VARIABLE, _OLD_VARIABLE):
        if url := environ.get(variable, ""):
            parse(url, source=f"${variable}")
            return url
    host, port, password = (environ.get(f"REDIS_{part}", "") for part in ("HOST", "PORT", "PASSWORD"))
    credentials = f":{quote(password, safe='')}@" if password else ""
    name = f"[{host}]" if ":" in host else host or "localhost"
    url = f"redis://{credentials}{name}:{port or DEFAULT_PORT}"
    parse(url, source="the address in $REDIS_HOST and $REDIS_PORT")
    return url
