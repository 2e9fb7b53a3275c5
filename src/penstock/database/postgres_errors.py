"""Translation of PostgreSQL errors: one line with the store and a remedy, without secrets."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors as pg

from penstock.errors import (
    DiskFull,
    InvalidText,
    PenstockError,
    PoolerNotSet,
    SchemaMismatch,
    StatementRefused,
    StoreDenied,
    StoreReadOnly,
    StoreUnavailable,
)

_URL = "its URL (PENSTOCK_URL; for a separate catalog PENSTOCK_CATALOG_URL)"
_CHECK_LOGIN = f"Check the user, the password and the database in {_URL}, and the server's pg_hba.conf."
_GRANT = f"Grant the user of {_URL} the right to create and change tables in its schema."
_PRIMARY = f"Point {_URL} at the primary server; a replica can only be read."
_CREATE = f"Create the database (`createdb NAME`), or name another in {_URL}."
OWN_SCHEMA = f"Give Penstock a separate schema: add ?schema=NAME to {_URL}; it is created."
RESTORE = f"Restore the missing objects from a backup, or start in a new schema: ?schema=NAME in {_URL}."
_CONNECTIONS = (
    "Raise max_connections of the server, lower PENSTOCK_POSTGRES_POOL_SIZE, or put a pooler in between."
)
_TIMEOUT = "See what the server waits for in pg_stat_activity, or raise PENSTOCK_POSTGRES_TIMEOUT_S."
_SHORTEN = "Shorten it: a path, with its tenant and collection, may have about 2,600 bytes."
_VALUE = "The server's log has the statement; look at the values of the request."
_SPACE = "Free some space on the database server and try again."
_LOG = "Look into the server's log for the reason."
_REPAIR = "Look into the server's log; REINDEX repairs an index, a backup of the server a table."
_POOLED = "sees sessions that a pooler shares"

_BY_STATE: dict[str, tuple[type[PenstockError], str, str | None]] = {
    "28P01": (StoreDenied, "refuses the password", _CHECK_LOGIN),
    "28000": (StoreDenied, "refuses the user", _CHECK_LOGIN),
    "3D000": (StoreUnavailable, "has no such database", _CREATE),
    "42501": (StoreDenied, "does not let this user do that", _GRANT),
    "25006": (StoreReadOnly, "can only be read", _PRIMARY),
    "25P03": (StoreUnavailable, "ended a session that was idle in its transaction", None),
    "25P04": (StoreUnavailable, "ended a transaction that took longer than its transaction_timeout", None),
    "26000": (PoolerNotSet, _POOLED, None),
    "42P05": (PoolerNotSet, _POOLED, None),
    "53100": (DiskFull, "has no space left", _SPACE),
    "53200": (StoreUnavailable, "is out of memory", None),
    "53300": (StoreUnavailable, "has no connection left", _CONNECTIONS),
    "57014": (StoreUnavailable, "took longer than the timeout", _TIMEOUT),
    "55P03": (StoreUnavailable, "stayed busy for longer than the timeout", _TIMEOUT),
    "40P01": (StoreUnavailable, "stayed busy: every attempt met another writer", None),
    "40001": (StoreUnavailable, "stayed busy: every attempt met another writer", None),
    "XX001": (StoreUnavailable, "reports damaged data", _REPAIR),
    "XX002": (StoreUnavailable, "reports a damaged index", _REPAIR),
    "42P01": (SchemaMismatch, "lacks a table of this version's schema", RESTORE),
    "42703": (SchemaMismatch, "lacks a column of this version's schema", RESTORE),
    "42704": (SchemaMismatch, "lacks a type or index of this version's schema", RESTORE),
    "42883": (SchemaMismatch, "lacks a function of this version's schema", RESTORE),
    "3F000": (SchemaMismatch, "has no schema to work in", "Create the schema named in search_path."),
    "42P07": (SchemaMismatch, "already has an object of this name that is not Penstock's", OWN_SCHEMA),
    "42710": (SchemaMismatch, "already has an object of this name that is not Penstock's", OWN_SCHEMA),
    "42723": (SchemaMismatch, "already has a function of this name that is not Penstock's", OWN_SCHEMA),
    "54000": (InvalidText, "cannot keep a text this long as a name or path", _SHORTEN),
    "22001": (InvalidText, "cannot keep a text this long", _SHORTEN),
    "22021": (InvalidText, "cannot keep a text of the request", None),
    "22P05": (InvalidText, "cannot keep a text of the request", None),
}

_BY_CLASS: dict[str, tuple[type[PenstockError], str, str | None]] = {
    "08": (StoreUnavailable, "cannot be reached", None),
    "22": (InvalidText, "refuses a value", _VALUE),
    # Such as a transaction that failed, or a session that somebody ended.
    "25": (StoreUnavailable, "ended the transaction", None),
    "28": (StoreDenied, "refuses the user", _CHECK_LOGIN),
    "40": (StoreUnavailable, "rolled the transaction back", None),
    "53": (StoreUnavailable, "lacks resources", _LOG),
    "55": (StoreUnavailable, "cannot do that now", _LOG),
    "57": (StoreUnavailable, "cannot be reached", None),
    "58": (StoreUnavailable, "met an error of its system", _LOG),
    "72": (StoreUnavailable, "no longer has the snapshot", None),
    "F0": (StoreUnavailable, "cannot read its configuration", _LOG),
    "XX": (StoreUnavailable, "met an internal error", _LOG),
}
"""By the class of the SQLSTATE, its first two characters. In any other class the statement is at fault."""

RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure)
"""Conflicts of two transactions: the server rolled this one back, and a retry works."""


def translate_error(error: psycopg.Error, name: str) -> PenstockError:
    """Translate an error of the driver, of whatever class: no loop of Penstock ends with the driver's own."""
    state = error.sqlstate or _state_from_text(error) or ""
    known = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or _by_type(error, state)
    kind, what, remedy = known
    return kind(f"{name} {what} ({one_line(error)})", remedy=remedy)


def _by_type(error: psycopg.Error, state: str) -> tuple[type[PenstockError], str, str | None]:
    """Classify an error without a state, which the driver found itself, or with one that says little."""
    if "cached plan must not change" in str(error):
        return StoreUnavailable, "had its tables changed under a prepared statement", None
    if state:
        return StatementRefused, f"refused a statement with SQLSTATE {state}", None
    if isinstance(error, psycopg.DataError):
        return InvalidText, "cannot keep a text of the request", None
    if isinstance(error, psycopg.ProgrammingError | psycopg.IntegrityError | psycopg.NotSupportedError):
        return StatementRefused, "refused a statement", None
    return StoreUnavailable, "cannot be reached", None


_STATES_BY_TEXT = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    # A pooler drops settings of sessions, or refuses a connection that asks for some.
    "unsupported startup parameter": "42P05",
    "no pg_hba.conf entry": "28000",
    "not permitted to log in": "28000",
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "too many connections": "53300",
}


def _state_from_text(error: psycopg.Error) -> str | None:
    """Guess the state from the text: libpq has no code for a refused login."""
    text = str(error)
    if 'database "' in text and "does not exist" in text:
        return "3D000"
    if 'role "' in text and "does not exist" in text:
        return "28000"
    return next((state for words, state in _STATES_BY_TEXT.items() if words in text), None)


_CONNECTION_PREFIX = re.compile(
    r"^connection (failed|is bad): |connection to server (at|on) .*? failed: |FATAL: +"
    r"| Is the server running.*\?"
)
"""Repeated prefixes of libpq: the server, and that the connection failed."""


def one_line(error: BaseException) -> str:
    return _CONNECTION_PREFIX.sub("", " ".join(str(error).split()))[:300]
