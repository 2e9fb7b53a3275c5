"""All errors of Penstock, as one tree.

PenstockError
├── InvalidRequest (also ValueError)      the request itself is wrong; nothing was written
│   ├── UnknownItemType · UnknownOperation · UnsupportedOperation · NoHandler
│   ├── InvalidPayload · PayloadTooLarge · InvalidText · RelativePath
│   ├── InvalidPriority · InvalidName · InvalidTime · UnknownStatus · DuplicateId
│   ├── UnknownFunction · UnknownEntity
│   ├── UnknownDocument · PageImageMissing · NotInGraph · PathNotFound (also LookupError) · InvalidVector
│   ├── InvalidMessage · UnsupportedSource · UnknownRag (also LookupError) · OutsideRag
│   ├── RequestTooLarge · RequestHeadTooLarge · PathOutside · LocalOnly
├── JobNotFound · AmbiguousId (also LookupError)
│   ├── TaskNotFound (also ValueError)
├── Conflict                              the status of the job does not allow this
│   ├── CannotCancel · CannotRetry · CountChanged · LiveTwin · LeaseLost · NoResult
│   ├── InvalidTransition (also ValueError) · FingerprintMismatch · KeyExists · ServerRunning
├── QueueFull                             backpressure; carries retry_after
├── StoreError                            the store failed
│   ├── StoreUnavailable (TooManyFiles) · StoreReadOnly · StoreDenied · DiskFull · StoreVanished
│   ├── SchemaMismatch · StateDamaged
├── JobError                              raised inside a job to end its attempt
│   ├── PermanentFailure · TransientFailure · ServiceUnavailable · Cancelled
│   │   ├── NothingToIndex · TokenLimitReached
│   │   ├── UnreadableDocument            a file's content cannot become text
│   │   │   ├── UnsupportedType · DocumentDamaged · DocumentEncrypted · NoText
│   │   │   ├── DocumentTooLarge · ParserFailed · ComponentMissing
│   │   │   │   ├── TimeBudgetExceeded · MemoryBudgetExceeded
├── KeyRequired · HostRefused · RateLimited · RequestTooSlow · TooManyListeners  a server refuses the request
│   RouteNotFound · UnknownKey · ServerNotRunning (also LookupError) · NotConfirmed
│   ├── NotAllowed (OriginRefused)
├── ServerUnreachable · InvalidAnswer     a client gets no usable answer
│   ├── ServerUntrusted · ServerTimeout
├── WorkerFailed (ServerFailed)           a worker or server cannot start
├── OutputFailed                          output cannot be written
└── ConfigError (also ValueError)
    ├── InvalidSetting · UnknownScheme · DriverMissing · AppNotFound · InvalidRags · DocumentsElsewhere
    ├── InvalidSettingsFile · UntrustedSetting · ModelDamaged · ModelUnavailable · KeylessServer

Each class has a stable ``code`` (see docs/reference/errors.md) and a ``remedy``, the next step for the user.
"""

from __future__ import annotations

from penstock.errors.access import (
    HostRefused,
    InvalidAnswer,
    KeyExists,
    KeylessServer,
    KeyRequired,
    LocalOnly,
    NotAllowed,
    NotConfirmed,
    OriginRefused,
    PathOutside,
    RateLimited,
    RequestHeadTooLarge,
    RequestTooLarge,
    RequestTooSlow,
    RouteNotFound,
    ServerFailed,
    ServerNotRunning,
    ServerRunning,
    ServerTimeout,
    ServerUnreachable,
    ServerUntrusted,
    TooManyListeners,
    UnknownKey,
)
from penstock.errors.jobs import (
    Cancelled,
    ComponentMissing,
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    JobError,
    MemoryBudgetExceeded,
    NoText,
    NothingToIndex,
    OutputFailed,
    ParserFailed,
    PermanentFailure,
    ServiceUnavailable,
    TimeBudgetExceeded,
    TokenLimitReached,
    TransientFailure,
    UnreadableDocument,
    UnsupportedType,
    WorkerFailed,
)
from penstock.errors.requests import (
    AmbiguousId,
    CannotCancel,
    CannotRetry,
    Conflict,
    CountChanged,
    DuplicateId,
    FingerprintMismatch,
    InvalidMessage,
    InvalidName,
    InvalidPayload,
    InvalidPriority,
    InvalidRequest,
    InvalidText,
    InvalidTime,
    InvalidTransition,
    InvalidVector,
    JobNotFound,
    LeaseLost,
    LiveTwin,
    NoHandler,
    NoResult,
    NotInGraph,
    OutsideRag,
    PageImageMissing,
    PathNotFound,
    PayloadTooLarge,
    PenstockError,
    QueueFull,
    RelativePath,
    TaskNotFound,
    UnknownDocument,
    UnknownEntity,
    UnknownFunction,
    UnknownItemType,
    UnknownOperation,
    UnknownRag,
    UnknownStatus,
    UnsupportedOperation,
    UnsupportedSource,
)
from penstock.errors.stores import (
    AppNotFound,
    ConfigError,
    DiskFull,
    DocumentsElsewhere,
    DriverMissing,
    InvalidRags,
    InvalidSetting,
    InvalidSettingsFile,
    ModelDamaged,
    ModelUnavailable,
    SchemaMismatch,
    StateDamaged,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreVanished,
    TooManyFiles,
    UnknownScheme,
    UntrustedSetting,
)

__all__ = [
    "PenstockError",
    "InvalidRequest",
    "UnknownItemType",
    "UnknownOperation",
    "UnsupportedOperation",
    "NoHandler",
    "InvalidPayload",
    "PayloadTooLarge",
    "InvalidText",
    "RelativePath",
    "InvalidPriority",
    "InvalidName",
    "InvalidTime",
    "UnknownStatus",
    "DuplicateId",
    "UnknownFunction",
    "UnknownEntity",
    "PathNotFound",
    "UnknownDocument",
    "InvalidVector",
    "InvalidMessage",
    "UnsupportedSource",
    "UnknownRag",
    "OutsideRag",
    "JobNotFound",
    "TaskNotFound",
    "AmbiguousId",
    "Conflict",
    "CountChanged",
    "CannotCancel",
    "CannotRetry",
    "LiveTwin",
    "LeaseLost",
    "NoResult",
    "InvalidTransition",
    "FingerprintMismatch",
    "QueueFull",
    "StoreError",
    "StoreUnavailable",
    "TooManyFiles",
    "TooManyListeners",
    "StoreReadOnly",
    "StoreDenied",
    "DiskFull",
    "StoreVanished",
    "SchemaMismatch",
    "StateDamaged",
    "JobError",
    "PermanentFailure",
    "NotInGraph",
    "PageImageMissing",
    "NothingToIndex",
    "UnreadableDocument",
    "UnsupportedType",
    "DocumentDamaged",
    "DocumentEncrypted",
    "NoText",
    "DocumentTooLarge",
    "DocumentsElsewhere",
    "ParserFailed",
    "TimeBudgetExceeded",
    "MemoryBudgetExceeded",
    "ComponentMissing",
    "TokenLimitReached",
    "TransientFailure",
    "ServiceUnavailable",
    "Cancelled",
    "WorkerFailed",
    "OutputFailed",
    "ConfigError",
    "InvalidSetting",
    "InvalidSettingsFile",
    "UntrustedSetting",
    "UnknownScheme",
    "DriverMissing",
    "ModelDamaged",
    "ModelUnavailable",
    "AppNotFound",
    "InvalidRags",
    "KeyRequired",
    "NotAllowed",
    "NotConfirmed",
    "OriginRefused",
    "HostRefused",
    "RateLimited",
    "RequestHeadTooLarge",
    "RequestTooLarge",
    "RequestTooSlow",
    "RouteNotFound",
    "PathOutside",
    "UnknownKey",
    "KeyExists",
    "ServerRunning",
    "ServerNotRunning",
    "ServerFailed",
    "KeylessServer",
    "ServerUnreachable",
    "ServerUntrusted",
    "ServerTimeout",
    "InvalidAnswer",
    "LocalOnly",
]
