"""What a failure of a store means, for operators: by the engine's code or the class of the error."""

from __future__ import annotations

_REASONS = {
    "28000": "the user is not allowed to connect from here (pg_hba.conf)",
    "28P01": "the password is wrong",
    "3D000": "there is no such database",
    "3F000": "there is no schema to make tables in, or the role may not use it (search_path, GRANT USAGE ON SCHEMA)",
    "42501": "the role lacks a right; to make the tables it needs CREATE on the schema (GRANT CREATE ON SCHEMA ...), "
    "and to use them SELECT, INSERT, UPDATE and DELETE",
    "53300": "no connection is left (max_connections, or CONNECTION LIMIT of role or database)",
    "53100": "the disk of the server is full",
    "25006": "the server is read-only: a standby, or a former primary",
    "57P03": "the server is starting, stopping or recovering",
    "08P01": "a pooler or the server refuses a parameter of the URL, or broke the connection",
    "ConnectionRefusedError": "no server listens at this address",
    "ConnectionResetError": "the connection was broken",
    "ConnectionDoesNotExistError": "the connection was broken",
    "gaierror": "the name of the host is unknown",
    "TimeoutError": "no answer in time, or a migration is running",
    "SSLCertVerificationError": "the certificate of the server is not trusted",
    "SQLITE_BUSY": "another process holds the file",
    "SQLITE_CANTOPEN": "the file cannot be opened",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_NOTADB": "the file is no SQLite database",
    "SQLITE_READONLY": "the file or its folder does not allow writing",
    "FileNotFoundError": "the folder does not exist and cannot be made",
    "NotADirectoryError": "a part of the path is no folder",
    "PermissionError": "the folder or the file does not allow writing",
    "NotFoundError": "there is no such bucket or container",
    "PermissionDeniedError": "the credentials may not write, list or delete there",
    "UnauthenticatedError": "the credentials are wrong or missing",
    "UnreachableError": "the service cannot be reached, or does not answer: check the endpoint and the network",
    "GenericError": "the service refused or failed: check credentials, region and endpoint",
}


def explain(reason: str) -> str:
    """Return the reason in words, or as it is: `42501`, a class name."""
    return _REASONS.get(reason) or _REASONS.get("_".join(reason.split("_")[:2])) or reason
