"""Makes a server; a missing extra is an error with the command to install."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from penstock.errors import DriverMissing
from penstock.extras import install_remedy

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.http.server import HttpServer, MakeMcp


def make_server(assembly: Assembly, make_mcp: MakeMcp, **options: Any) -> HttpServer:
    """Make a server; see ``ServerOptions``. ``make_mcp`` makes the application for agents."""
    missing = [name for name in ("fastapi", "httptools", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise DriverMissing(f"the server needs {' and '.join(missing)}", remedy=install_remedy("serve"))
    from penstock.http.server import HttpServer, ServerOptions

    return HttpServer(assembly, ServerOptions(**options), make_mcp)
