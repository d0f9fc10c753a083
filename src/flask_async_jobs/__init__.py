"""Asynchronous Request-Reply for Flask, on the database that the application already has."""

from flask_async_jobs.dispatcher import Dispatcher
from flask_async_jobs.errors import (
    AsyncJobsError,
    AttemptLost,
    ConfigurationError,
    IdempotencyKeyConflict,
    InvalidIdempotencyKey,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    OwnerRequired,
    PayloadTooLarge,
    RetryLater,
    Saturated,
    StorageUnavailable,
    TooManyActive,
    UnknownType,
)
from flask_async_jobs.events import JobEvent
from flask_async_jobs.extension import AsyncJobs
from flask_async_jobs.handlers import JobContext, JobReporter
from flask_async_jobs.policy import DefaultJobPolicy, JobPolicy
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import ANY_OWNER, CancelResult, Disposition, JobError, JobStatus, JobView
from flask_async_jobs.submitted import SubmittedBatch, SubmittedJob

__all__ = [
    "ANY_OWNER",
    "AsyncJobs",
    "AsyncJobsError",
    "AttemptLost",
    "CancelResult",
    "ConfigurationError",
    "DefaultJobPolicy",
    "Dispatcher",
    "Disposition",
    "IdempotencyKeyConflict",
    "InvalidIdempotencyKey",
    "InvalidPayload",
    "JobCancelled",
    "JobContext",
    "JobError",
    "JobEvent",
    "JobFailed",
    "JobPolicy",
    "JobReporter",
    "JobRepository",
    "JobStatus",
    "JobView",
    "OwnerRequired",
    "PayloadTooLarge",
    "RetryLater",
    "Saturated",
    "StorageUnavailable",
    "SubmittedBatch",
    "SubmittedJob",
    "TooManyActive",
    "UnknownType",
]
